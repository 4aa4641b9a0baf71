//! Model files: what a file of llama.cpp's format GGUF says of a token, without its weights.
//!
//! [`Header`] reads one file, [`ModelFile`] puts the parts of a model together and says what one token reads of each
//! tensor, by the tensors' names. [`ModelFile::token`] lays the token out as [`decode`](super::decode) does those of the
//! catalogue, [`Inspection`] is what `membar inspect` prints.

mod graph;
mod header;
mod inspection;
mod storage;

use super::decode::{Phase, Token, mark_rows};
use super::{Engine, Reading, Weight};
use crate::error::{Error, Result};
use header::{AGAIN, unusable};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

pub use header::{Header, TensorInfo, Value};
pub use inspection::{Ceiling, Inspection, PartBytes, TypeShare};
pub use storage::{Row, Storage};

/// Tables of which a token reads one row.
const TABLES: [&str; 7] = [
    "token_embd",
    "token_types",
    "position_embd",
    "per_layer_token_embd",
    "ffn_gate_tid2eid",
    "attn_compressor_ape",
    "indexer_compressor_ape",
];
/// 281 TB, more than any model has: keeps sums of sizes within 64 bits.
pub(super) const MOST_BYTES: u64 = 1 << 48;

/// A model as its files have it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// Name of its first file, without the directory.
    pub file: String,
    /// What it calls itself.
    pub title: Option<String>,
    /// Its architecture's name.
    pub architecture: String,
    /// The version of the format; `None` where the model is only described.
    pub version: Option<u32>,
    /// Files that it is split into.
    pub shards: u32,
    /// Layers that make a token; those that only guess at the ones after it are not counted.
    pub layers: u32,
    /// Size of the vocabulary: rows of the embedding.
    pub vocabulary: u64,
    /// Experts in each layer that has any, and how many of them a token uses.
    pub experts: Option<(u64, u64)>,
    /// Its tensors, those outside the layers first, then by layer.
    pub tensors: Vec<FileTensor>,
    /// What a reader of these numbers should know.
    pub remarks: Vec<String>,
    values: BTreeMap<String, Value>,
}

/// A tensor of a model, or the matrices of all experts where each has a tensor of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct FileTensor {
    /// Its layer.
    pub layer: Option<u32>,
    /// Its name as in the catalogue, its rows, and what a token reads of them.
    pub weight: Weight,
    /// Weights of a row.
    pub columns: u64,
    /// Inputs that its product takes at once: matrices of one tensor that are not experts (one a head).
    pub matrices: u64,
    /// Its type.
    pub storage: Storage,
    /// What it is counted as.
    pub part: Part,
    /// How many tensors of the file it stands for.
    pub count: u64,
}

/// Parts of the bytes that a token reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// By every token, whatever it is.
    Always,
    /// The experts that the router picks.
    Routed,
    /// The output head.
    Head,
    /// By no token of plain generation.
    Unread,
}

impl FileTensor {
    /// Weights of all its matrices.
    pub fn parameters(&self) -> u64 {
        let experts = match self.weight.reading {
            Reading::Experts { of, .. } => of,
            Reading::All | Reading::OneRow => 1,
        };
        experts * self.weight.rows * self.columns
    }

    /// Bytes that one token reads.
    pub fn read_bytes(&self) -> u64 {
        if self.part == Part::Unread { 0 } else { self.weight.read_bytes() }
    }
}

/// Opens the model that lies in the file, and in its other files where it is split.
///
/// # Errors
/// A usage error for what is not there, or not a whole model in GGUF.
pub fn open(path: &Path) -> Result<ModelFile> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    ModelFile::read(&name, |name| {
        let path = path.with_file_name(name);
        let file = File::open(&path)?;
        // Reading a pipe or a device would wait, or never end.
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no ordinary file"));
        }
        Ok(BufReader::new(file))
    })
}

impl ModelFile {
    /// Reads the model that `name` is a file of. `open` opens the files of its directory.
    ///
    /// # Errors
    /// As [`open`].
    pub fn read<R: Read + Seek>(name: &str, mut open: impl FnMut(&str) -> std::io::Result<R>) -> Result<ModelFile> {
        let reader = open(name).map_err(|error| unusable(name, error, "name a GGUF file"))?;
        let first = Header::read(reader, name)?;
        let shards = match first.values.get("split.count") {
            Some(Value::Number(count @ 2..=0xffff)) => *count,
            _ => return ModelFile::new(name, first, Vec::new()),
        };
        let Some(stem) = stem(name, shards) else {
            let reason =
                format!("it is one of {shards} files of a model, and is not called …-00001-of-{shards:05}.gguf");
            return Err(unusable(name, reason, "give all of them the names that they were made with"));
        };
        let mut headers = Vec::new();
        for number in 1..=shards {
            let shard = format!("{stem}-{number:05}-of-{shards:05}.gguf");
            let missing = |error| unusable(name, format!("its part {shard} is missing ({error})"), AGAIN);
            let part = Header::read(open(&shard).map_err(missing)?, &shard)?;
            let said = (part.values.get("split.no"), part.values.get("split.count"));
            if said != (Some(&Value::Number(number - 1)), Some(&Value::Number(shards))) {
                let reason = format!("{shard} does not say that it is part {number} of {shards}");
                return Err(unusable(name, reason, AGAIN));
            }
            headers.push(part);
        }
        let tensors: usize = headers.iter().map(|header| header.tensors.len()).sum();
        if let Some(Value::Number(stated)) = headers[0].values.get("split.tensors.count")
            && *stated != tensors as u64
        {
            return Err(unusable(name, format!("its parts have {tensors} tensors, not {stated}"), AGAIN));
        }
        let first = headers.remove(0);
        ModelFile::new(&format!("{stem}-00001-of-{shards:05}.gguf"), first, headers)
    }

    /// Puts the headers of a model's files together; the keys are the first one's.
    fn new(file: &str, first: Header, rest: Vec<Header>) -> Result<ModelFile> {
        let shards = 1 + rest.len() as u32;
        let Header { version, values, tensors: mut infos } = first;
        infos.extend(rest.into_iter().flat_map(|header| header.tensors));
        ModelFile::of_tensors(file, Some(version), shards, values, infos)
    }

    /// The model that has these keys and tensors, whether files hold them or somebody describes them.
    pub(super) fn of_tensors(
        file: &str,
        version: Option<u32>,
        shards: u32,
        values: BTreeMap<String, Value>,
        infos: Vec<TensorInfo>,
    ) -> Result<ModelFile> {
        let broken = |reason: String| unusable(file, reason, AGAIN);
        if infos.is_empty() {
            return Err(unusable(file, "it has no tensors", "name a file that holds a model, not only its vocabulary"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = infos.iter().find(|info| !names.insert(&info.name)) {
            return Err(broken(format!("it has the tensor '{}' twice", twice.name)));
        }
        if infos.iter().try_fold(0u64, |sum, info| sum.checked_add(info.bytes())).is_none_or(|sum| sum > MOST_BYTES) {
            return Err(broken("its tensors are larger than those of any model".into()));
        }
        let Some(Value::Text(architecture)) = values.get("general.architecture").cloned() else {
            return Err(unusable(file, "it does not name its architecture", "name a file that holds a language model"));
        };
        let title = match values.get("general.name") {
            Some(Value::Text(title)) => Some(title.clone()),
            _ => None,
        };
        let mut model = ModelFile {
            file: file.into(),
            title,
            architecture,
            version,
            shards,
            layers: 0,
            vocabulary: 0,
            experts: None,
            tensors: Vec::new(),
            remarks: Vec::new(),
            values,
        };
        let Some(blocks) = model.number("block_count") else {
            let reason = format!("it has no key {}.block_count", model.architecture);
            return Err(unusable(file, reason, "name a file that holds a language model"));
        };
        if blocks > infos.len() as u64 {
            return Err(broken(format!("it claims {blocks} layers and has {} tensors", infos.len())));
        }
        // Both below the number of tensors, which a header holds.
        model.layers = blocks.saturating_sub(model.number("nextn_predict_layers").unwrap_or(0)) as u32;
        model.experts = model.experts(&infos).map_err(broken)?;
        model.add_all(infos).map_err(broken)?;
        model.finish();
        Ok(model)
    }

    /// A whole number among the keys of the architecture.
    fn number(&self, key: &str) -> Option<u64> {
        match self.values.get(&format!("{}.{key}", self.architecture)) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// How many experts a token uses of how many, where there are any.
    fn experts(&self, infos: &[TensorInfo]) -> std::result::Result<Option<(u64, u64)>, String> {
        let Some(first) = infos.iter().find(|info| is_routed(&info.name)) else { return Ok(None) };
        let Some(of) = self.number("expert_count").filter(|of| *of > 0) else {
            return Err(format!("it has experts ('{}') and does not say how many", first.name));
        };
        match self.number("expert_used_count") {
            Some(picked) if (1..=of).contains(&picked) => Ok(Some((of, picked))),
            Some(picked) => Err(format!("it says that a token uses {picked} of {of} experts")),
            None => Err("it does not say how many experts a token uses".into()),
        }
    }

    fn add_all(&mut self, infos: Vec<TensorInfo>) -> std::result::Result<(), String> {
        let is_tied = !infos.iter().any(|info| info.name == "output.weight");
        let mut singles: BTreeMap<(Option<u32>, String), Vec<TensorInfo>> = BTreeMap::new();
        for info in infos {
            let (layer, name) = place(&info.name);
            match (single_expert(&name), self.experts) {
                (Some(tensor), Some(_)) => singles.entry((layer, tensor)).or_default().push(info),
                _ => self.add(layer, name, &info, is_tied)?,
            }
        }
        for ((layer, name), infos) in singles {
            self.add_singles(layer, name, &infos)?;
        }
        self.tensors.sort_by_key(|tensor| tensor.layer);
        Ok(())
    }

    fn add(
        &mut self,
        layer: Option<u32>,
        name: String,
        info: &TensorInfo,
        is_tied: bool,
    ) -> std::result::Result<(), String> {
        let (mut rows, mut matrices) = (info.rows(), info.shape.iter().skip(2).product());
        let is_read = layer.is_none_or(|layer| layer < self.layers);
        let (reading, part) = match self.experts {
            Some((of, picked)) if is_routed(&name) && info.shape.len() > 1 => {
                if info.shape.last() != Some(&of) {
                    return Err(format!(
                        "'{}' has the shape {:?}, which is not that of {of} experts",
                        info.name, info.shape
                    ));
                }
                rows /= of;
                matrices = 1;
                (Reading::Experts { of, picked }, Part::Routed)
            }
            _ if layer.is_none() && name == "token_embd" => {
                self.vocabulary = info.rows();
                if is_tied { (Reading::All, Part::Head) } else { (Reading::OneRow, Part::Always) }
            }
            _ if layer.is_none() && name == "output" => (Reading::All, Part::Head),
            _ if TABLES.contains(&name.as_str()) && info.shape.len() > 1 => (Reading::OneRow, Part::Always),
            _ => (Reading::All, Part::Always),
        };
        self.tensors.push(FileTensor {
            layer,
            weight: Weight { tensor: name, rows, row_bytes: info.row_bytes, reading, block: info.storage.block() },
            columns: info.shape[0],
            matrices,
            storage: info.storage,
            part: if is_read { part } else { Part::Unread },
            count: 1,
        });
        Ok(())
    }

    /// Adds the tensors of single experts, as files of 2023 and 2024 have them, as one.
    fn add_singles(
        &mut self,
        layer: Option<u32>,
        name: String,
        infos: &[TensorInfo],
    ) -> std::result::Result<(), String> {
        let (Some(first), Some((of, picked))) = (infos.first(), self.experts) else { return Ok(()) };
        let alike = |info: &TensorInfo| (&info.shape, info.storage) == (&first.shape, first.storage);
        if infos.len() as u64 != of || !infos.iter().all(alike) {
            return Err(format!(
                "it has {} tensors like '{}', not {of} of one shape and type",
                infos.len(),
                first.name
            ));
        }
        // Of an unknown type, each may have another padding.
        let row_bytes = infos.iter().map(|info| info.row_bytes).min().unwrap_or(0);
        let is_read = layer.is_none_or(|layer| layer < self.layers);
        self.tensors.push(FileTensor {
            layer,
            weight: Weight {
                tensor: name,
                rows: first.rows(),
                row_bytes,
                reading: Reading::Experts { of, picked },
                block: first.storage.block(),
            },
            columns: first.shape[0],
            matrices: 1,
            storage: first.storage,
            part: if is_read { Part::Routed } else { Part::Unread },
            count: of,
        });
        Ok(())
    }

    /// Remarks on what was found.
    fn finish(&mut self) {
        let mut remarks = Vec::new();
        let has = |name: &str| self.tensors.iter().any(|tensor| tensor.layer.is_none() && tensor.weight.tensor == name);
        match (has("output"), has("token_embd")) {
            (true, true) => {}
            (false, true) => remarks.push(
                "the head is the embedding, read in full (no output.weight): its bytes are counted once".to_owned(),
            ),
            (_, false) => {
                remarks.push("it has no embedding (token_embd.weight): this may be a part of a model".to_owned())
            }
        }
        let unread: u64 = self
            .tensors
            .iter()
            .filter(|tensor| tensor.part == Part::Unread)
            .map(|tensor| tensor.weight.total_bytes())
            .sum();
        if unread > 0 {
            remarks.push(format!(
                "{} lie in layers after the {} that make a token, and are not read",
                crate::units::Bytes(unread),
                self.layers
            ));
        }
        let unknown: BTreeSet<String> = self
            .tensors
            .iter()
            .filter(|tensor| matches!(tensor.storage, Storage::Unknown(_)))
            .map(|tensor| tensor.storage.to_string())
            .collect();
        if !unknown.is_empty() {
            let list: Vec<String> = unknown.into_iter().collect();
            remarks.push(format!(
                "of {} the block size is not known: these tensors are counted by the room that the file gives them",
                list.join(", ")
            ));
        }
        let filled: BTreeSet<u32> = self.tensors.iter().filter_map(|tensor| tensor.layer).collect();
        if let Some(first) = (0..self.layers).find(|layer| !filled.contains(layer)) {
            remarks.push(format!("layer {first} has no tensors: this may be a part of a model"));
        }
        if graph::known(self).is_none() {
            remarks.push(format!(
                "no graph is known for architecture '{}' with these tensors: its bytes follow from names (k of E experts, one \
                 row of the embedding, all else in full), barriers are not told",
                self.architecture
            ));
        }
        self.remarks = remarks;
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.weight.total_bytes()).sum()
    }

    /// Bytes that one token reads.
    pub fn read_bytes_per_token(&self) -> u64 {
        self.tensors.iter().map(FileTensor::read_bytes).sum()
    }

    /// Whether the graph that makes a token of this file is known.
    pub fn has_graph(&self) -> bool {
        graph::known(self).is_some()
    }

    /// How many times all threads meet for one token; `None` where the graph is not known. Of ik_llama.cpp only what was
    /// counted for models of the catalogue is known, and what follows for the same layers, fewer or more of them.
    pub fn barriers_per_token(&self, engine: Engine) -> Option<u64> {
        match engine {
            Engine::LlamaCpp => Some(graph::known(self)?.iter().map(|phase: &Phase| u64::from(phase.barriers)).sum()),
            Engine::IkLlamaCpp => graph::counted(self, engine),
        }
    }

    /// The type that most bytes have: stands for the quantisation, which no key names reliably.
    pub fn quantization(&self) -> String {
        let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
        for tensor in &self.tensors {
            *bytes.entry(tensor.storage.to_string()).or_default() += tensor.weight.total_bytes();
        }
        bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name).unwrap_or_default()
    }

    /// A token of this file. Where the graph is not known ([`has_graph`](ModelFile::has_graph)) there is one phase for
    /// each tensor, with the barriers that such an operation has in llama.cpp. The names that it holds are kept until the
    /// process ends, as the catalogue's are.
    ///
    /// # Errors
    /// A usage error for an engine whose phases are not known, and for models too large to be replayed.
    pub fn token(&self, engine: Engine) -> Result<Token> {
        if engine != Engine::LlamaCpp {
            return Err(Error::usage(
                format!("replay {} as {}", self.file, engine.name()),
                "only its number of barriers is known",
                "name the engine llama.cpp",
            ));
        }
        // A replay numbers experts with 16 bits, and 64-byte lines of what one phase reads with 32.
        let is_large = |tensor: &FileTensor| match tensor.weight.reading {
            Reading::Experts { of, .. } => of > u64::from(u16::MAX) || tensor.read_bytes() >> 38 > 0,
            Reading::All | Reading::OneRow => tensor.read_bytes() >> 38 > 0,
        };
        if let Some(large) = self.tensors.iter().find(|tensor| is_large(tensor)) {
            return Err(Error::usage(
                format!("replay {}", self.file),
                format!("its tensor {} is too large", large.weight.tensor),
                "take a smaller model; `membar inspect` prints what this one reads",
            ));
        }
        let mut phases = graph::known(self).unwrap_or_else(|| graph::by_tensor(self));
        mark_rows(&mut phases);
        Ok(Token { model: self.file.clone().leak(), quantization: self.quantization().leak(), engine, phases })
    }
}

/// What comes before `-00002-of-00003.gguf` in the name of one of so many shards.
fn stem(name: &str, shards: u64) -> Option<&str> {
    let (stem, number) = name.strip_suffix(&format!("-of-{shards:05}.gguf"))?.rsplit_once('-')?;
    (number.len() == 5 && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(stem)
}

/// The layer of a tensor, and its name there without `.weight`. The one bias that every file has a router's choice by is
/// called by its bare name in the catalogue.
fn place(name: &str) -> (Option<u32>, String) {
    let bare = |name: &str| match name.strip_suffix(".weight").unwrap_or(name) {
        "exp_probs_b.bias" => "exp_probs_b".to_owned(),
        name => name.to_owned(),
    };
    let in_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    match in_layer.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))) {
        Some((layer, rest)) => (Some(layer), bare(rest)),
        None => (None, bare(name)),
    }
}

/// Whether experts are in it, merged or single.
fn is_routed(name: &str) -> bool {
    let (_, name) = place(name);
    name.split('.').next().is_some_and(|base| base.ends_with("_exps")) || single_expert(&name).is_some()
}

/// What a merged tensor would be called that holds `ffn_gate.3`, the matrix of one expert.
fn single_expert(name: &str) -> Option<String> {
    let (base, number) = name.split_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    (is_number && matches!(base, "ffn_gate" | "ffn_up" | "ffn_down")).then(|| format!("{base}_exps"))
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
