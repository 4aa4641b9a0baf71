//! Reads the embedded data files once, and checks that they fit each other.

use super::{BlockType, Engine, LayerTensors, Model, Quantization, Reading, Tensor};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The nodes of llama.cpp's graph for one token, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Graph {
    name: String,
    pub before: Vec<Node>,
    pub layer_kinds: Vec<LayerNodes>,
    pub last_layer_extra: Vec<Node>,
    pub after: Vec<Node>,
}

/// Layers whose nodes are the same.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct LayerNodes {
    pub layers: Vec<u32>,
    pub phases: Vec<Node>,
}

/// A graph node that runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Node {
    pub op: String,
    pub weight: Option<String>,
    pub barriers: u32,
    #[serde(default)]
    pub single_thread: bool,
    pub in_kib: Option<u64>,
    pub out_kib: Option<u64>,
}

#[derive(Deserialize)]
struct PhasesFile {
    models: Vec<Graph>,
}

#[derive(Deserialize)]
struct ModelsFile {
    models: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    name: String,
    arch: String,
    layers: u32,
    vocab: u64,
    barriers_per_token: u64,
    ik_barriers_per_token: u64,
    quantizations: BTreeMap<String, QuantizationEntry>,
    tensors_outside_layers: Vec<TensorEntry>,
    layer_kinds: Vec<LayerKindEntry>,
}

#[derive(Deserialize)]
struct QuantizationEntry {
    file_bytes: u64,
    read_bytes_per_token: u64,
}

#[derive(Deserialize)]
struct LayerKindEntry {
    layers: Vec<u32>,
    tensors: Vec<TensorEntry>,
}

#[derive(Deserialize)]
struct TensorEntry {
    tensor: String,
    shape: Vec<u64>,
    /// Numerator and denominator of the part read, where that is not all.
    read: Option<(u64, u64)>,
    r#type: TypeEntry,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TypeEntry {
    Always(BlockType),
    ByQuantization(BTreeMap<String, BlockType>),
}

/// All models of the catalogue, in its order.
///
/// # Errors
/// When the embedded data is broken: a bug that tests exclude.
pub fn models() -> Result<&'static [Model]> {
    static MODELS: OnceLock<Result<Vec<Model>>> = OnceLock::new();
    MODELS.get_or_init(read).as_deref().map_err(Clone::clone)
}

fn read() -> Result<Vec<Model>> {
    let broken = |reason: String| Error::refused("read the built-in model catalogue", reason, "report this as a bug");
    let models: ModelsFile = serde_json::from_str(include_str!("../../data/models.json"))
        .map_err(|reason| broken(format!("data/models.json: {reason}")))?;
    let phases: PhasesFile = serde_json::from_str(include_str!("../../data/phases.json"))
        .map_err(|reason| broken(format!("data/phases.json: {reason}")))?;
    let mut graphs: BTreeMap<String, Graph> =
        phases.models.into_iter().map(|graph| (graph.name.clone(), graph)).collect();
    let mut catalogue = Vec::with_capacity(models.models.len());
    for entry in models.models {
        let graph = graphs.remove(&entry.name).ok_or_else(|| broken(format!("{} has no phases", entry.name)))?;
        let name = entry.name.clone();
        catalogue.push(model(entry, graph).map_err(|reason| broken(format!("{name}: {reason}")))?);
    }
    Ok(catalogue)
}

fn model(entry: ModelEntry, graph: Graph) -> std::result::Result<Model, String> {
    let mut quantizations: Vec<Quantization> = entry
        .quantizations
        .into_iter()
        .map(|(name, sizes)| Quantization {
            name,
            file_bytes: sizes.file_bytes,
            read_bytes_per_token: sizes.read_bytes_per_token,
        })
        .collect();
    // Largest first, as tables show them.
    quantizations.sort_by_key(|quantization| std::cmp::Reverse(quantization.file_bytes));
    let tensors = |entries: Vec<TensorEntry>| -> std::result::Result<Vec<Tensor>, String> {
        entries.into_iter().map(|entry| tensor(entry, &quantizations)).collect()
    };
    let outside = tensors(entry.tensors_outside_layers)?;
    let layer_tensors: Vec<LayerTensors> = entry
        .layer_kinds
        .into_iter()
        .map(|kind| Ok(LayerTensors { layers: kind.layers, tensors: tensors(kind.tensors)? }))
        .collect::<std::result::Result<_, String>>()?;
    let every_tensor = || outside.iter().chain(layer_tensors.iter().flat_map(|kind| &kind.tensors));
    let has_experts = every_tensor().any(|tensor| matches!(tensor.reading, Reading::Experts { .. }));
    let all_layers: Vec<u32> = (0..entry.layers).collect();
    let listed = |lists: Vec<&Vec<u32>>| {
        let mut layers: Vec<u32> = lists.into_iter().flatten().copied().collect();
        layers.sort_unstable();
        layers == all_layers
    };
    if !listed(layer_tensors.iter().map(|kind| &kind.layers).collect())
        || !listed(graph.layer_kinds.iter().map(|kind| &kind.layers).collect())
    {
        return Err("its layer kinds do not name each layer once".into());
    }
    Ok(Model {
        name: entry.name,
        architecture: entry.arch,
        layers: entry.layers,
        vocabulary: entry.vocab,
        has_experts,
        quantizations,
        tensors: outside,
        layer_tensors,
        graph,
        stated_barriers: [
            (Engine::LlamaCpp, entry.barriers_per_token),
            (Engine::IkLlamaCpp, entry.ik_barriers_per_token),
        ]
        .into(),
    })
}

fn tensor(entry: TensorEntry, quantizations: &[Quantization]) -> std::result::Result<Tensor, String> {
    let name = entry.tensor;
    let (Some(&row), Some(&last)) = (entry.shape.first(), entry.shape.last()) else {
        return Err(format!("{name} has no shape"));
    };
    let reading = match entry.read {
        None => Reading::All,
        Some((part, whole)) if whole > 0 && (last * part).is_multiple_of(whole) && entry.shape.len() > 1 => {
            match last * part / whole {
                1 => Reading::OneRow,
                picked => Reading::Experts { of: last, picked },
            }
        }
        Some(_) => return Err(format!("{name} reads no whole number of its matrices")),
    };
    let mut types = BTreeMap::new();
    for quantization in quantizations {
        let block_type = match &entry.r#type {
            TypeEntry::Always(block_type) => Some(*block_type),
            TypeEntry::ByQuantization(types) => types.get(&quantization.name).copied(),
        };
        let fitting = block_type.filter(|block_type| block_type.row_bytes(row).is_some());
        let block_type = fitting.ok_or_else(|| format!("{name} has no fitting type in {}", quantization.name))?;
        types.insert(quantization.name.clone(), block_type);
    }
    Ok(Tensor { name, shape: entry.shape, reading, types })
}
