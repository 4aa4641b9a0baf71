use super::*;
use crate::error::Kind;
use crate::workload::decode::Token;
use crate::workload::gguf::{Inspection, Part};
use crate::workload::{Engine, Model};

const TTS: &str = include_str!("../../../examples/tts-400m.toml");

const LLAMA_2_7B: &str = r#"
architecture = "llama"
layers = 32
embedding = 4096
feed_forward = 11008
heads = 32
kv_heads = 32
head_size = 128
vocabulary = 32000
[types]
default = "F16"
"#;

const QWEN3_8B: &str = r#"
architecture = "qwen3"
layers = 36
embedding = 4096
feed_forward = 12288
heads = 32
kv_heads = 8
head_size = 128
vocabulary = 151936
types.default = "Q8_0"
"#;

const QWEN3_30B_A3B: &str = r#"
architecture = "qwen3moe"
layers = 48
embedding = 2048
heads = 32
kv_heads = 4
head_size = 128
vocabulary = 151936
experts = 128
experts_used = 8
expert_feed_forward = 768
[types]
default = "Q8_0"
experts = "MXFP4"
"#;

const GPT_OSS_20B: &str = r#"
architecture = "gpt-oss"
layers = 24
embedding = 2880
heads = 64
kv_heads = 8
head_size = 64
vocabulary = 201088
experts = 32
experts_used = 4
expert_feed_forward = 2880
[types]
default = "Q8_0"
experts = "MXFP4"
"#;

/// A small model of another architecture.
const QWEN2: &str = r#"
architecture = "qwen2"
layers = 2
embedding = 64
feed_forward = 96
heads = 4
kv_heads = 2
head_size = 16
vocabulary = 100
tied = true
"#;

fn described(text: &str) -> ModelFile {
    read("m.toml", text).unwrap()
}

/// What is said of a description that cannot be used.
fn refusal(text: &str) -> String {
    let error = read("m.toml", text).unwrap_err();
    let said = error.to_string();
    assert_eq!(error.kind(), Kind::Usage, "{said}");
    assert!(said.starts_with("could not read the model description m.toml: "), "{said}");
    assert!(said.contains("; ") && !said.contains('\n'), "{said}");
    said
}

/// The example, with one line of it changed.
fn with(old: &str, new: &str) -> String {
    assert_eq!(TTS.matches(old).count(), 1, "{old}");
    TTS.replace(old, new)
}

#[test]
fn a_described_model_of_the_catalogue_is_that_model() {
    let q8 = QWEN3_30B_A3B.replace("experts = \"MXFP4\"\n", "");
    let cases = [
        (LLAMA_2_7B, "Llama-2-7B", "F16"),
        (QWEN3_8B, "Qwen3-8B", "Q8_0"),
        (QWEN3_30B_A3B, "Qwen3-30B-A3B", "MXFP4"),
        (&q8, "Qwen3-30B-A3B", "Q8_0"),
        (GPT_OSS_20B, "gpt-oss-20b", "MXFP4"),
    ];
    for (text, name, quantization) in cases {
        let model = Model::find(name).unwrap();
        let quantization = model.quantization(quantization).unwrap();
        let of = format!("{name} {}", quantization.name);
        let ours = described(text);
        assert_eq!(ours.tensor_bytes(), quantization.file_bytes, "{of}");
        assert_eq!(ours.read_bytes_per_token(), quantization.read_bytes_per_token, "{of}");
        for engine in Engine::ALL {
            assert_eq!(ours.barriers_per_token(engine), Some(model.barriers_per_token(engine)), "{of}");
        }
        assert_eq!(ours.remarks, Vec::<String>::new(), "{of}");
        let (ours, theirs) =
            (ours.token(Engine::LlamaCpp).unwrap(), Token::new(model, quantization, Engine::LlamaCpp).unwrap());
        assert_eq!((ours.bytes(), ours.barriers()), (theirs.bytes(), theirs.barriers()), "{of}");
        assert_eq!(ours.phases.len(), theirs.phases.len(), "{of}");
        for (ours, theirs) in ours.phases.iter().zip(&theirs.phases) {
            assert_eq!((ours.op, ours.layer, &ours.weight), (theirs.op, theirs.layer, &theirs.weight), "{of}");
        }
    }
}

#[test]
fn the_example_has_400_million_weights() {
    let model = described(TTS);
    let inspection = Inspection::new(&model, None);
    assert!((380_000_000..=420_000_000).contains(&inspection.parameters), "{}", inspection.parameters);
    assert_eq!((inspection.name.as_deref(), inspection.gguf_version), (Some("tts-400m"), None));
    assert!(model.has_graph() && model.remarks.is_empty(), "{:?}", model.remarks);
}

#[test]
fn the_documentation_has_the_numbers_of_the_example() {
    let documentation = include_str!("../../../docs/workload.md");
    let example = ["F16", "Q8_0", "Q4_K"].map(|block| {
        let text = with("default = \"Q8_0\"", &format!("default = \"{block}\""));
        (format!("tts-400m {block}"), described(&text))
    });
    let all = example.into_iter().chain([("Llama-2-7B F16".to_owned(), described(LLAMA_2_7B))]);
    for (name, model) in all {
        let bytes = model.read_bytes_per_token() as f64;
        let barriers = model.barriers_per_token(Engine::LlamaCpp).unwrap();
        let between = bytes / barriers as f64;
        let row = format!(
            "{name:<15} {:>6.2} GB {barriers:>4} barriers {:>6.2} MB {:>5.1} µs",
            bytes / 1e9,
            between / 1e6,
            between / 200e9 * 1e6
        );
        assert!(documentation.contains(&row), "{row}");
    }
}

#[test]
fn other_architectures_and_types() {
    // Experts in a llama, as Mixtral has them: 33 + k barriers a layer.
    let experts = "experts = 8\nexperts_used = 2\nexpert_feed_forward = 4096\n";
    let mixtral = described(&with("feed_forward = 4096\n", experts));
    assert_eq!(mixtral.barriers_per_token(Engine::LlamaCpp), Some(24 * 35 + 6));
    assert_eq!(mixtral.experts, Some((8, 2)));

    let tied = described(QWEN2);
    assert_eq!(tied.barriers_per_token(Engine::LlamaCpp), Some(2 * 28 + 6));
    assert_eq!(tied.remarks.len(), 1, "{:?}", tied.remarks);
    // Without [types] matrices are F16; the embedding is read in full, once.
    let layer = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 4 * (2 * 64 + 64 + 2 * 32);
    assert_eq!(tied.read_bytes_per_token(), 2 * layer + 4 * 64 + 2 * 64 * 100);
    assert_eq!(tied.tensor_bytes(), tied.read_bytes_per_token());

    let types = "default = \"BF16\"\nembedding = \"F32\"\nhead = \"Q6_K\"";
    let model = described(&with("default = \"Q8_0\"", types));
    let storage = |name: &str| {
        let tensor = model.tensors.iter().find(|tensor| tensor.weight.tensor == name).unwrap();
        (tensor.storage.to_string(), tensor.part)
    };
    assert_eq!(storage("token_embd"), ("F32".into(), Part::Always));
    assert_eq!(storage("output"), ("Q6_K".into(), Part::Head));
    assert_eq!(storage("attn_q"), ("BF16".into(), Part::Always));
    assert_eq!(storage("attn_norm"), ("F32".into(), Part::Always));
    let router = described(&format!("{QWEN3_30B_A3B}router = \"F16\"\n"));
    let of = |model: &ModelFile| model.read_bytes_per_token();
    assert_eq!(of(&described(QWEN3_30B_A3B)) - of(&router), 48 * 2048 * 128 * 2);
}

#[test]
fn bad_values_are_named() {
    let cases = [
        (with("layers = 24", "layers = 0"), "layers is 0; write a whole number from 1 to 512"),
        (with("layers = 24", "layers = 513"), "layers is 513"),
        (with("vocabulary = 4096", "vocabulary = 9223372036854775807"), "vocabulary is 9223372036854775807"),
        (with("\nfeed_forward = 4096", "\nfeed_forward = 0"), "feed_forward is 0"),
        (with("heads = 16\nkv_heads = 16", "heads = 16\nkv_heads = 3"), "kv_heads is 3, by which the 16 heads"),
        (with("kv_heads = 16", "kv_heads = 32"), "kv_heads is 32"),
        (with("head_size = 64", "head_size = 1048576"), "heads × head_size is 16777216"),
        (with("feed_forward = 4096\n", ""), "feed_forward is missing: layers have no experts; add it"),
        (with("tied = false", "experts_used = 2"), "experts_used says nothing here: layers have no experts"),
        (with("tied = false", "experts = 4"), "feed_forward says nothing here: layers have experts"),
        (with("\"llama\"", "\"qwen3moe\""), "experts is 0 or missing, and a layer of qwen3moe has experts"),
        (with("\"llama\"", "\"qwen3\"").replace("tied = false", "experts = 4"), "a layer of qwen3 has none"),
        (QWEN3_30B_A3B.replace("experts_used = 8", "experts_used = 129"), "experts_used is 129; write a whole number"),
        (QWEN3_30B_A3B.replace("experts_used = 8", "experts_used = 0"), "experts_used is 0"),
        (QWEN3_30B_A3B.replace("experts_used = 8", ""), "experts_used is missing"),
        (QWEN3_30B_A3B.replace("experts = 128", "experts = 513"), "experts is 513; write at most 512"),
        (with("default = \"Q8_0\"", "default = \"I32\""), "types.default is I32"),
        (with("default = \"Q8_0\"", "experts = \"Q8_0\""), "types.experts says nothing here"),
        (with("tied = false", "tied = true").replace("default =", "head ="), "types.head says nothing here"),
        (
            with("embedding = 1024", "embedding = 1000"),
            "embedding is 1000, and rows of Q8_0 (types.default) are whole blocks of 32 weights; make it a multiple of 32",
        ),
        (with("head_size = 64", "head_size = 65"), "heads × head_size is 1040, and rows"),
        (with("\nfeed_forward = 4096", "\nfeed_forward = 100"), "feed_forward is 100, and rows"),
        (
            QWEN3_30B_A3B.replace("_forward = 768", "_forward = 770"),
            "expert_feed_forward is 770, and rows of MXFP4 (types.experts)",
        ),
    ];
    for (text, reason) in cases {
        let said = refusal(&text);
        assert!(said.contains(reason), "no '{reason}' in: {said}");
    }
    // Each dimension is possible, all together are not.
    let huge = QWEN3_30B_A3B
        .replace("layers = 48", "layers = 512")
        .replace("embedding = 2048", "embedding = 1048576")
        .replace("_forward = 768", "_forward = 1048576")
        .replace("experts = 128", "experts = 512");
    assert!(refusal(&huge).contains("larger than those of any model; take smaller dimensions"));
}

#[test]
fn what_is_no_description_is_answered_with_line_and_key() {
    let cases: [(String, &[&str]); 9] = [
        (
            with("layers = 24", "layer = 24"),
            &["line 6, layer: unknown field `layer`", "`layers`", "`expert_feed_forward`"],
        ),
        (with("default =", "attention ="), &["line 17, attention: unknown field", "`default`", "`router`"]),
        (with("\"Q8_0\"", "\"Q8\""), &["line 17, default: unknown variant `Q8`", "`MXFP4`", "`F16`"]),
        (with("\"llama\"", "\"gpt2\""), &["line 5, architecture: unknown variant `gpt2`", "`qwen3moe`", "`gpt-oss`"]),
        (with("layers = 24", "layers = -1"), &["line 6, layers: invalid value", "-1"]),
        (with("layers = 24", "layers = 24.5"), &["line 6, layers: invalid type", "24.5"]),
        (with("layers = 24\n", ""), &["missing field `layers`"]),
        (with("layers = 24", "layers 24"), &["line 6"]),
        (with("layers = 24", "layers = 24\nlayers = 25"), &["line 7, layers: duplicate key"]),
    ];
    for (text, parts) in cases {
        let said = refusal(&text);
        for part in parts {
            assert!(said.contains(part), "no '{part}' in: {said}");
        }
        assert!(said.ends_with("; correct it; docs/workload.md lists the keys"), "{said}");
    }
    let said = refusal(&with("layers = 24", "\"\\u001b[31m\" = 24"));
    assert!(!said.contains('\u{1b}'), "{said}");
    assert!(refusal("").contains("missing field"));
}
