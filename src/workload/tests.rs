use super::decode::Token;
use super::*;

#[test]
fn bytes_are_what_the_catalogue_states() {
    let models = models().unwrap();
    assert_eq!(models.len(), 8);
    for model in models {
        for quantization in &model.quantizations {
            let of = format!("{} {}", model.name, quantization.name);
            assert_eq!(model.file_bytes(quantization), quantization.file_bytes, "{of}");
            assert_eq!(model.read_bytes_per_token(quantization), quantization.read_bytes_per_token, "{of}");
            let token = Token::new(model, quantization, Engine::LlamaCpp).unwrap();
            assert_eq!(token.bytes(), quantization.read_bytes_per_token, "{of}");
        }
    }
}

#[test]
fn barriers_are_what_was_counted() {
    for model in models().unwrap() {
        let token = Token::new(model, &model.quantizations[0], Engine::LlamaCpp).unwrap();
        assert_eq!(token.barriers(), model.barriers_per_token(Engine::LlamaCpp), "{}", model.name);
        for phase in &token.phases {
            let inside = matches!(phase.op, "MUL_MAT" | "MUL_MAT_ID" | "FLASH_ATTN_EXT");
            assert_eq!(phase.barriers, 1 + u32::from(inside), "{} {}", model.name, phase.op);
        }
        assert!(model.barriers_per_token(Engine::IkLlamaCpp) > 500);
        assert!(Token::new(model, &model.quantizations[0], Engine::IkLlamaCpp).is_err());
    }
}

#[test]
fn well_known_numbers() {
    let model = Model::find("qwen3-30b").unwrap();
    let quantization = model.quantization("mxfp4").unwrap();
    assert_eq!(model.read_bytes_per_token(quantization), 2_306_975_872);
    assert_eq!(model.barriers_per_token(Engine::LlamaCpp), 2070);
    assert_eq!(model.barriers_per_token(Engine::IkLlamaCpp), 1157);
    assert!(model.has_experts && !Model::find("Llama-2-7B").unwrap().has_experts);
}

#[test]
fn block_types_agree_with_the_data() {
    let data: serde_json::Value = serde_json::from_str(include_str!("../../data/models.json")).unwrap();
    for (name, bytes) in data["bytes_per_weight"].as_object().unwrap() {
        let block_type: BlockType = serde_json::from_value(name.as_str().into()).unwrap();
        let (block, weights) = block_type.block();
        assert_eq!(bytes.as_f64().unwrap(), block as f64 / weights as f64, "{name}");
    }
    assert_eq!(BlockType::Q4_K.row_bytes(2880), None);
}

#[test]
fn names_are_found_and_wrong_ones_answered_with_a_list() {
    for name in ["Qwen3-8B", "qwen3-8b", "LLAMA", "mistral", "deepseek-v4"] {
        assert!(Model::find(name).is_ok(), "{name}");
    }
    for name in ["", "qwen3", "gpt-oss", "deepseek", "gpt-5", "é"] {
        let error = Model::find(name).unwrap_err().to_string();
        assert!(error.contains("Qwen3-30B-A3B") && error.contains("gpt-oss-120b"), "{error}");
    }
    let error = Model::find("Mistral").unwrap().quantization("MXFP4").unwrap_err().to_string();
    assert!(error.contains("F16, Q8_0, Q4_K_M"), "{error}");
}

#[test]
fn the_listing_is_the_contracts() {
    let listing = serde_json::to_value(listing().unwrap()).unwrap();
    let model = &listing["models"][3];
    assert_eq!(model["name"], "Qwen3-30B-A3B");
    assert_eq!(model["barriers_per_token"]["llama.cpp"], 2070);
    assert_eq!(model["barriers_per_token"]["ik_llama.cpp"], 1157);
    let q4 = model["quantizations"].as_array().unwrap().iter().find(|q| q["name"] == "Q4_K_M").unwrap();
    assert_eq!(q4["file_bytes"], 18_550_716_416u64);
    assert_eq!(q4["read_bytes_per_token"], 1_919_597_696u64);
}

#[test]
fn dot_kernels_have_the_same_blocks() {
    use BlockType::*;
    let mut known = Vec::new();
    for block_type in [F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q4_0, Q5_0, Q5_1, MXFP4, IQ4_XS, IQ4_NL, I32] {
        let Some(weights) = block_type.weight_type() else { continue };
        assert_eq!(weights.name(), format!("{block_type:?}"));
        let (bytes, in_block) = weights.block();
        assert_eq!(block_type.block(), (bytes as u64, in_block as u64));
        let activation = weights.activation().vector_bytes(4096).unwrap();
        assert_eq!(block_type.multiplicand_bytes(4096), activation as u64);
        known.push(weights);
    }
    known.sort();
    assert_eq!(known, WeightType::ALL);
}
