//! One token as a flat list of phases: what each reads, what it writes, and where all threads meet.

use super::catalogue::Node;
use super::{Engine, Model, Quantization, Reading, Tensor, Weight};
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::BTreeSet;

/// Activations that the graph lists as under 1 KiB. A guess.
pub(super) const UNDER_A_KIB: u64 = 512;
/// Bytes of an activation value: llama.cpp keeps them as 32-bit floats.
pub(super) const ACTIVATION_BYTES: u64 = 4;

/// Everything that one token does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The model.
    pub model: &'static str,
    /// Its quantisation.
    pub quantization: &'static str,
    /// Whose graph it is.
    pub engine: Engine,
    /// Graph nodes that run.
    pub phases: Vec<Phase>,
}

/// A graph node that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// The operation's name in ggml.
    pub op: &'static str,
    /// Its layer; `None` before the first and after the last.
    pub layer: Option<u32>,
    /// The weights that it streams. A tensor that several nodes of a layer use is streamed by the first of them.
    pub weight: Option<Weight>,
    /// How many times all threads meet: the last time after the phase, the others inside it before weights are read.
    pub barriers: u32,
    /// Whether only thread 0 works.
    pub single_thread: bool,
    /// Rows that the work of a phase without a product is split by; `None` where it splits more finely than by thread.
    pub rows: Option<u64>,
    /// Activation bytes read.
    pub in_bytes: u64,
    /// Activation bytes written.
    pub out_bytes: u64,
    /// Bytes of the copy of its input that a matrix product makes first, in the type that its weights are multiplied
    /// with; all threads read that copy in full. 0 where the weights take the input as it is.
    pub copy_bytes: u64,
}

impl Phase {
    /// Whether every thread reads all of its input (or of the copy).
    pub fn is_matmul(&self) -> bool {
        matches!(self.op, "MUL_MAT" | "MUL_MAT_ID")
    }

    /// Whether it takes the mean square of rows.
    pub fn is_norm(&self) -> bool {
        self.op.starts_with("RMS_NORM")
    }
}

/// Says of each phase of a token how many rows it has. Source: `ggml/src/ggml-cpu` (`ops.cpp`, `binary-ops.cpp`) of
/// llama.cpp b11434, which splits the nodes named here by rows, and of whose rows one token has one but for heads and
/// experts.
pub(super) fn mark_rows(phases: &mut [Phase]) {
    let mut experts = None;
    for phase in phases {
        let picked = match &phase.weight {
            Some(Weight { reading: Reading::Experts { picked, .. }, .. }) => Some(*picked),
            _ => None,
        };
        phase.rows = match phase.op {
            "MUL_MAT_ID" => {
                experts = picked.or(experts);
                None
            }
            "SWIGLU" | "SWIGLU_OAI" | "SWIGLU_CLAMP" | "MUL" | "ADD_ID" if experts.is_some() => experts,
            // The sum over experts is one row, and ends what is theirs.
            "ADD" => {
                experts = None;
                Some(1)
            }
            "SWIGLU" | "SWIGLU_OAI" | "SWIGLU_CLAMP" | "MUL" | "SOFT_MAX" | "ARGSORT" | "TOP_K" | "DIV" | "SIGMOID"
            | "SOFTPLUS" => Some(1),
            _ if phase.is_norm() => {
                let heads = |weight: &Weight| phase.in_bytes / weight.matrix_bytes().max(1);
                Some(phase.weight.as_ref().map_or(1, heads).max(1))
            }
            _ => None,
        };
    }
}

impl Token {
    /// A token of `model` in `quantization`, as `engine` computes it.
    ///
    /// # Errors
    /// A usage error for an engine whose phases are not known. Otherwise only when the catalogue is broken.
    pub fn new(model: &'static Model, quantization: &'static Quantization, engine: Engine) -> Result<Token> {
        if engine != Engine::LlamaCpp {
            return Err(Error::usage(
                format!("replay {} as {}", model.name, engine.name()),
                format!("only its number of barriers is known ({} a token)", model.barriers_per_token(engine)),
                "name the engine llama.cpp",
            ));
        }
        let graph = &model.graph;
        let mut builder = Builder { model, quantization, phases: Vec::new(), streamed: BTreeSet::new() };
        builder.add(None, &graph.before, &model.tensors)?;
        for layer in 0..model.layers {
            let kind = graph.layer_kinds.iter().find(|kind| kind.layers.contains(&layer));
            builder.add(Some(layer), kind.map_or(&[], |kind| &kind.phases), model.layer(layer))?;
            if layer + 1 == model.layers {
                // In the graph they stand after the attention; nothing that is measured depends on where.
                builder.add(Some(layer), &graph.last_layer_extra, &[])?;
            }
        }
        builder.add(None, &graph.after, &model.tensors)?;
        let mut phases = builder.phases;
        mark_rows(&mut phases);
        Ok(Token { model: &model.name, quantization: &quantization.name, engine, phases })
    }

    /// Weight bytes read.
    pub fn bytes(&self) -> u64 {
        self.phases.iter().filter_map(|phase| phase.weight.as_ref()).map(Weight::read_bytes).sum()
    }

    /// How many times all threads meet.
    pub fn barriers(&self) -> u64 {
        self.phases.iter().map(|phase| u64::from(phase.barriers)).sum()
    }
}

struct Builder {
    model: &'static Model,
    quantization: &'static Quantization,
    phases: Vec<Phase>,
    streamed: BTreeSet<(Option<u32>, &'static str)>,
}

impl Builder {
    fn add(&mut self, layer: Option<u32>, nodes: &'static [Node], tensors: &'static [Tensor]) -> Result<()> {
        for node in nodes {
            let tensor = node.weight.as_deref().map(|name| self.tensor(layer, name, tensors)).transpose()?;
            let weight = match tensor {
                Some(tensor) if self.streamed.insert((layer, &tensor.name)) => Some(self.weight(tensor)?),
                _ => None,
            };
            let bytes = |kib: Option<u64>| match kib {
                None => 0,
                Some(0) => UNDER_A_KIB,
                Some(kib) => kib << 10,
            };
            // The listed graphs ran with a reduced vocabulary.
            let is_head = layer.is_none() && node.weight.as_deref() == Some("output");
            let out_bytes = if is_head { self.model.vocabulary * ACTIVATION_BYTES } else { bytes(node.out_kib) };
            let mut phase = Phase {
                op: &node.op,
                layer,
                weight,
                barriers: node.barriers,
                single_thread: node.single_thread,
                rows: None,
                in_bytes: bytes(node.in_kib),
                out_bytes,
                copy_bytes: 0,
            };
            let block = tensor.and_then(|tensor| tensor.block_type(self.quantization));
            if let (true, Some(block)) = (phase.is_matmul(), block) {
                phase.copy_bytes = block.multiplicand_bytes(phase.in_bytes / ACTIVATION_BYTES);
            }
            self.phases.push(phase);
        }
        Ok(())
    }

    fn tensor(&self, layer: Option<u32>, name: &str, tensors: &'static [Tensor]) -> Result<&'static Tensor> {
        tensors.iter().find(|tensor| tensor.name == name).ok_or_else(|| {
            let place = layer.map_or("outside the layers".to_owned(), |layer| format!("in layer {layer}"));
            self.broken(format!("lacks the tensor {name} {place}"))
        })
    }

    fn weight(&self, tensor: &Tensor) -> Result<Weight> {
        tensor
            .weight(self.quantization)
            .ok_or_else(|| self.broken(format!("has no size for the tensor {}", tensor.name)))
    }

    fn broken(&self, how: String) -> Error {
        Error::refused(
            format!("lay out a token of {} {}", self.model.name, self.quantization.name),
            format!("the catalogue {how}"),
            "report this as a bug",
        )
    }
}
