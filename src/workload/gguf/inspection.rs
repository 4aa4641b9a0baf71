//! What a model file comes to, in numbers: `membar inspect`.

use super::{ModelFile, Part};
use crate::units::BytesPerSecond;
use crate::workload::Engine;
use serde::Serialize;
use std::collections::BTreeMap;

/// What `membar inspect` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// Name of the first file.
    pub file: String,
    /// What the model calls itself.
    pub name: Option<String>,
    /// Its architecture.
    pub architecture: String,
    /// The version of the format; null where the model is only described.
    pub gguf_version: Option<u32>,
    /// Files that it is split into.
    pub files: u32,
    /// Layers that make a token.
    pub layers: u32,
    /// Size of the vocabulary.
    pub vocabulary: u64,
    /// Experts a layer, where it has any.
    pub experts: Option<u64>,
    /// Experts that a token uses in a layer.
    pub experts_used: Option<u64>,
    /// Weights of all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Types, the one with the most bytes first.
    pub types: Vec<TypeShare>,
    /// Bytes that one token reads.
    pub read_bytes_per_token: PartBytes,
    /// Barriers a token by engine; null where the graph is not known.
    pub barriers_per_token: BTreeMap<&'static str, Option<u64>>,
    /// The most that a bandwidth allows.
    pub ceiling: Option<Ceiling>,
    /// What a reader of these numbers should know.
    pub remarks: Vec<String>,
}

/// Tensors of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeShare {
    /// Its name, or `type` and its number.
    #[serde(rename = "type")]
    pub name: String,
    /// Tensors.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that one token reads of them.
    pub read_bytes_per_token: u64,
}

/// Bytes that one token reads, by what decides about them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartBytes {
    /// All of it.
    pub total: u64,
    /// What every token reads, apart from the head.
    pub always: u64,
    /// The experts that the router picks.
    pub routed: u64,
    /// The output head.
    pub head: u64,
}

/// Counted bytes over bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// What was named, bytes a second.
    pub bandwidth: BytesPerSecond,
    /// No engine that reads these bytes can write more tokens a second.
    pub tokens_per_s: f64,
}

impl Inspection {
    /// Counts a model's bytes and barriers; the ceiling is for `bandwidth`.
    pub fn new(model: &ModelFile, bandwidth: Option<BytesPerSecond>) -> Inspection {
        let part = |part: Part| -> u64 {
            model.tensors.iter().filter(|tensor| tensor.part == part).map(|tensor| tensor.read_bytes()).sum()
        };
        let mut types: BTreeMap<String, TypeShare> = BTreeMap::new();
        let mut parameters = 0;
        for tensor in &model.tensors {
            let name = tensor.storage.to_string();
            let entry =
                types.entry(name.clone()).or_insert(TypeShare { name, tensors: 0, bytes: 0, read_bytes_per_token: 0 });
            entry.tensors += tensor.count;
            entry.bytes += tensor.weight.total_bytes();
            entry.read_bytes_per_token += tensor.read_bytes();
            parameters += tensor.parameters();
        }
        let mut types: Vec<TypeShare> = types.into_values().collect();
        types.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        let total = model.read_bytes_per_token();
        Inspection {
            file: model.file.clone(),
            name: model.title.clone(),
            architecture: model.architecture.clone(),
            gguf_version: model.version,
            files: model.shards,
            layers: model.layers,
            vocabulary: model.vocabulary,
            experts: model.experts.map(|(of, _)| of),
            experts_used: model.experts.map(|(_, picked)| picked),
            parameters,
            tensor_bytes: model.tensor_bytes(),
            types,
            read_bytes_per_token: PartBytes {
                total,
                always: part(Part::Always),
                routed: part(Part::Routed),
                head: part(Part::Head),
            },
            barriers_per_token: Engine::ALL.map(|engine| (engine.name(), model.barriers_per_token(engine))).into(),
            ceiling: bandwidth
                .map(|bandwidth| Ceiling { bandwidth, tokens_per_s: bandwidth.0 / (total.max(1) as f64) }),
            remarks: model.remarks.clone(),
        }
    }
}
