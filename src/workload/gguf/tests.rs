use super::sample::{Sample, text};
use super::*;
use crate::units::BytesPerSecond;
use crate::workload::{BlockType, Model, Quantization, models};
use std::io::{Cursor, ErrorKind};

/// Reads one file.
fn read(sample: &Sample) -> ModelFile {
    ModelFile::read("model.gguf", |_| Ok(sample.sparse())).unwrap()
}

/// What is said about a file that cannot be read.
fn refusal(bytes: &[u8]) -> String {
    let error = ModelFile::read("model.gguf", |_| Ok(Cursor::new(bytes))).unwrap_err();
    assert_eq!(error.kind(), crate::error::Kind::Usage, "{error}");
    let said = error.to_string();
    assert!(said.starts_with("could not read the model file model.gguf: "), "{said}");
    said
}

/// The number of a type by its name.
fn id(block: BlockType) -> u32 {
    (0..64).find(|id| Storage::of(*id) == Storage::Block(block)).unwrap()
}

/// A file with the shapes and types of a model of the catalogue, and the keys that converters write.
fn file_of(model: &Model, quantization: &Quantization) -> Sample {
    let architecture = model.architecture.as_str();
    let key = |name: &str| format!("{architecture}.{name}");
    let mut sample = Sample::new(architecture)
        .text("general.name", &model.name)
        .texts("tokenizer.ggml.tokens", &["a", "b", "", "d"])
        .number(&key("block_count"), model.layers);
    let layers = (0..model.layers).flat_map(|layer| model.layer(layer).iter().map(move |tensor| (Some(layer), tensor)));
    let tensors: Vec<_> = model.tensors.iter().map(|tensor| (None, tensor)).chain(layers).collect();
    let experts = tensors.iter().find_map(|(_, tensor)| match tensor.reading {
        Reading::Experts { of, picked } => Some((of as u32, picked as u32)),
        _ => None,
    });
    if let Some((of, picked)) = experts {
        sample = sample.number(&key("expert_count"), of).number(&key("expert_used_count"), picked);
    }
    if architecture == "deepseek2" {
        sample = sample
            .number(&key("expert_gating_func"), 2)
            .number(&key("expert_group_count"), 8)
            .key(&key("expert_weights_norm"), 7, &[1])
            .float(&key("expert_weights_scale"), 2.5);
    }
    for (layer, tensor) in tensors {
        let suffix = match tensor.name.as_str() {
            "exp_probs_b" => ".bias",
            name if name.ends_with(".bias") => "",
            _ => ".weight",
        };
        let place = layer.map_or(String::new(), |layer| format!("blk.{layer}."));
        let bytes = tensor.weight(quantization).unwrap().total_bytes();
        let storage = id(tensor.block_type(quantization).unwrap());
        sample = sample.tensor(&format!("{place}{}{suffix}", tensor.name), &tensor.shape, storage, bytes);
    }
    sample
}

#[test]
fn a_file_of_each_model_of_the_catalogue_is_that_model() {
    let data: serde_json::Value = serde_json::from_str(include_str!("../../../data/models.json")).unwrap();
    for model in models().unwrap() {
        for quantization in &model.quantizations {
            let of = format!("{} {}", model.name, quantization.name);
            let file = read(&file_of(model, quantization));
            assert_eq!(file.tensor_bytes(), quantization.file_bytes, "{of}");
            let inspection = Inspection::new(&file, Some(BytesPerSecond(1e9)));
            let read = &inspection.read_bytes_per_token;
            assert_eq!(read.total, quantization.read_bytes_per_token, "{of}");
            let entry = data["models"].as_array().unwrap().iter().find(|entry| entry["name"] == *model.name).unwrap();
            let stated = &entry["quantizations"][&quantization.name];
            assert_eq!(read.routed, stated["experts"].as_u64().unwrap(), "{of}");
            assert_eq!(read.head, stated["output_head"].as_u64().unwrap(), "{of}");
            assert_eq!(read.always, stated["rest"].as_u64().unwrap(), "{of}");
            for engine in Engine::ALL {
                assert_eq!(file.barriers_per_token(engine), Some(model.barriers_per_token(engine)), "{of}");
            }
            assert_eq!(file.remarks, Vec::<String>::new(), "{of}");
            assert_eq!(inspection.tensor_bytes, inspection.types.iter().map(|share| share.bytes).sum::<u64>());
            let ceiling = inspection.ceiling.unwrap().tokens_per_s;
            assert_eq!(ceiling, 1e9 / quantization.read_bytes_per_token as f64, "{of}");
        }
    }
}

#[test]
fn its_token_has_the_phases_of_the_catalogue() {
    // Views of parts of a query: the catalogue has the stretch of memory that they span.
    let is_view = |phase: &Phase| phase.copy_bytes > 0 && phase.in_bytes == 95 << 10 || phase.op == "ROPE";
    for model in models().unwrap() {
        let quantization = &model.quantizations[0];
        let ours = read(&file_of(model, quantization)).token(Engine::LlamaCpp).unwrap();
        let theirs = Token::new(model, quantization, Engine::LlamaCpp).unwrap();
        assert_eq!((ours.bytes(), ours.barriers()), (theirs.bytes(), theirs.barriers()), "{}", model.name);
        assert_eq!(ours.phases.len(), theirs.phases.len(), "{}", model.name);
        for (ours, theirs) in ours.phases.iter().zip(&theirs.phases) {
            let of = format!("{}: {ours:?} for {theirs:?}", model.name);
            assert_eq!((ours.op, ours.layer, &ours.weight), (theirs.op, theirs.layer, &theirs.weight), "{of}");
            assert_eq!((ours.barriers, ours.single_thread), (theirs.barriers, theirs.single_thread), "{of}");
            // The catalogue rounds to KiB.
            let is_near = |ours: u64, theirs: u64| ours.abs_diff(theirs) <= 1024;
            let is_view = model.architecture == "deepseek2" && is_view(theirs);
            assert!(is_near(ours.in_bytes, theirs.in_bytes) || is_view, "{of}");
            assert!(is_near(ours.out_bytes, theirs.out_bytes), "{of}");
            assert!(is_near(ours.copy_bytes, theirs.copy_bytes) || is_view, "{of}");
        }
    }
}

/// A small model of the plain kind.
fn small(architecture: &str, layers: u32) -> Sample {
    let mut sample = Sample::new(architecture)
        .number(&format!("{architecture}.block_count"), layers)
        .floats("token_embd.weight", &[64, 100])
        .floats("output_norm.weight", &[64])
        .floats("output.weight", &[64, 100]);
    for layer in 0..layers {
        let tensors: [(&str, &[u64]); 6] = [
            ("attn_norm", &[64]),
            ("attn_q", &[64, 64]),
            ("attn_k", &[64, 32]),
            ("attn_v", &[64, 32]),
            ("attn_output", &[64, 64]),
            ("ffn_norm", &[64]),
        ];
        for (name, shape) in tensors {
            sample = sample.floats(&format!("blk.{layer}.{name}.weight"), shape);
        }
    }
    sample
}

/// With a feed-forward net in each layer.
fn dense(architecture: &str, layers: u32) -> Sample {
    (0..layers).fold(small(architecture, layers), |sample, layer| {
        let name = |name: &str| format!("blk.{layer}.{name}.weight");
        sample
            .floats(&name("ffn_gate"), &[64, 96])
            .floats(&name("ffn_up"), &[64, 96])
            .floats(&name("ffn_down"), &[96, 64])
    })
}

/// With four experts in each layer, two of them picked.
fn mixture(architecture: &str, layers: u32) -> Sample {
    let key = |name: &str| format!("{architecture}.{name}");
    let sample = small(architecture, layers).number(&key("expert_count"), 4).number(&key("expert_used_count"), 2);
    (0..layers).fold(sample, |sample, layer| sample.floats(&format!("blk.{layer}.ffn_gate_inp.weight"), &[64, 4]))
}

fn merged(architecture: &str, layers: u32) -> Sample {
    (0..layers).fold(mixture(architecture, layers), |sample, layer| {
        let name = |name: &str| format!("blk.{layer}.{name}.weight");
        sample
            .floats(&name("ffn_gate_exps"), &[64, 96, 4])
            .floats(&name("ffn_up_exps"), &[64, 96, 4])
            .floats(&name("ffn_down_exps"), &[96, 64, 4])
    })
}

#[test]
fn barriers_of_models_that_are_not_in_the_catalogue() {
    let barriers = |sample: &Sample| {
        let file = read(sample);
        assert_eq!(file.token(Engine::LlamaCpp).unwrap().bytes(), file.read_bytes_per_token());
        Engine::ALL.map(|engine| file.barriers_per_token(engine))
    };
    // Counted on running graphs of Mixtral's shape: 33 + k a layer and 6.
    assert_eq!(barriers(&merged("llama", 32))[0], Some(32 * 35 + 6));
    // Of fewer layers like the catalogue's, ik_llama.cpp's are known as well, with as many experts picked.
    assert_eq!(barriers(&dense("llama", 4)), [Some(4 * 25 + 6), Some(4 * 18 + 5)]);
    assert_eq!(barriers(&merged("llama", 4))[1], None);
    // Biases of the three projections.
    let with_biases = (0..4).fold(dense("qwen2", 4), |sample, layer| {
        let name = |name: &str| format!("blk.{layer}.{name}.bias");
        sample.floats(&name("attn_q"), &[64]).floats(&name("attn_k"), &[32]).floats(&name("attn_v"), &[32])
    });
    assert_eq!(barriers(&with_biases), [Some(4 * 28 + 6), None]);
    // One product instead of two.
    let gate_up = (0..4).fold(mixture("llama", 4), |sample, layer| {
        let name = |name: &str| format!("blk.{layer}.{name}.weight");
        sample.floats(&name("ffn_gate_up_exps"), &[64, 192, 4]).floats(&name("ffn_down_exps"), &[96, 64, 4])
    });
    assert_eq!(barriers(&gate_up)[0], Some(4 * 33 + 6));
    assert_eq!(read(&gate_up).read_bytes_per_token(), read(&merged("llama", 4)).read_bytes_per_token());
    // Factors of the rotation are read with the first of them.
    let file = read(&dense("llama", 2).floats("rope_freqs.weight", &[32]));
    assert!(file.has_graph() && file.barriers_per_token(Engine::LlamaCpp) == Some(56), "{:?}", file.remarks);
    assert_eq!(file.token(Engine::LlamaCpp).unwrap().bytes(), file.read_bytes_per_token());
}

#[test]
fn deepseek_v3_without_groups_of_experts() {
    let model = Model::find("DeepSeek-V3").unwrap();
    let sample = file_of(model, &model.quantizations[0]);
    let in_groups = read(&sample);
    let mut file = in_groups.clone();
    file.values.remove("deepseek2.expert_group_count");
    assert_eq!(in_groups.barriers_per_token(Engine::LlamaCpp), Some(3933));
    assert_eq!(file.barriers_per_token(Engine::LlamaCpp), Some(3527));
    assert_eq!(file.barriers_per_token(Engine::IkLlamaCpp), None);
}

#[test]
fn a_tensor_for_each_expert_is_as_good_as_one_for_all() {
    let singles = (0..2).fold(mixture("llama", 2), |sample, layer| {
        (0..4).fold(sample, |sample, expert| {
            let name = |name: &str| format!("blk.{layer}.{name}.{expert}.weight");
            sample
                .floats(&name("ffn_gate"), &[64, 96])
                .floats(&name("ffn_up"), &[64, 96])
                .floats(&name("ffn_down"), &[96, 64])
        })
    });
    let (singles, merged) = (read(&singles), read(&merged("llama", 2)));
    let phases = |file: &ModelFile| file.token(Engine::LlamaCpp).unwrap().phases;
    assert_eq!(phases(&singles), phases(&merged));
    assert_eq!(singles.tensor_bytes(), merged.tensor_bytes());
    assert_eq!(
        Inspection::new(&singles, None).read_bytes_per_token,
        Inspection::new(&merged, None).read_bytes_per_token
    );
    let count = |file: &ModelFile| Inspection::new(file, None).types[0].tensors;
    assert_eq!(count(&singles) - count(&merged), 2 * 3 * 3);

    let lacking = mixture("llama", 1).floats("blk.0.ffn_gate.0.weight", &[64, 96]);
    assert!(refusal(&lacking.bytes()).contains("not 4 of one shape"), "{}", refusal(&lacking.bytes()));
}

#[test]
fn a_tied_head_is_the_embedding_and_counts_once() {
    let mut sample = Sample::new("llama")
        .number("llama.block_count", 1)
        .floats("token_embd.weight", &[64, 100])
        .floats("output_norm.weight", &[64]);
    for (name, shape) in [("attn_norm", vec![64]), ("attn_q", vec![64, 64]), ("attn_k", vec![64, 64])] {
        sample = sample.floats(&format!("blk.0.{name}.weight"), &shape);
    }
    for (name, shape) in [("attn_v", vec![64, 64]), ("attn_output", vec![64, 64]), ("ffn_norm", vec![64])] {
        sample = sample.floats(&format!("blk.0.{name}.weight"), &shape);
    }
    for (name, shape) in [("ffn_gate", vec![64, 96]), ("ffn_up", vec![64, 96]), ("ffn_down", vec![96, 64])] {
        sample = sample.floats(&format!("blk.0.{name}.weight"), &shape);
    }
    let file = read(&sample);
    assert_eq!(file.read_bytes_per_token(), file.tensor_bytes());
    let inspection = Inspection::new(&file, None);
    assert_eq!(inspection.read_bytes_per_token.head, 64 * 100 * 4);
    assert!(inspection.remarks[0].contains("counted once"), "{:?}", inspection.remarks);
    let token = file.token(Engine::LlamaCpp).unwrap();
    assert_eq!((token.bytes(), token.barriers()), (file.tensor_bytes(), 31));
    assert_eq!(token.phases[0].weight, None);
    assert_eq!(token.phases.last().unwrap().weight.as_ref().unwrap().tensor, "token_embd");
    assert_eq!(file.barriers_per_token(Engine::IkLlamaCpp), Some(23));
}

#[test]
fn shared_experts_and_layers_that_guess_ahead() {
    let model = Model::find("DeepSeek-V4-Flash").unwrap();
    let quantization = model.quantization("MXFP4").unwrap();
    let (mut shared, ahead) = (0, model.layers);
    for layer in 0..model.layers {
        let tensors = model.layer(layer).iter().filter(|tensor| tensor.name.ends_with("_shexp"));
        shared += tensors.map(|tensor| tensor.weight(quantization).unwrap().read_bytes()).sum::<u64>();
    }
    let sample = file_of(model, quantization);
    let file = read(&sample.clone().floats(&format!("blk.{ahead}.nextn.eh_proj.weight"), &[64, 64]));
    assert_eq!(file.read_bytes_per_token(), quantization.read_bytes_per_token);
    assert_eq!(file.tensor_bytes(), quantization.file_bytes + 64 * 64 * 4);
    assert!(file.remarks[0].contains("are not read"), "{:?}", file.remarks);
    assert_eq!(file.barriers_per_token(Engine::LlamaCpp), Some(5786));
    let counted = file.tensors.iter().filter(|tensor| tensor.weight.tensor.ends_with("_shexp"));
    assert_eq!(counted.map(FileTensor::read_bytes).sum::<u64>(), shared);
    assert!(shared > 0);
    // Other experts picked: other sums.
    let mut file = read(&sample);
    file.experts = Some((256, 8));
    assert_eq!(file.barriers_per_token(Engine::LlamaCpp), Some(5786 + 2 * 43));
}

#[test]
fn other_architectures_are_counted_by_name_and_say_so() {
    for sample in [dense("newarch", 2), dense("llama", 2).floats("blk.0.attn_gate.weight", &[64, 64])] {
        let file = read(&sample);
        assert_eq!(Engine::ALL.map(|engine| file.barriers_per_token(engine)), [None, None]);
        assert!(file.remarks.iter().any(|remark| remark.contains("barriers are not told")), "{:?}", file.remarks);
        assert_eq!(file.read_bytes_per_token(), file.tensor_bytes() - 99 * 64 * 4);
        let token = file.token(Engine::LlamaCpp).unwrap();
        assert_eq!(token.bytes(), file.read_bytes_per_token());
        assert_eq!(token.phases.last().unwrap().weight.as_ref().unwrap().tensor, "output");
    }
    assert!(
        read(&merged("newarch", 2))
            .token(Engine::LlamaCpp)
            .unwrap()
            .phases
            .iter()
            .any(|phase| phase.op == "MUL_MAT_ID")
    );
    assert!(read(&dense("llama", 2)).token(Engine::IkLlamaCpp).is_err());
}

#[test]
fn types_are_named_and_sized() {
    let mut known = 0;
    let mut names = BTreeSet::new();
    for id in 0..1000 {
        let storage = Storage::of(id);
        if storage == Storage::Unknown(id) {
            assert_eq!((storage.to_string(), storage.row_bytes(256)), (format!("type {id}"), None));
        } else {
            known += 1;
            assert!(names.insert(storage.to_string()), "{storage} twice");
            let bits = storage.row_bytes(1 << 20).unwrap() as f64 * 8.0 / f64::from(1 << 20);
            assert!((1.0..=64.01).contains(&bits), "{storage} {bits}");
        }
    }
    assert_eq!(known, 92);
    // Bits a weight as their authors state them; the rows of some have a scale of their own.
    let sizes =
        [(10, 2.625), (11, 3.4375), (16, 2.0625), (40, 4.5), (137, 2.375), (144, 4.25), (156, 3.1875), (353, 4.25)];
    for (id, bits) in sizes {
        let row = Storage::of(id).row_bytes(1 << 20).unwrap();
        assert_eq!((row as f64 * 8.0 / f64::from(1 << 20) * 1000.0).round(), (bits * 1000.0_f64).round(), "type {id}");
    }
    assert_eq!(Storage::of(144).row_bytes(256), Some(136 + 4));
    assert_eq!(Storage::of(10).multiplicand_bytes(256), 292);
    assert_eq!(Storage::of(8).multiplicand_bytes(64), 68);
}

#[test]
fn tensors_of_an_unknown_type_are_as_large_as_their_place() {
    // 61 rows of 61 bytes take no whole number of alignments.
    let sample = dense("llama", 1).tensor("blk.0.a.weight", &[100, 61], 500, 61 * 61).floats("blk.0.b.weight", &[8]);
    let file = read(&sample);
    let tensor = file.tensors.iter().find(|tensor| tensor.weight.tensor == "a").unwrap();
    assert_eq!((tensor.storage.to_string(), tensor.weight.row_bytes), ("type 500".into(), 61));
    assert!(file.remarks[0].contains("of type 500 the block size is not known"), "{:?}", file.remarks);
    // The last one reaches to the end of the file.
    let file = read(&dense("llama", 1).tensor("blk.0.a.weight", &[100, 64], 500, 64 * 70));
    assert_eq!(file.tensors.iter().find(|tensor| tensor.weight.tensor == "a").unwrap().weight.row_bytes, 70);
    assert_eq!(file.read_bytes_per_token(), read(&dense("llama", 1)).read_bytes_per_token() + 64 * 70);
}

#[test]
fn both_versions_and_any_value_are_read() {
    let array =
        |element: u32, count: u64, bytes: &[u8]| [&element.to_le_bytes()[..], &count.to_le_bytes(), bytes].concat();
    let nested = array(9, 2, &[array(0, 3, &[1, 2, 3]), array(9, 1, &array(8, 1, &text("x")))].concat());
    let sample = dense("llama", 1)
        .version(2)
        .key("a", 0, &[1])
        .key("b", 1, &[0xff])
        .key("c", 2, &[1, 0])
        .key("d", 3, &[0xff, 0xff])
        .key("e", 5, &[5, 0, 0, 0])
        .key("f", 7, &[1])
        .key("g", 9, &array(12, 2, &[0; 16]))
        .key("h", 9, &nested)
        .key("i", 10, &7u64.to_le_bytes())
        .key("j", 11, &(-7i64).to_le_bytes())
        .key("k", 12, &1.5f64.to_le_bytes())
        .text("l", &"long ".repeat(1000))
        .number("general.alignment", 32);
    let header = Header::read(sample.sparse(), "x").unwrap();
    assert_eq!((header.version, header.tensors.len()), (2, 12));
    assert_eq!(header.values["b"], Value::Float(-1.0));
    assert_eq!((&header.values["e"], &header.values["i"]), (&Value::Number(5), &Value::Number(7)));
    assert_eq!((&header.values["f"], &header.values["k"]), (&Value::Bool(true), &Value::Float(1.5)));
    for skipped in ["g", "h", "l"] {
        assert!(!header.values.contains_key(skipped));
    }
}

#[test]
fn a_model_in_several_files() {
    let shard = |sample: Sample, number: u16| {
        let of = |key: &str, value: u16| (format!("split.{key}"), value.to_le_bytes());
        [of("no", number), of("count", 3)].iter().fold(sample, |sample, (key, value)| sample.key(key, 2, value))
    };
    // The first holds keys only, as gguf-split writes it when asked.
    let whole = dense("llama", 1);
    let keys = shard(Sample::new("llama").number("llama.block_count", 1), 0).number("split.tensors.count", 12);
    let names = ["attn_q", "attn_k", "attn_v", "attn_output"];
    let outside = [("token_embd", vec![64, 100]), ("output_norm", vec![64]), ("output", vec![64, 100])];
    let second = outside
        .iter()
        .fold(shard(Sample::bare(), 1), |sample, (name, shape)| sample.floats(&format!("{name}.weight"), shape));
    let third = whole_layer(shard(Sample::bare(), 2), &names);
    let name = |number: u32| format!("m-{number:05}-of-00003.gguf");
    let open = |files: Vec<(u32, Sample)>| {
        move |asked: &str| {
            let found = files.iter().find(|(number, _)| name(*number) == asked);
            found.map(|(_, sample)| sample.sparse()).ok_or_else(|| ErrorKind::NotFound.into())
        }
    };
    let all = || vec![(1, keys.clone()), (2, second.clone()), (3, third.clone())];
    for start in 1..=3 {
        let file = ModelFile::read(&name(start), open(all())).unwrap();
        assert_eq!((file.shards, file.file.as_str()), (3, "m-00001-of-00003.gguf"));
        assert_eq!(file.read_bytes_per_token(), read(&whole).read_bytes_per_token());
        assert_eq!(file.barriers_per_token(Engine::LlamaCpp), Some(31));
    }
    let refused = |name: &str, files: Vec<(u32, Sample)>| ModelFile::read(name, open(files)).unwrap_err().to_string();
    let said = refused(&name(1), all().into_iter().filter(|(number, _)| *number != 2).collect());
    assert!(said.contains("m-00002-of-00003.gguf is missing"), "{said}");
    let said = refused(&name(1), vec![(1, keys.clone()), (2, third.clone()), (3, third.clone())]);
    assert!(said.contains("m-00002-of-00003.gguf does not say that it is part 2 of 3"), "{said}");
    let fewer = shard(Sample::bare(), 2).floats("x", &[1]);
    let said = refused(&name(1), vec![(1, keys.clone()), (2, second.clone()), (3, fewer)]);
    assert!(said.contains("4 tensors, not 12"), "{said}");
    let said = ModelFile::read("renamed.gguf", |_| Ok(keys.sparse())).unwrap_err().to_string();
    assert!(said.contains("is not called …-00001-of-00003.gguf"), "{said}");
}

/// The tensors of a layer of [`dense`].
fn whole_layer(sample: Sample, products: &[&str]) -> Sample {
    let name = |name: &str| format!("blk.0.{name}.weight");
    let sample = products.iter().fold(sample, |sample, product| {
        let rows = if matches!(*product, "attn_k" | "attn_v") { 32 } else { 64 };
        sample.floats(&name(product), &[64, rows])
    });
    let sample = sample.floats(&name("attn_norm"), &[64]).floats(&name("ffn_norm"), &[64]);
    sample.floats(&name("ffn_gate"), &[64, 96]).floats(&name("ffn_up"), &[64, 96]).floats(&name("ffn_down"), &[96, 64])
}

#[test]
fn what_cannot_be_a_model_is_refused_with_a_reason() {
    let good = merged("llama", 1);
    let bytes = good.bytes();
    let header = good.header().len();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let one = |sample: Sample| sample.number("llama.block_count", 0).floats("token_embd.weight", &[4, 4]).bytes();
    let picks = |sample: Sample, of: u32, picked: u32| {
        let sample = sample.number("llama.block_count", 1);
        let sample = sample.number("llama.expert_count", of).number("llama.expert_used_count", picked);
        sample.floats("blk.0.ffn_up_exps.weight", &[64, 96, 4]).bytes()
    };
    let new = || Sample::new("llama");
    let blocks = || new().number("llama.block_count", 1);
    let array = |element: u32, count: u64| [element.to_le_bytes().as_slice(), &count.to_le_bytes()].concat();
    let deep: Vec<u8> = (0..30).flat_map(|_| array(9, 1)).collect();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "does not begin with GGUF"),
        (b"GG".to_vec(), "does not begin with GGUF"),
        (b"{\"not\": \"a model\"}".to_vec(), "does not begin with GGUF"),
        (b"GGUF".to_vec(), "truncated"),
        (bytes[..header / 2].to_vec(), "truncated: its header goes on"),
        (bytes[..header].to_vec(), "truncated: "),
        (bytes[..bytes.len() - 1].to_vec(), "ffn_down_exps.weight' ends after its"),
        (with(4, &[0, 0, 0, 3]), "big-endian"),
        (with(4, &[1, 0, 0, 0]), "version 1"),
        (with(4, &[9, 0, 0, 0]), "version 9"),
        (with(8, &u64::MAX.to_le_bytes()), "claims 18446744073709551615 tensors"),
        (with(8, &(1u64 << 40).to_le_bytes()), "claims 1099511627776 tensors"),
        (with(16, &(1u64 << 40).to_le_bytes()), "claims 1099511627776 keys"),
        (with(24, &u64::MAX.to_le_bytes()), "a name of 18446744073709551615 bytes"),
        (blocks().bytes(), "no tensors"),
        (one(Sample::bare()), "does not name its architecture"),
        (new().floats("token_embd.weight", &[4, 4]).bytes(), "no key llama.block_count"),
        (new().number("llama.block_count", 1 << 30).floats("x", &[1]).bytes(), "claims 1073741824 layers"),
        (one(new().number("a", 1).number("a", 2)), "the key 'a' twice"),
        (blocks().floats("x", &[1]).floats("x", &[1]).bytes(), "the tensor 'x' twice"),
        (one(new().key("a", 13, &[])), "a value of type 13"),
        (one(new().key("a", 9, &array(13, 1))), "an array of type 13"),
        (one(new().key("a", 9, &array(8, 1 << 50))), "claims 1125899906842624 texts"),
        (one(new().key("a", 9, &array(0, u64::MAX))), "claims 18446744073709551615 values"),
        (one(new().key("a", 9, &array(9, u64::MAX))), "claims 18446744073709551615 arrays"),
        (one(new().key("a", 9, &deep)), "arrays within arrays"),
        (one(new().number("general.alignment", 7)), "no power of two"),
        (one(new().number("general.alignment", 0)), "no power of two"),
        (blocks().floats("x", &[4, 0]).bytes(), "which no tensor has"),
        (blocks().tensor("x", &[1 << 40, 1 << 40], 0, 32).bytes(), "which no tensor has"),
        (blocks().floats("x", &[]).bytes(), "has 0 dimensions"),
        (blocks().floats("x", &[1; 5]).bytes(), "has 5 dimensions"),
        (blocks().tensor("x", &[1 << 30, 1 << 10], 0, 32).bytes(), "truncated: 'x' ends"),
        (blocks().tensor("x", &[100, 4], 12, 256).bytes(), "no whole blocks of Q4_K"),
        (blocks().tensor("x", &[64, 4], 0, 32).floats("y", &[64, 4]).bytes(), "'x' overlaps"),
        (blocks().tensor("x", &[64, 4], 500, 0).floats("y", &[64, 4]).bytes(), "overlaps"),
        (blocks().tensor("x", &[64, 4], 500, 0).bytes(), "truncated: 'x'"),
        (picks(new(), 4, 5), "a token uses 5 of 4 experts"),
        (picks(new(), 4, 0), "a token uses 0 of 4 experts"),
        (picks(new(), 0, 1), "does not say how many"),
        (picks(new(), 8, 2), "not that of 8 experts"),
        (
            blocks().number("llama.expert_count", 4).floats("blk.0.ffn_up_exps.weight", &[8, 8, 4]).bytes(),
            "how many experts a",
        ),
    ];
    for (bytes, reason) in cases {
        let said = refusal(&bytes);
        assert!(said.contains(reason), "'{said}' does not say '{reason}'");
    }
    assert!(ModelFile::read("model.gguf", |_| Ok(Cursor::new(&bytes))).is_ok());
    let said = open(Path::new("/no/such/model.gguf")).unwrap_err().to_string();
    assert!(said.contains("model.gguf") && said.contains("name a GGUF file"), "{said}");
    assert!(open(Path::new("/dev/null")).unwrap_err().to_string().contains("no ordinary file"));
    let sample = blocks().tensor("x", &[1 << 20, 1 << 20], 0, 1 << 42);
    assert_eq!(read(&sample).tensor_bytes(), 1 << 42);
    assert!(read(&sample).token(Engine::LlamaCpp).unwrap_err().to_string().contains("too large"));
}

/// Damaged headers are refused or read, whatever the damage: no panic, no memory or time beyond the file's size.
#[test]
fn damaged_files_do_no_harm() {
    let model = Model::find("DeepSeek-V4-Flash").unwrap();
    let samples = [
        file_of(model, &model.quantizations[0]),
        merged("llama", 2),
        dense("qwen2", 2).tensor("blk.0.x.weight", &[64, 4], 500, 100),
        mixture("deepseek2", 1).number("deepseek2.expert_group_count", 4),
    ];
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, mut accepted) = (0, 0);
    for round in 0..3000 {
        let mut file = samples[if round % 20 == 0 { 0 } else { 1 + round % 3 }].sparse();
        for _ in 0..random.usize(1..3) {
            let bytes = &mut file.header;
            let at = random.usize(..bytes.len());
            match random.u8(..6) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] ^= 1 << random.u8(..8),
                2 => file.length = random.u64(..file.length),
                3 => {
                    let end = (at + 8).min(bytes.len());
                    let value = [0, 1, u64::MAX, 1 << 31, 1 << 62, i64::MIN as u64][random.usize(..6)].to_le_bytes();
                    bytes[at..end].copy_from_slice(&value[..end - at]);
                }
                4 => file.length = [u64::MAX, i64::MAX as u64, 1 << 50][random.usize(..3)],
                _ => {
                    bytes.remove(at);
                }
            }
        }
        let length = file.length;
        match ModelFile::read("model.gguf", |_| Ok(file.clone())) {
            Err(error) => {
                assert!(error.to_string().starts_with("could not read the model file"), "{error}");
                refused += 1;
            }
            Ok(file) => {
                let inspection = Inspection::new(&file, Some(BytesPerSecond(1e9)));
                assert!(inspection.tensor_bytes <= length);
                assert!(inspection.read_bytes_per_token.total <= inspection.tensor_bytes);
                if let Ok(token) = file.token(Engine::LlamaCpp) {
                    assert_eq!(token.bytes(), inspection.read_bytes_per_token.total);
                }
                accepted += 1;
            }
        }
    }
    assert!(refused > 300 && accepted > 300, "{refused} refused, {accepted} accepted");
}
