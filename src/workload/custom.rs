//! Models described by their dimensions, in TOML: what `--model FILE.toml` names.
//!
//! A description becomes the list of tensors that a file of such a model has, in llama.cpp's names and shapes, and from
//! there on it is a [`ModelFile`]: bytes, graph and token come from the same code. `docs/workload.md` describes the format,
//! `examples/tts-400m.toml` is one.

use super::BlockType;
use super::gguf::{MOST_BYTES, ModelFile, Storage, TensorInfo, Value};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A description takes a few hundred bytes; a file named by mistake may take all memory.
const MOST_TEXT: u64 = 64 << 10;
/// As many as llama.cpp has room for (`LLAMA_MAX_LAYERS`, `LLAMA_MAX_EXPERTS`).
const MOST_LAYERS: u64 = 512;
const MOST_EXPERTS: u64 = 512;
/// Of any other dimension: several times the largest vocabulary, and products of three stay within 64 bits.
const MOST_EXTENT: u64 = 1 << 20;

/// Architectures whose graph follows from these dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Architecture {
    #[serde(rename = "llama")]
    Llama,
    #[serde(rename = "qwen2")]
    Qwen2,
    #[serde(rename = "qwen3")]
    Qwen3,
    #[serde(rename = "qwen3moe")]
    Qwen3Moe,
    #[serde(rename = "gpt-oss")]
    GptOss,
}

impl Architecture {
    /// The name in GGUF files.
    fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
            Architecture::Qwen3Moe => "qwen3moe",
            Architecture::GptOss => "gpt-oss",
        }
    }

    /// Whether its layers have experts; `None` where they may.
    fn has_experts(self) -> Option<bool> {
        match self {
            Architecture::Llama => None,
            Architecture::Qwen2 | Architecture::Qwen3 => Some(false),
            Architecture::Qwen3Moe | Architecture::GptOss => Some(true),
        }
    }
}

/// The file as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: Option<String>,
    architecture: Architecture,
    layers: u64,
    embedding: u64,
    heads: u64,
    kv_heads: u64,
    head_size: u64,
    vocabulary: u64,
    feed_forward: Option<u64>,
    #[serde(default)]
    experts: u64,
    experts_used: Option<u64>,
    expert_feed_forward: Option<u64>,
    #[serde(default)]
    tied: bool,
    #[serde(default)]
    types: Types,
}

/// Types of the matrices. Norms and biases are F32, as in all files.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Types {
    default: Option<BlockType>,
    embedding: Option<BlockType>,
    head: Option<BlockType>,
    experts: Option<BlockType>,
    router: Option<BlockType>,
}

/// A type, and the key that chooses it.
type Chosen = (&'static str, BlockType);

impl Types {
    fn or_default(&self, key: &'static str, own: Option<BlockType>) -> Chosen {
        own.map_or(("types.default", self.default.unwrap_or(BlockType::F16)), |own| (key, own))
    }
}

/// Opens the model that the file describes.
///
/// # Errors
/// A usage error for what is not there, or describes no model.
pub fn open(path: &Path) -> Result<ModelFile> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let unreadable = |reason: String| unusable(&name, reason, "name a file that describes a model in TOML");
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    // Reading a pipe or a device would wait, or never end.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(unreadable("it is no ordinary file".into()));
    }
    let mut text = String::new();
    file.take(MOST_TEXT + 1).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > MOST_TEXT {
        return Err(unreadable(format!("it has more than {MOST_TEXT} bytes")));
    }
    read(&name, &text)
}

/// The model that `text` describes; `file` is what to call it.
fn read(file: &str, text: &str) -> Result<ModelFile> {
    let description: Description = toml::from_str(text).map_err(|error| {
        let line = error.span().filter(|span| !text.get(span.clone()).is_none_or(|part| part.contains('\n')));
        let place = line.map_or(String::new(), |span| place(text, span.start));
        // Keys may hold anything, and messages may have several lines.
        let reason: String = error.message().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        unusable(file, format!("{place}{reason}"), "correct it; docs/workload.md lists the keys")
    })?;
    description.check(file)?;
    let tensors = description.tensors(file)?;
    if tensors.iter().try_fold(0u64, |sum, tensor| sum.checked_add(tensor.bytes())).is_none_or(|sum| sum > MOST_BYTES) {
        let reason = "its tensors are larger than those of any model";
        return Err(unusable(file, reason, "take smaller dimensions"));
    }
    ModelFile::of_tensors(file, None, 1, description.values(), tensors)
}

/// Where in a text something is wrong: its line, and the key there.
fn place(text: &str, position: usize) -> String {
    let number = text[..position].matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) if !key.contains(|c: char| c.is_control() || c == '#') => {
            format!("line {number}, {}: ", key.trim())
        }
        _ => format!("line {number}: "),
    }
}

fn unusable(file: &str, reason: impl std::fmt::Display, advice: impl Into<String>) -> Error {
    Error::usage(format!("read the model description {file}"), reason, advice)
}

/// What is wrong with a key, and what to do about it.
struct Wrong {
    key: &'static str,
    reason: String,
    advice: String,
}

impl Wrong {
    fn new(key: &'static str, reason: impl Into<String>, advice: impl Into<String>) -> Wrong {
        Wrong { key, reason: reason.into(), advice: advice.into() }
    }

    fn unused(key: &'static str, why: &str) -> Wrong {
        Wrong::new(key, format!("says nothing here: {why}"), "leave it out")
    }
}

impl Description {
    /// Refuses what no model is like, and keys that would say nothing.
    fn check(&self, file: &str) -> Result<()> {
        let checked = self.check_extents().and_then(|()| self.check_experts()).and_then(|()| self.check_types());
        checked.map_err(|wrong| unusable(file, format!("{} {}", wrong.key, wrong.reason), wrong.advice))
    }

    fn check_extents(&self) -> std::result::Result<(), Wrong> {
        let extents = [
            ("layers", Some(self.layers), MOST_LAYERS),
            ("embedding", Some(self.embedding), MOST_EXTENT),
            ("heads", Some(self.heads), MOST_EXTENT),
            ("kv_heads", Some(self.kv_heads), MOST_EXTENT),
            ("head_size", Some(self.head_size), MOST_EXTENT),
            ("vocabulary", Some(self.vocabulary), MOST_EXTENT),
            ("feed_forward", self.feed_forward, MOST_EXTENT),
            ("expert_feed_forward", self.expert_feed_forward, MOST_EXTENT),
        ];
        for (key, extent, most) in extents {
            if let Some(extent) = extent.filter(|extent| !(1..=most).contains(extent)) {
                return Err(Wrong::new(key, format!("is {extent}"), format!("write a whole number from 1 to {most}")));
            }
        }
        let width = self.heads * self.head_size;
        if width > MOST_EXTENT {
            let advice = format!("let it be {MOST_EXTENT} at most");
            return Err(Wrong::new("heads × head_size", format!("is {width}"), advice));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let reason = format!("is {}, by which the {} heads cannot be divided", self.kv_heads, self.heads);
            return Err(Wrong::new("kv_heads", reason, "write a divisor of heads"));
        }
        Ok(())
    }

    fn check_experts(&self) -> std::result::Result<(), Wrong> {
        let architecture = self.architecture.name();
        let has_experts = self.experts > 0;
        if self.experts > MOST_EXPERTS {
            let advice = format!("write at most {MOST_EXPERTS}, or 0 for none");
            return Err(Wrong::new("experts", format!("is {}", self.experts), advice));
        }
        match self.architecture.has_experts() {
            Some(true) if !has_experts => {
                let reason = format!("is 0 or missing, and a layer of {architecture} has experts");
                return Err(Wrong::new("experts", reason, "say how many"));
            }
            Some(false) if has_experts => {
                let reason = format!("is {}, and a layer of {architecture} has none", self.experts);
                return Err(Wrong::new("experts", reason, "leave it out, or take llama or qwen3moe"));
            }
            _ => {}
        }
        // Key, whether it is there, whether it must be: a key that says nothing would mislead.
        let keys = [
            ("feed_forward", self.feed_forward.is_some(), !has_experts),
            ("experts_used", self.experts_used.is_some(), has_experts),
            ("expert_feed_forward", self.expert_feed_forward.is_some(), has_experts),
        ];
        for (key, is_there, is_needed) in keys {
            match (is_there, is_needed) {
                (true, false) => return Err(Wrong::unused(key, self.kind_of_layers())),
                (false, true) => {
                    return Err(Wrong::new(key, format!("is missing: {}", self.kind_of_layers()), "add it"));
                }
                _ => {}
            }
        }
        if let Some(used) = self.experts_used.filter(|used| !(1..=self.experts).contains(used)) {
            let advice = format!("write a whole number from 1 to {} (experts)", self.experts);
            return Err(Wrong::new("experts_used", format!("is {used}"), advice));
        }
        Ok(())
    }

    fn check_types(&self) -> std::result::Result<(), Wrong> {
        let has_experts = self.experts > 0;
        let types = [
            ("types.default", self.types.default, true, ""),
            ("types.embedding", self.types.embedding, true, ""),
            ("types.head", self.types.head, !self.tied, "the embedding is the head (tied)"),
            ("types.experts", self.types.experts, has_experts, self.kind_of_layers()),
            ("types.router", self.types.router, has_experts, self.kind_of_layers()),
        ];
        for (key, block, is_used, why) in types {
            match block {
                Some(BlockType::I32) => {
                    return Err(Wrong::new(key, "is I32, in which no weights are", "take another type"));
                }
                Some(_) if !is_used => return Err(Wrong::unused(key, why)),
                _ => {}
            }
        }
        Ok(())
    }

    fn kind_of_layers(&self) -> &'static str {
        if self.experts > 0 { "layers have experts" } else { "layers have no experts" }
    }

    /// The keys of a GGUF file that say what tensors do not.
    fn values(&self) -> BTreeMap<String, Value> {
        let architecture = self.architecture.name();
        let mut values = BTreeMap::new();
        values.insert("general.architecture".to_owned(), Value::Text(architecture.to_owned()));
        values.extend(self.name.iter().map(|name| ("general.name".to_owned(), Value::Text(name.clone()))));
        let mut number = |key: &str, value| values.insert(format!("{architecture}.{key}"), Value::Number(value));
        number("block_count", self.layers);
        if let Some(used) = self.experts_used {
            number("expert_count", self.experts);
            number("expert_used_count", used);
        }
        values
    }

    /// All tensors. Source of names and shapes: `src/models/*.cpp` of llama.cpp b11434.
    fn tensors(&self, file: &str) -> Result<Vec<TensorInfo>> {
        let (d, vocabulary) = (self.embedding, self.vocabulary);
        let head = self.types.or_default("types.head", self.types.head);
        let embedding = self.types.or_default("types.embedding", self.types.embedding);
        let mut outside = vec![("token_embd", vec![d, vocabulary], embedding), ("output_norm", vec![d], FLOATS)];
        if !self.tied {
            outside.push(("output", vec![d, vocabulary], head));
        }
        let layer = self.layer();
        let mut tensors = Vec::new();
        for (name, shape, chosen) in outside {
            tensors.push(tensor(file, "", name, shape, chosen)?);
        }
        for number in 0..self.layers {
            for (name, shape, chosen) in &layer {
                tensors.push(tensor(file, &format!("blk.{number}."), name, shape.clone(), *chosen)?);
            }
        }
        Ok(tensors)
    }

    /// The tensors of a layer: name, shape, type.
    fn layer(&self) -> Vec<(&'static str, Vec<u64>, Chosen)> {
        let d = self.embedding;
        let (query, key) = (self.heads * self.head_size, self.kv_heads * self.head_size);
        let matrix = self.types.or_default("types.default", None);
        let is_oai = self.architecture == Architecture::GptOss;
        let mut layer = vec![
            ("attn_norm", vec![d], FLOATS),
            ("attn_q", vec![d, query], matrix),
            ("attn_k", vec![d, key], matrix),
            ("attn_v", vec![d, key], matrix),
            ("attn_output", vec![query, d], matrix),
            (if is_oai { "post_attention_norm" } else { "ffn_norm" }, vec![d], FLOATS),
        ];
        if matches!(self.architecture, Architecture::Qwen3 | Architecture::Qwen3Moe) {
            let size = self.head_size;
            layer.extend([("attn_q_norm", vec![size], FLOATS), ("attn_k_norm", vec![size], FLOATS)]);
        }
        if is_oai || self.architecture == Architecture::Qwen2 {
            let biases = [("attn_q.bias", query), ("attn_k.bias", key), ("attn_v.bias", key)];
            layer.extend(biases.map(|(name, length)| (name, vec![length], FLOATS)));
        }
        if is_oai {
            layer.extend([("attn_output.bias", vec![d], FLOATS), ("attn_sinks", vec![self.heads], FLOATS)]);
        }
        if let Some(ff) = self.feed_forward {
            layer.extend([
                ("ffn_gate", vec![d, ff], matrix),
                ("ffn_up", vec![d, ff], matrix),
                ("ffn_down", vec![ff, d], matrix),
            ]);
        }
        if let Some(ff) = self.expert_feed_forward {
            let (of, experts) = (self.experts, self.types.or_default("types.experts", self.types.experts));
            // Routers are F32 in nearly all files, whatever the rest is.
            let router = ("types.router", self.types.router.unwrap_or(BlockType::F32));
            layer.extend([
                ("ffn_gate_inp", vec![d, of], router),
                ("ffn_gate_exps", vec![d, ff, of], experts),
                ("ffn_up_exps", vec![d, ff, of], experts),
                ("ffn_down_exps", vec![ff, d, of], experts),
            ]);
            if is_oai {
                layer.extend([
                    ("ffn_gate_inp.bias", vec![of], FLOATS),
                    ("ffn_gate_exps.bias", vec![ff, of], FLOATS),
                    ("ffn_up_exps.bias", vec![ff, of], FLOATS),
                    ("ffn_down_exps.bias", vec![d, of], FLOATS),
                ]);
            }
        }
        layer
    }
}

/// What nobody chooses: norms and biases.
const FLOATS: Chosen = ("", BlockType::F32);

/// A tensor as GGUF files have it.
fn tensor(file: &str, prefix: &str, name: &str, shape: Vec<u64>, (key, block): Chosen) -> Result<TensorInfo> {
    let suffix = if name.ends_with(".bias") { "" } else { ".weight" };
    let Some(row_bytes) = block.row_bytes(shape[0]) else {
        let extent = match name {
            "attn_output" => "heads × head_size",
            "ffn_down" => "feed_forward",
            "ffn_down_exps" => "expert_feed_forward",
            _ => "embedding",
        };
        let (_, in_block) = block.block();
        let reason =
            format!("{extent} is {}, and rows of {block:?} ({key}) are whole blocks of {in_block} weights", shape[0]);
        let advice = format!("make it a multiple of {in_block}, or choose another type for {name}");
        return Err(unusable(file, reason, advice));
    };
    Ok(TensorInfo { name: format!("{prefix}{name}{suffix}"), shape, storage: Storage::Block(block), row_bytes })
}

#[cfg(test)]
mod tests;
