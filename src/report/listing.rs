//! `--list`: what there is, what it needs, and whether it can be used here.

use super::{Document, Table};
use crate::barrier::Wait;
use crate::kernel::Kernel;
use crate::kernel::dot::Dot;
use crate::machine::{IsaSet, OpenMp};
use crate::plan::Subject;
use crate::plan::latency::Protocol;
use crate::units::Bytes;
use crate::workload::{self, Engine};
use std::collections::BTreeMap;

/// The table of streaming kernels, and that of dot kernels.
pub fn kernels(isa: &IsaSet) -> Document {
    let mut document = Document::default();
    document.heading("Kernels");
    let mut table =
        Table::new(["name", "operation", "stores", "needs", "bytes a move", "bytes a turn", "fence", "here"]);
    let bytes = |bytes: Option<u32>| bytes.map_or("its choice".to_owned(), |bytes| bytes.to_string());
    for row in Kernel::table() {
        table.row(vec![
            row.name.to_owned(),
            row.operation.name().to_owned(),
            match row.store {
                Some(store) => store.name().to_owned(),
                None if row.operation.arrays_written() > 0 => "its choice".to_owned(),
                None => "none".to_owned(),
            },
            row.isa.name().to_owned(),
            bytes(row.vector_bytes),
            bytes(row.step_bytes),
            row.fence.unwrap_or("none").to_owned(),
            here(Kernel::new(row, isa)),
        ]);
    }
    document.table(table);
    document.heading("Dot kernels: rows of quantised weights times an activation vector");
    let mut table = Table::new(["name", "weights", "activations", "flavour", "needs", "bytes a vector", "here"]);
    for row in Dot::table() {
        let extensions = row.extensions.iter().map(|extension| extension.name());
        table.row(vec![
            row.name.to_owned(),
            row.weights.name().to_owned(),
            row.weights.activation().name().to_owned(),
            row.flavour.name().to_owned(),
            std::iter::once(row.isa.name()).chain(extensions).collect::<Vec<_>>().join(" "),
            bytes(row.vector_bytes),
            here(Dot::new(row, isa)),
        ]);
    }
    document.table(table);
    document
}

/// Whether a kernel can be run, or why not.
fn here<K>(kernel: Result<K, String>) -> String {
    kernel.map_or_else(|reason| format!("not run: {reason}"), |_| "usable".to_owned())
}

/// The barrier table, the OpenMP runtimes, of which `installed` holds those that this system has, and how threads can wait.
pub fn barriers(installed: &BTreeMap<String, String>) -> Document {
    let mut document = Document::default();
    document.heading("Barriers");
    let mut table = Table::new(["name", "what it is", "waits by", "source", "here"]);
    for subject in Subject::all() {
        let Some(row) = subject.row() else { continue };
        let waits: Vec<String> = row.waits.iter().map(Wait::to_string).collect();
        let missing = match subject {
            Subject::OpenMp(runtime) if !installed.contains_key(row.name) => Some(OpenMp::missing(runtime)),
            _ => None,
        };
        table.row(vec![
            row.name.to_owned(),
            row.summary.to_owned(),
            waits.join(", "),
            row.source.to_owned(),
            missing.map_or("usable".to_owned(), |reason| format!("not run: {reason}")),
        ]);
    }
    document.table(table);
    document.heading("Ways of waiting");
    let mut table = Table::new(["name", "what it is", "here"]);
    for wait in Wait::ALL {
        let here = wait.unusable().map_or("usable".to_owned(), |reason| format!("not run: {reason}"));
        table.row(vec![wait.form(), wait.summary().to_owned(), here]);
    }
    document.table(table);
    document
}

/// The latency protocols.
pub fn protocols() -> Document {
    let mut document = Document::default();
    document.heading("Protocols");
    let mut table = Table::new(["name", "a value is", "line", "needs", "what it is"]);
    for protocol in Protocol::ALL {
        table.row(vec![
            protocol.name().to_owned(),
            protocol.path().replace('_', " "),
            protocol.line_state().to_owned(),
            protocol.needs().to_owned(),
            protocol.summary().to_owned(),
        ]);
    }
    document.table(table);
    document
}

/// The model catalogue.
pub fn models(listing: &workload::Listing) -> Document {
    let mut document = Document::default();
    document.heading("Models");
    let mut table = Table::new(["model", "quantization", "file", "read a token"]);
    let engines = Engine::ALL.map(Engine::name);
    for engine in engines {
        table.column(format!("barriers in {engine}"));
    }
    for model in &listing.models {
        for quantization in &model.quantizations {
            let mut row = vec![
                model.name.to_owned(),
                quantization.name.to_owned(),
                Bytes(quantization.file_bytes).to_string(),
                Bytes(quantization.read_bytes_per_token).to_string(),
            ];
            let barriers = |engine| model.barriers_per_token.get(engine).map_or("–".into(), ToString::to_string);
            row.extend(engines.map(barriers));
            table.row(row);
        }
    }
    document.table(table);
    document
}
