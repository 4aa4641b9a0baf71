//! `membar inspect` and `membar experts --model FILE` as a user meets them, on files that the tests write.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../src/workload/gguf/sample.rs"]
#[allow(dead_code, reason = "the unit tests of the reader use all of it")]
mod sample;

use sample::Sample;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A directory of its own, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("membar-inspect-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn membar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_membar")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One layer with eight experts, two of them picked: Q8_0 but for the norms and the router.
fn mixture() -> Sample {
    let mut sample = Sample::new("qwen3moe")
        .text("general.name", "Small \u{1b}[31mModel")
        .number("qwen3moe.block_count", 1)
        .number("qwen3moe.expert_count", 8)
        .number("qwen3moe.expert_used_count", 2);
    let q8 = |shape: &[u64]| shape.iter().product::<u64>() / 32 * 34;
    let matrices: [(&str, &[u64]); 9] = [
        ("token_embd", &[64, 100]),
        ("output", &[64, 100]),
        ("blk.0.attn_q", &[64, 64]),
        ("blk.0.attn_k", &[64, 32]),
        ("blk.0.attn_v", &[64, 32]),
        ("blk.0.attn_output", &[64, 64]),
        ("blk.0.ffn_gate_exps", &[64, 96, 8]),
        ("blk.0.ffn_up_exps", &[64, 96, 8]),
        ("blk.0.ffn_down_exps", &[96, 64, 8]),
    ];
    for (name, shape) in matrices {
        sample = sample.tensor(&format!("{name}.weight"), shape, 8, q8(shape));
    }
    let vectors: [(&str, &[u64]); 6] = [
        ("output_norm", &[64]),
        ("blk.0.attn_norm", &[64]),
        ("blk.0.attn_q_norm", &[16]),
        ("blk.0.attn_k_norm", &[16]),
        ("blk.0.ffn_norm", &[64]),
        ("blk.0.ffn_gate_inp", &[64, 8]),
    ];
    vectors.iter().fold(sample, |sample, (name, shape)| sample.floats(&format!("{name}.weight"), shape))
}

/// What a token of [`mixture`] reads: experts picked, head, all else.
const ROUTED: u64 = 2 * 3 * 64 * 96 / 32 * 34;
const HEAD: u64 = 64 * 100 / 32 * 34;
const ALWAYS: u64 = (64 + 2 * 64 * 64 + 2 * 64 * 32) / 32 * 34 + 4 * (3 * 64 + 2 * 16 + 64 * 8);

#[test]
fn a_file_comes_to_its_bytes_and_barriers() {
    let scratch = Scratch::new("file");
    let file = scratch.file("small.gguf", &mixture().bytes());
    let output = membar(&["inspect", &file, "--bandwidth", "100", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["file"], &json["architecture"]), (&"small.gguf".into(), &"qwen3moe".into()));
    let read = &json["read_bytes_per_token"];
    let parts = ["routed", "head", "always", "total"].map(|part| read[part].as_u64().unwrap());
    assert_eq!(parts, [ROUTED, HEAD, ALWAYS, ROUTED + HEAD + ALWAYS]);
    // 35 + k a layer and 6; ik_llama.cpp's were counted with 8 picked.
    assert_eq!(json["barriers_per_token"], serde_json::json!({ "llama.cpp": 43, "ik_llama.cpp": null }));
    let ceiling = json["ceiling"]["tokens_per_s"].as_f64().unwrap();
    assert_eq!(ceiling, 100e9 / (ROUTED + HEAD + ALWAYS) as f64);
    assert_eq!(json["types"][0]["type"], "Q8_0");

    let table = text(&membar(&["inspect", &file]).stdout);
    for part in ["small.gguf", "a token uses 2 of 8 experts", "experts picked", "not known", &ROUTED.to_string()] {
        assert!(table.contains(part), "no '{part}' in {table}");
    }
    assert!(!table.contains('\u{1b}') && !table.contains("Ceiling"), "{table}");
    let markdown = text(&membar(&["inspect", &file, "--format", "md", "--bandwidth", "100"]).stdout);
    assert!(markdown.contains("| llama.cpp | 43 |") && markdown.contains("Ceiling"), "{markdown}");
}

#[test]
fn bad_files_end_with_one_sentence_and_status_2() {
    let scratch = Scratch::new("bad");
    let good = mixture().bytes();
    let mut foreign = good.clone();
    foreign[4..8].copy_from_slice(&[0, 0, 0, 3]);
    let mut gigantic = good.clone();
    gigantic[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let empty = Sample::new("llama").number("llama.block_count", 1).bytes();
    let shard = Sample::bare().key("split.count", 2, &[3, 0]).key("split.no", 2, &[0, 0]).bytes();
    let too_many = Sample::new("llama").number("llama.block_count", 1).number("llama.expert_count", 2);
    let too_many = too_many.number("llama.expert_used_count", 3).floats("blk.0.ffn_up_exps.weight", &[4, 4, 2]).bytes();
    let unknown = mixture().tensor("blk.0.x.weight", &[64, 64], 123, 64 * 30);
    let cases = [
        ("truncated.gguf", &good[..good.len() - 1], "truncated"),
        ("text.gguf", &b"not a model"[..], "does not begin with GGUF"),
        ("foreign.gguf", &foreign[..], "big-endian"),
        ("gigantic.gguf", &gigantic[..], "more than its"),
        ("empty.gguf", &empty[..], "no tensors"),
        ("part-00001-of-00003.gguf", &shard[..], "part-00002-of-00003.gguf is missing"),
        ("picks.gguf", &too_many[..], "3 of 2 experts"),
    ];
    for (name, bytes, reason) in cases {
        let file = scratch.file(name, bytes);
        for arguments in [&["inspect", &file][..], &["experts", "--plan", "--model", &file]] {
            let output = membar(arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(reason) && said.contains(name), "{arguments:?} does not say '{reason}': {said}");
            assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
        }
    }
    let output = membar(&["inspect", &scratch.file("unknown.gguf", &unknown.bytes())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("type 123") && said.contains("by the room that the file gives them"), "{said}");
    let output = membar(&["inspect", &scratch.file("good.gguf", &good), "--bandwidth", "fast"]);
    assert!(text(&output.stderr).contains("could not read --bandwidth fast"), "{}", text(&output.stderr));
}

#[test]
fn a_file_is_replayed_as_a_model_is() {
    let scratch = Scratch::new("experts");
    let file = scratch.file("small.gguf", &mixture().bytes());
    let output = membar(&["experts", "--plan", "--threads", "1", "--model", &file, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let model = plan["experts"]["models"][0].clone();
    assert_eq!((&model["model"], &model["quantization"]), (&"small.gguf".into(), &"Q8_0".into()), "{plan}");
    assert_eq!(model["bytes_per_token"], ROUTED + HEAD + ALWAYS);
    assert_eq!(model["barriers_per_token"], 43);

    let output = membar(&["experts", "--plan", "--model", &file, "--quantization", "F16"]);
    assert!(text(&output.stderr).contains("leave out --quantization"), "{}", text(&output.stderr));

    // A tensor that no graph has: replayed, and marked.
    let file = scratch.file("odd.gguf", &mixture().floats("blk.0.odd.weight", &[64]).bytes());
    let said = text(&membar(&["experts", "--plan", "--threads", "1", "--model", &file]).stdout);
    assert!(said.contains("no graph known for this model of architecture qwen3moe"), "{said}");
    // Checked, untimed.
    let output = membar(&["experts", "--verify", "--threads", "1", "--model", &file]);
    let said = text(&output.stderr);
    assert!(output.status.success() || said.contains("another membar is measuring"), "{said}");
}

#[test]
fn a_described_model_is_inspected_and_replayed() {
    const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tts-400m.toml");
    let output = membar(&["inspect", EXAMPLE, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["file"], &json["name"]), (&"tts-400m.toml".into(), &"tts-400m".into()));
    assert_eq!(json["gguf_version"], serde_json::Value::Null);
    assert_eq!(json["barriers_per_token"]["llama.cpp"], 24 * 25 + 6);
    let said = text(&membar(&["inspect", EXAMPLE]).stdout);
    assert!(said.contains("(described by its") && !said.contains("GGUF"), "{said}");

    let output = membar(&["experts", "--plan", "--threads", "1", "--model", EXAMPLE, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let model = &plan["experts"]["models"][0];
    assert_eq!((&model["model"], &model["quantization"]), (&"tts-400m.toml".into(), &"Q8_0".into()), "{plan}");
    assert_eq!(model["bytes_per_token"], json["read_bytes_per_token"]["total"]);
    assert_eq!(model["barriers_per_token"], 24 * 25 + 6);
    let output = membar(&["experts", "--plan", "--model", EXAMPLE, "--quantization", "F16"]);
    assert!(text(&output.stderr).contains("leave out --quantization"), "{}", text(&output.stderr));
}

#[test]
fn bad_descriptions_end_with_one_sentence_and_status_2() {
    let scratch = Scratch::new("described");
    let good = include_bytes!("../examples/tts-400m.toml");
    let zero = text(good).replace("layers = 24", "layers = 0").into_bytes();
    let cases = [
        ("zero.toml", &zero[..], "layers is 0"),
        ("binary.TOML", &mixture().bytes()[..], "UTF-8"),
        ("long.toml", &[&good[..], &[b'#'; 1 << 16]].concat()[..], "more than 65536 bytes"),
        ("empty.toml", &b""[..], "missing field"),
    ];
    for (name, bytes, reason) in cases {
        let file = scratch.file(name, bytes);
        for arguments in [&["inspect", &file][..], &["experts", "--plan", "--model", &file]] {
            let output = membar(arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(reason) && said.contains(name), "{arguments:?} does not say '{reason}': {said}");
            assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
        }
    }
    std::fs::create_dir(scratch.0.join("directory.toml")).unwrap();
    for name in ["directory.toml", "nowhere.toml"] {
        let output = membar(&["inspect", scratch.0.join(name).to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(said.contains(name) && said.contains("name a file that describes a model in TOML"), "{said}");
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
}
