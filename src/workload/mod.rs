//! What a generated token reads and where its threads wait: models, their tensors and their graphs, as plain facts.
//!
//! The facts stand in `data/models.json` and `data/phases.json`; their `about` texts say where they come from. Byte
//! counts and barrier counts are computed here from shapes and graph nodes, and tests compare them with the totals that
//! the files state.

mod arm;
mod catalogue;
mod custom;
pub mod decode;
pub mod gguf;
mod slicing;
mod routing;

use crate::error::{Error, Result};
use crate::kernel::dot::WeightType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

pub use arm::Arm;
pub use catalogue::models;
pub use routing::{Recorded, Routing};
pub use slicing::{Cut, Slicing};

/// A program that generates tokens. It decides where threads wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Engine {
    /// llama.cpp, build b11434: every graph node is known.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// ik_llama.cpp at 8337e4cd: only the number of barriers is known.
    #[serde(rename = "ik_llama.cpp")]
    IkLlamaCpp,
}

impl Engine {
    /// Both.
    pub const ALL: [Engine; 2] = [Engine::LlamaCpp, Engine::IkLlamaCpp];

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Engine::LlamaCpp => "llama.cpp",
            Engine::IkLlamaCpp => "ik_llama.cpp",
        }
    }

    /// The engine of that name.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn find(name: &str) -> Result<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::usage(
                format!("follow the engine '{name}'"),
                "its graphs are not known",
                "name one of llama.cpp, ik_llama.cpp",
            )
        })
    }
}

/// How weights are stored: blocks of a fixed number of weights in a fixed number of bytes.
///
/// Source: `ggml/src/ggml-common.h` of llama.cpp b11434.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(non_camel_case_types)]
pub enum BlockType {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// 16-bit brain float.
    BF16,
    /// 8-bit, one scale for 32.
    Q8_0,
    /// 6-bit, 256 in a block.
    Q6_K,
    /// 5-bit, 256 in a block.
    Q5_K,
    /// 4-bit, 256 in a block.
    Q4_K,
    /// 4-bit, 32 in a block.
    Q4_0,
    /// 5-bit, 32 in a block.
    Q5_0,
    /// 5-bit with an offset, 32 in a block.
    Q5_1,
    /// 4-bit float, one exponent for 32.
    MXFP4,
    /// 4-bit by a table, 256 in a block.
    IQ4_XS,
    /// 4-bit by a table, 32 in a block.
    IQ4_NL,
    /// 32-bit integer.
    I32,
}

impl BlockType {
    /// Bytes of a block, and the weights in it.
    pub fn block(self) -> (u64, u64) {
        match self {
            BlockType::F32 | BlockType::I32 => (4, 1),
            BlockType::F16 | BlockType::BF16 => (2, 1),
            BlockType::Q8_0 => (34, 32),
            BlockType::Q6_K => (210, 256),
            BlockType::Q5_K => (176, 256),
            BlockType::Q4_K => (144, 256),
            BlockType::Q4_0 | BlockType::IQ4_NL => (18, 32),
            BlockType::Q5_0 => (22, 32),
            BlockType::Q5_1 => (24, 32),
            BlockType::MXFP4 => (17, 32),
            BlockType::IQ4_XS => (136, 256),
        }
    }

    /// Bytes of the copy that a matrix product makes of `values` 32-bit activations before it multiplies them with weights
    /// of this type; 0 where they are multiplied as they are. Source: `vec_dot_type` in llama.cpp's
    /// `ggml/src/ggml-cpu/ggml-cpu.c`, block sizes as above (Q8_K: 292 bytes for 256, Q8_1: 36 for 32).
    pub fn multiplicand_bytes(self, values: u64) -> u64 {
        let (bytes, in_block) = match self {
            BlockType::F32 | BlockType::I32 => (0, 1),
            BlockType::F16 | BlockType::BF16 => (2, 1),
            BlockType::Q6_K | BlockType::Q5_K | BlockType::Q4_K | BlockType::IQ4_XS => (292, 256),
            BlockType::Q5_1 => (36, 32),
            BlockType::Q8_0 | BlockType::Q4_0 | BlockType::Q5_0 | BlockType::MXFP4 | BlockType::IQ4_NL => (34, 32),
        };
        (values * bytes).div_ceil(in_block)
    }

    /// The type by which dot kernels know it; `None` where there are none.
    pub fn weight_type(self) -> Option<WeightType> {
        match self {
            BlockType::F16 => Some(WeightType::F16),
            BlockType::BF16 => Some(WeightType::BF16),
            BlockType::Q8_0 => Some(WeightType::Q8_0),
            BlockType::Q6_K => Some(WeightType::Q6_K),
            BlockType::Q4_K => Some(WeightType::Q4_K),
            BlockType::MXFP4 => Some(WeightType::MXFP4),
            BlockType::F32
            | BlockType::Q5_K
            | BlockType::Q4_0
            | BlockType::Q5_0
            | BlockType::Q5_1
            | BlockType::IQ4_XS
            | BlockType::IQ4_NL
            | BlockType::I32 => None,
        }
    }

    /// Bytes of a row of this many weights; `None` when the row is no whole number of blocks.
    pub fn row_bytes(self, weights: u64) -> Option<u64> {
        let (bytes, in_block) = self.block();
        weights.is_multiple_of(in_block).then(|| weights / in_block * bytes)
    }
}

/// What part of a tensor one token reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// All of it.
    All,
    /// The matrices of the experts that the router picked.
    Experts {
        /// Experts that there are.
        of: u64,
        /// Experts that one token uses.
        picked: u64,
    },
    /// One row of a table (the embedding).
    OneRow,
}

/// A tensor's weights as one token reads them: one matrix, or one for each expert.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Weight {
    /// Name of the tensor, without the layer.
    pub tensor: String,
    /// Rows of one matrix.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// What part is read.
    pub reading: Reading,
    /// How its rows are stored; `None` for a type that is known by its size alone.
    pub block: Option<BlockType>,
}

impl Weight {
    /// Weights in a row; `None` where the type is not known.
    pub fn columns(&self) -> Option<u64> {
        let (bytes, in_block) = self.block?.block();
        Some(self.row_bytes / bytes * in_block)
    }

    /// Bytes of one matrix.
    pub fn matrix_bytes(&self) -> u64 {
        self.rows * self.row_bytes
    }

    /// Bytes of the whole tensor.
    pub fn total_bytes(&self) -> u64 {
        match self.reading {
            Reading::Experts { of, .. } => of * self.matrix_bytes(),
            Reading::All | Reading::OneRow => self.matrix_bytes(),
        }
    }

    /// Bytes that one token reads.
    pub fn read_bytes(&self) -> u64 {
        match self.reading {
            Reading::All => self.matrix_bytes(),
            Reading::Experts { picked, .. } => picked * self.matrix_bytes(),
            Reading::OneRow => self.row_bytes,
        }
    }
}

/// A tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name without the layer (`attn_q`).
    pub name: String,
    /// Row length first, as GGUF has it.
    pub shape: Vec<u64>,
    /// What one token reads of it.
    pub reading: Reading,
    /// Block type in each quantisation of the model.
    types: BTreeMap<String, BlockType>,
}

impl Tensor {
    /// Its type in a quantisation of its model; `None` in one of another model.
    pub fn block_type(&self, quantization: &Quantization) -> Option<BlockType> {
        self.types.get(&quantization.name).copied()
    }

    /// Its weights in a quantisation; `None` when the model has no such quantisation or rows are no whole blocks.
    pub fn weight(&self, quantization: &Quantization) -> Option<Weight> {
        let block = self.block_type(quantization)?;
        let row_bytes = block.row_bytes(*self.shape.first()?)?;
        let outer = match self.reading {
            Reading::Experts { .. } => &self.shape[1..self.shape.len() - 1],
            Reading::All | Reading::OneRow => &self.shape[1..],
        };
        let (tensor, rows) = (self.name.clone(), outer.iter().product());
        Some(Weight { tensor, rows, row_bytes, reading: self.reading, block: Some(block) })
    }
}

/// Layers that have the same tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerTensors {
    /// Layer numbers.
    pub layers: Vec<u32>,
    /// What each of them has.
    pub tensors: Vec<Tensor>,
}

/// A quantisation of a model: a name for the types of all its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// Such as `Q4_K_M`.
    pub name: String,
    /// Bytes of all tensors, as the catalogue states them.
    pub file_bytes: u64,
    /// Bytes that one token reads, as the catalogue states them.
    pub read_bytes_per_token: u64,
}

/// A model of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// The architecture's name in GGUF files.
    pub architecture: String,
    /// Number of layers.
    pub layers: u32,
    /// Size of the vocabulary.
    pub vocabulary: u64,
    /// Whether a router picks experts (a mixture of experts).
    pub has_experts: bool,
    /// The quantisations known.
    pub quantizations: Vec<Quantization>,
    /// Tensors that belong to no layer.
    pub tensors: Vec<Tensor>,
    /// Tensors of the layers.
    pub layer_tensors: Vec<LayerTensors>,
    /// The nodes of llama.cpp's graph.
    graph: catalogue::Graph,
    /// Counted on running graphs; compared with the nodes by a test.
    stated_barriers: BTreeMap<Engine, u64>,
}

impl Model {
    /// The model of that name, without regard to case; the beginning of a name will do if only one model begins so.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn find(name: &str) -> Result<&'static Model> {
        let models = models()?;
        find(models, name, |model| &model.name).ok_or_else(|| {
            let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            Error::usage(
                format!("find the model '{name}'"),
                "no model of the catalogue is called that, or more than one begins so",
                format!("name one of {}", names.join(", ")),
            )
        })
    }

    /// A quantisation of this model by name, found as [`Model::find`] does.
    ///
    /// # Errors
    /// A usage error that lists those that the model has.
    pub fn quantization(&self, name: &str) -> Result<&Quantization> {
        find(&self.quantizations, name, |quantization| &quantization.name).ok_or_else(|| {
            let names: Vec<&str> = self.quantizations.iter().map(|quantization| quantization.name.as_str()).collect();
            Error::usage(
                format!("find the quantization '{name}' of {}", self.name),
                "the catalogue has none called that, or more than one begins so",
                format!("name one of {}", names.join(", ")),
            )
        })
    }

    /// The tensors of a layer.
    pub fn layer(&self, layer: u32) -> &[Tensor] {
        let kind = self.layer_tensors.iter().find(|kind| kind.layers.contains(&layer));
        kind.map_or(&[], |kind| &kind.tensors)
    }

    /// Bytes of all tensors, computed from their shapes.
    pub fn file_bytes(&self, quantization: &Quantization) -> u64 {
        self.sum(quantization, Weight::total_bytes)
    }

    /// Bytes that one token reads, computed from shapes.
    pub fn read_bytes_per_token(&self, quantization: &Quantization) -> u64 {
        self.sum(quantization, Weight::read_bytes)
    }

    /// How many times all threads meet for one token, as counted on running graphs.
    pub fn barriers_per_token(&self, engine: Engine) -> u64 {
        self.stated_barriers.get(&engine).copied().unwrap_or(0)
    }

    fn sum(&self, quantization: &Quantization, bytes: impl Fn(&Weight) -> u64) -> u64 {
        let of = |tensors: &[Tensor]| -> u64 {
            tensors.iter().filter_map(|tensor| tensor.weight(quantization)).map(|weight| bytes(&weight)).sum()
        };
        let layers = self.layer_tensors.iter().map(|kind| kind.layers.len() as u64 * of(&kind.tensors));
        of(&self.tensors) + layers.sum::<u64>()
    }
}

/// Whether a model's name is that of a file: a model in GGUF, or its description in TOML.
pub fn is_file_name(name: &str) -> bool {
    is_description(Path::new(name)) || has_extension(Path::new(name), "gguf")
}

/// Opens a model's file, or the description of a model.
///
/// # Errors
/// A usage error for what is not there, and for what is no model.
pub fn open(path: &Path) -> Result<gguf::ModelFile> {
    if is_description(path) { custom::open(path) } else { gguf::open(path) }
}

fn is_description(path: &Path) -> bool {
    has_extension(path, "toml")
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|other| other.eq_ignore_ascii_case(extension))
}

/// The item with that name, else the only one whose name begins so; case is ignored.
fn find<'a, T>(items: &'a [T], name: &str, name_of: impl Fn(&T) -> &str) -> Option<&'a T> {
    if let Some(exact) = items.iter().find(|item| name_of(item).eq_ignore_ascii_case(name)) {
        return Some(exact);
    }
    let begins = |item: &&T| name_of(item).get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let mut candidates = items.iter().filter(begins);
    let first = candidates.next().filter(|_| !name.is_empty())?;
    candidates.next().is_none().then_some(first)
}

/// `membar-experts --list --format json`.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// All models of the catalogue.
    pub models: Vec<ListedModel>,
}

/// A model in a [`Listing`].
#[derive(Clone, Debug, Serialize)]
pub struct ListedModel {
    /// Its name.
    pub name: &'static str,
    /// Its quantisations.
    pub quantizations: Vec<ListedQuantization>,
    /// Barrier points of one token by engine.
    pub barriers_per_token: BTreeMap<&'static str, u64>,
}

/// A quantisation in a [`Listing`].
#[derive(Clone, Debug, Serialize)]
pub struct ListedQuantization {
    /// Its name.
    pub name: &'static str,
    /// Bytes of all tensors.
    pub file_bytes: u64,
    /// Bytes that one token reads.
    pub read_bytes_per_token: u64,
}

/// What the catalogue holds.
///
/// # Errors
/// As [`models`].
pub fn listing() -> Result<Listing> {
    let models = models()?.iter().map(|model| ListedModel {
        name: &model.name,
        quantizations: model
            .quantizations
            .iter()
            .map(|quantization| ListedQuantization {
                name: &quantization.name,
                file_bytes: model.file_bytes(quantization),
                read_bytes_per_token: model.read_bytes_per_token(quantization),
            })
            .collect(),
        barriers_per_token: Engine::ALL.map(|engine| (engine.name(), model.barriers_per_token(engine))).into(),
    });
    Ok(Listing { models: models.collect() })
}

#[cfg(test)]
mod tests;
