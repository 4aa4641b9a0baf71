//! The graph that llama.cpp makes of a file's tensors for one token.
//!
//! Two ways. Architectures of the plain kind (attention with or without low-rank projections, then one feed-forward net
//! or experts) are built here node by node as llama.cpp's builders do (`src/models/*.cpp`, `src/llama-graph.cpp`,
//! b11434); tests hold the result against the catalogue's graphs, which were read off running programs. DeepSeek-V4 takes
//! the catalogue's own graph, if its layers have the catalogue's tensors. A file with a tensor that no node takes has no
//! known graph.

use super::{FileTensor, ModelFile, Part, Value};
use crate::workload::catalogue::{Node, models};
use crate::workload::decode::{ACTIVATION_BYTES, Phase, UNDER_A_KIB};
use crate::workload::{Engine, Model, Reading};
use std::collections::{BTreeMap, BTreeSet};

/// Barriers of a token in ik_llama.cpp outside the layers: what is left of the counted totals of all models with equal
/// layers (18, 20, 24 and 29 a layer).
const IK_FIXED: u64 = 5;

/// Most layers, and most experts of one: llama.cpp has room for 512 of each.
const MOST_LAYERS: u32 = 1024;
const MOST_EXPERTS: u64 = 1024;
/// Most values that a node reads or writes: the vocabularies of today are a thousandth of it.
const MOST_VALUES: u64 = 1 << 28;

/// Names of a layer's tensors, or of those outside the layers.
type Names<'a> = BTreeSet<&'a str>;

/// The phases of a token; `None` when the graph is not known.
pub(super) fn known(file: &ModelFile) -> Option<Vec<Phase>> {
    if file.layers > MOST_LAYERS || file.experts.is_some_and(|(of, _)| of > MOST_EXPERTS) {
        return None;
    }
    let mut builder = Builder::new(file);
    match file.architecture.as_str() {
        "llama" | "qwen2" | "qwen3" | "qwen3moe" | "gpt-oss" | "deepseek2" => builder.plain()?,
        "deepseek4" => builder.of_catalogue()?,
        _ => return None,
    }
    builder.unused.is_empty().then_some(builder.phases)
}

/// One phase for each tensor, where the graph is not known: a product where there are several rows, else an operation on a
/// vector. A head is a table that is read in full.
pub(super) fn by_tensor(file: &ModelFile) -> Vec<Phase> {
    let mut builder = Builder::new(file);
    let head_last = |tensor: &&FileTensor| tensor.layer.is_none() && tensor.part == Part::Head;
    let mut tensors: Vec<&FileTensor> = file.tensors.iter().filter(|tensor| tensor.part != Part::Unread).collect();
    tensors.sort_by_key(head_last);
    for tensor in tensors {
        builder.layer = tensor.layer;
        let rows = tensor.weight.rows;
        match tensor.weight.reading {
            Reading::OneRow => builder.push("GET_ROWS", Some(tensor), 1, tensor.columns, true),
            Reading::Experts { picked, .. } if rows > 1 => {
                builder.push("MUL_MAT_ID", Some(tensor), tensor.columns, rows * picked, false);
            }
            Reading::Experts { picked, .. } => {
                let values = tensor.columns * picked;
                builder.push("ADD_ID", Some(tensor), values, values, false);
            }
            Reading::All if rows > 1 => {
                builder.push("MUL_MAT", Some(tensor), tensor.columns * tensor.matrices, rows, false);
            }
            Reading::All => builder.push("MUL", Some(tensor), tensor.columns, tensor.columns, false),
        }
    }
    builder.phases
}

/// Barriers a token that were counted for a model of the catalogue with the same layers; for equal layers, as many for
/// each as there.
pub(super) fn counted(file: &ModelFile, engine: Engine) -> Option<u64> {
    let names = names(file);
    models().ok()?.iter().filter(|model| model.architecture == file.architecture).find_map(|model| {
        let is_like = |layer: u32| twin(model, names.get(&Some(layer))?);
        if !(0..file.layers).all(|layer| is_like(layer).is_some())
            || picked(model) != file.experts.map(|(_, picked)| picked)
        {
            return None;
        }
        let stated = model.barriers_per_token(engine);
        let has_groups = file.number("expert_group_count").unwrap_or(1) > 1;
        if model.layers == file.layers && (model.architecture != "deepseek2" || has_groups) {
            return Some(stated);
        }
        let in_layers = stated.checked_sub(IK_FIXED).filter(|_| model.graph.layer_kinds.len() == 1)?;
        let each = in_layers.is_multiple_of(u64::from(model.layers)).then(|| in_layers / u64::from(model.layers))?;
        Some(each * u64::from(file.layers) + IK_FIXED)
    })
}

fn names(file: &ModelFile) -> BTreeMap<Option<u32>, Names<'_>> {
    let mut names: BTreeMap<Option<u32>, Names<'_>> = BTreeMap::new();
    for tensor in file.tensors.iter().filter(|tensor| tensor.part != Part::Unread) {
        names.entry(tensor.layer).or_default().insert(&tensor.weight.tensor);
    }
    names
}

/// A layer of the model that has tensors of these names.
fn twin(model: &Model, names: &Names<'_>) -> Option<u32> {
    let is_twin = |tensors: &[super::super::Tensor]| {
        tensors.len() == names.len() && tensors.iter().all(|tensor| names.contains(tensor.name.as_str()))
    };
    model.layer_tensors.iter().find(|kind| is_twin(&kind.tensors))?.layers.first().copied()
}

/// Experts that a token of the model uses.
fn picked(model: &Model) -> Option<u64> {
    let mut tensors = model.layer_tensors.iter().flat_map(|kind| &kind.tensors);
    tensors.find_map(|tensor| match tensor.reading {
        Reading::Experts { picked, .. } => Some(picked),
        Reading::All | Reading::OneRow => None,
    })
}

struct Builder<'a> {
    file: &'a ModelFile,
    tensors: BTreeMap<(Option<u32>, &'a str), &'a FileTensor>,
    /// Those that no node has streamed so far.
    unused: BTreeSet<(Option<u32>, &'a str)>,
    phases: Vec<Phase>,
    layer: Option<u32>,
}

impl<'a> Builder<'a> {
    fn new(file: &'a ModelFile) -> Builder<'a> {
        let tensors: BTreeMap<_, _> = file
            .tensors
            .iter()
            .filter(|tensor| tensor.part != Part::Unread)
            .map(|tensor| ((tensor.layer, tensor.weight.tensor.as_str()), tensor))
            .collect();
        let unused = tensors.keys().copied().collect();
        Builder { file, tensors, unused, phases: Vec::new(), layer: None }
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(&(self.layer, name))
    }

    /// The tensor of that name in this layer; it counts as streamed.
    fn take(&mut self, name: &str) -> Option<&'a FileTensor> {
        let tensor = self.tensors.get(&(self.layer, name)).copied()?;
        if tensor.columns * tensor.matrices > MOST_VALUES || tensor.weight.rows > MOST_VALUES {
            return None;
        }
        self.unused.remove(&(tensor.layer, tensor.weight.tensor.as_str()));
        Some(tensor)
    }

    /// Adds a node that reads and writes so many 32-bit values.
    fn push(&mut self, op: &'static str, tensor: Option<&FileTensor>, reads: u64, writes: u64, single_thread: bool) {
        let meets_inside = matches!(op, "MUL_MAT" | "MUL_MAT_ID" | "FLASH_ATTN_EXT");
        let mut phase = Phase {
            op,
            layer: self.layer,
            weight: tensor.map(|tensor| tensor.weight.clone()),
            barriers: 1 + u32::from(meets_inside),
            single_thread,
            rows: None,
            in_bytes: reads * ACTIVATION_BYTES,
            out_bytes: writes * ACTIVATION_BYTES,
            copy_bytes: 0,
        };
        if let (true, Some(tensor)) = (phase.is_matmul(), tensor) {
            phase.copy_bytes = tensor.storage.multiplicand_bytes(reads);
        }
        self.phases.push(phase);
    }

    fn node(&mut self, op: &'static str, reads: u64, writes: u64) {
        self.push(op, None, reads, writes, false);
    }

    /// A node that thread 0 does alone.
    fn single(&mut self, op: &'static str, reads: u64, writes: u64) {
        self.push(op, None, reads, writes, true);
    }

    /// A norm by a tensor over so many values.
    fn norm(&mut self, name: &str, values: u64) -> Option<()> {
        let tensor = self.take(name)?;
        self.push("RMS_NORM+MUL", Some(tensor), values, values, false);
        Some(())
    }

    /// A matrix product, and a bias where the file has one. Returns the values written.
    fn product(&mut self, name: &str) -> Option<u64> {
        let tensor = self.take(name)?;
        let writes = tensor.weight.rows;
        self.push("MUL_MAT", Some(tensor), tensor.columns * tensor.matrices, writes, false);
        if let Some(bias) = self.take(&format!("{name}.bias")) {
            self.push("ADD", Some(bias), writes, writes, false);
        }
        Some(writes)
    }

    /// The same by the experts picked, each on an input of its own or all on the same.
    fn product_of_experts(&mut self, name: &str, own_inputs: bool) -> Option<u64> {
        let tensor = self.take(name)?;
        let (_, picked) = self.file.experts?;
        let reads = if own_inputs { tensor.columns * picked } else { tensor.columns };
        let writes = tensor.weight.rows * picked;
        self.push("MUL_MAT_ID", Some(tensor), reads, writes, false);
        if let Some(bias) = self.take(&format!("{name}.bias")) {
            self.push("ADD_ID", Some(bias), writes, writes, false);
        }
        Some(writes)
    }

    fn rope(&mut self, values: u64) {
        // Factors of its frequencies are one tensor for all layers; the first rotation brings it in.
        let factors = (None, "rope_freqs");
        let tensor = self.unused.remove(&factors).then(|| self.tensors.get(&factors).copied()).flatten();
        self.push("ROPE", tensor, values, values, false);
    }

    fn plain(&mut self) -> Option<()> {
        let is_oai = self.file.architecture == "gpt-oss";
        let embedding = self.take("token_embd")?;
        let values = embedding.columns;
        // The head of a tied model streams all of it, this row too.
        let row = (embedding.part != Part::Head).then_some(embedding);
        self.push("GET_ROWS", row, 1, values, true);
        for layer in 0..self.file.layers {
            self.layer = Some(layer);
            self.norm("attn_norm", values)?;
            if self.has("attn_kv_a_mqa") {
                self.latent_attention()?
            } else {
                self.attention(is_oai)?
            }
            self.node("ADD", 2 * values, values);
            let norm = if is_oai { "post_attention_norm" } else { "ffn_norm" };
            self.norm(norm, values)?;
            if self.has("ffn_gate_inp") {
                self.experts(is_oai, values)?;
            } else {
                self.feed_forward("ffn_gate", "ffn_up", "ffn_down")?;
            }
            self.node("ADD", 2 * values, values);
        }
        // They pick the row that an output is wanted of, here as in the catalogue at the end of the last layer.
        for _ in 0..if is_oai { 1 } else { 2 } {
            self.single("GET_ROWS", 0, 0);
        }
        self.layer = None;
        self.norm("output_norm", values)?;
        let head = if self.has("output") { "output" } else { "token_embd" };
        self.product(head)?;
        Some(())
    }

    fn attention(&mut self, is_oai: bool) -> Option<()> {
        let query = self.projection("attn_q", "attn_q_norm")?;
        self.rope(query);
        let value = if is_oai { None } else { Some(self.product("attn_v")?) };
        let key = self.projection("attn_k", "attn_k_norm")?;
        self.rope(key);
        let value = match value {
            Some(value) => value,
            None => self.product("attn_v")?,
        };
        self.single("SET_ROWS", key, 0);
        self.single("SET_ROWS", value, 0);
        let sinks = self.take("attn_sinks");
        self.push("FLASH_ATTN_EXT", sinks, query, query, false);
        self.product("attn_output")?;
        Some(())
    }

    /// A product, and a norm of its heads where the file has one.
    fn projection(&mut self, name: &str, norm: &str) -> Option<u64> {
        let values = self.product(name)?;
        if self.has(norm) {
            self.norm(norm, values)?;
        }
        Some(values)
    }

    /// Attention through low-rank projections (MLA), with the key's expansion moved to the query's side.
    fn latent_attention(&mut self) -> Option<()> {
        if self.has("attn_q_a") {
            let rank = self.product("attn_q_a")?;
            self.norm("attn_q_a_norm", rank)?;
            self.product("attn_q_b")?;
        } else {
            self.product("attn_q")?;
        }
        let latent_query = self.product("attn_k_b")?;
        let heads = self.tensors.get(&(self.layer, "attn_k_b"))?.matrices;
        let rank = latent_query / heads;
        let both = self.tensors.get(&(self.layer, "attn_kv_a_mqa"))?.weight.rows;
        let rotated = both.checked_sub(rank)?;
        self.rope(heads * rotated);
        self.node("CONCAT", heads * both, heads * both);
        self.product("attn_kv_a_mqa")?;
        self.norm("attn_kv_a_norm", rank)?;
        self.rope(rotated);
        self.node("CONCAT", both, both);
        self.single("SET_ROWS", both, 0);
        self.node("FLASH_ATTN_EXT", heads * both, latent_query);
        let value = self.product("attn_v_b")?;
        self.node("CONT", value, value);
        self.product("attn_output")?;
        Some(())
    }

    fn feed_forward(&mut self, gate: &str, up: &str, down: &str) -> Option<()> {
        let values = self.product(gate)? + self.product(up)?;
        self.node("SWIGLU", values, values / 2);
        self.product(down)?;
        Some(())
    }

    fn experts(&mut self, is_oai: bool, values: u64) -> Option<()> {
        let (of, picked) = self.file.experts?;
        self.product("ffn_gate_inp")?;
        // gpt-oss takes the softmax of the picked ones only. Other ways to weigh are not those of these architectures.
        match self.file.number("expert_gating_func") {
            _ if is_oai => {}
            None | Some(0 | 1) => self.node("SOFT_MAX", of, of),
            Some(2) => self.node("SIGMOID", of, of),
            Some(_) => return None,
        }
        if let Some(bias) = self.take("exp_probs_b") {
            self.push("ADD", Some(bias), of, of, false);
        }
        let groups = self.file.number("expert_group_count").unwrap_or(1);
        if groups > of {
            return None;
        }
        if groups > 1 {
            self.node("ARGSORT", of, of);
            self.single("GET_ROWS", of, 2 * groups);
            self.single("SUM_ROWS", 2 * groups, groups);
            self.node("ARGSORT", groups, groups);
            self.single("GET_ROWS", of, of);
            self.node("FILL", of, of);
            self.single("SET_ROWS", of, of);
        }
        self.node("ARGSORT", of, of);
        self.single("GET_ROWS", of, picked);
        if is_oai {
            self.node("SOFT_MAX", picked, picked);
        }
        let is_v2 = self.file.architecture == "deepseek2";
        if !is_oai && (!is_v2 || self.value("expert_weights_norm") == Some(&Value::Bool(true))) {
            self.single("SUM_ROWS", picked, 1);
            self.single("CLAMP", 1, 1);
            self.node("DIV", picked, picked);
        }
        if matches!(self.value("expert_weights_scale"), Some(Value::Float(scale)) if *scale != 0.0 && *scale != 1.0) {
            self.single("SCALE", picked, picked);
        }
        let both = if self.has("ffn_gate_up_exps") {
            self.product_of_experts("ffn_gate_up_exps", false)?
        } else {
            self.product_of_experts("ffn_gate_exps", false)? + self.product_of_experts("ffn_up_exps", false)?
        };
        self.node(if is_oai { "SWIGLU_OAI" } else { "SWIGLU" }, both, both / 2);
        let outputs = self.product_of_experts("ffn_down_exps", true)?;
        self.node("MUL", outputs, outputs);
        if picked == 1 {
            self.node("CONT", values, values);
        }
        for _ in 1..picked {
            self.node("ADD", 2 * values, values);
        }
        if self.has("ffn_gate_shexp") {
            self.feed_forward("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")?;
            self.node("ADD", 2 * values, values);
        }
        Some(())
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.file.values.get(&format!("{}.{key}", self.file.architecture))
    }

    /// The graph of the catalogue's model of this architecture, layer by layer where the same tensors are.
    fn of_catalogue(&mut self) -> Option<()> {
        let model = models().ok()?.iter().find(|model| model.architecture == self.file.architecture)?;
        // Its nodes after the layers are written out for four streams.
        if self.file.number("hyper_connection.count").is_some_and(|streams| streams != 4) {
            return None;
        }
        let names = names(self.file);
        let graph = &model.graph;
        self.nodes(model, &graph.before)?;
        for layer in 0..self.file.layers {
            self.layer = Some(layer);
            let twin = twin(model, names.get(&Some(layer))?)?;
            let kind = graph.layer_kinds.iter().find(|kind| kind.layers.contains(&twin))?;
            self.nodes(model, &kind.phases)?;
        }
        self.nodes(model, &graph.last_layer_extra)?;
        self.layer = None;
        self.nodes(model, &graph.after)
    }

    /// Nodes of the catalogue with this file's tensors. Activations scale with the embedding's length, and the sums over
    /// experts follow how many are picked.
    fn nodes(&mut self, model: &Model, nodes: &'static [Node]) -> Option<()> {
        let (_, now) = self.file.experts?;
        let then = picked(model)?;
        let values = self.tensors.get(&(None, "token_embd"))?.columns.min(MOST_VALUES);
        let values_then = *model.tensors.iter().find(|tensor| tensor.name == "token_embd")?.shape.first()?;
        let scaled = |kib: Option<u64>| match kib {
            None => 0,
            Some(0) => UNDER_A_KIB / ACTIVATION_BYTES,
            Some(kib) => (kib << 10) / ACTIVATION_BYTES * values / values_then,
        };
        let weighted = nodes.iter().position(|node| node.weight.as_deref() == Some("ffn_down_exps"));
        // The product and the weighting, then the sums.
        let sums = weighted.map(|position| position + 2);
        for (position, node) in nodes.iter().enumerate() {
            let is_sum = sums.is_some_and(|first| (first..first + then as usize - 1).contains(&position));
            let times = match is_sum {
                false => 1,
                true if Some(position) == sums => now.saturating_sub(1),
                true => 0,
            };
            let name = (self.layer, node.weight.as_deref().unwrap_or_default());
            let tensor = self.tensors.get(&name).copied();
            if node.weight.is_some() && tensor.is_none() {
                return None;
            }
            let first_use = self.unused.remove(&name);
            let is_head = tensor.is_some_and(|tensor| tensor.part == Part::Head);
            let writes = if is_head { self.file.vocabulary } else { scaled(node.out_kib) };
            for _ in 0..times {
                self.push(&node.op, tensor.filter(|_| first_use), scaled(node.in_kib), writes, node.single_thread);
            }
        }
        Some(())
    }
}
