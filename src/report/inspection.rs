//! `membar inspect`: what a model file comes to.

use super::{Document, Table};
use crate::units::Bytes;
use crate::workload::gguf::Inspection;

/// A model file's numbers.
pub fn inspection(inspection: &Inspection) -> Document {
    let mut document = Document::default();
    document.heading(match &inspection.name {
        Some(name) => format!("{}: {name}", inspection.file),
        None => inspection.file.clone(),
    });
    let mut facts = vec![format!("architecture {}", inspection.architecture), format!("{} layers", inspection.layers)];
    if let (Some(of), Some(picked)) = (inspection.experts, inspection.experts_used) {
        facts.push(format!("a token uses {picked} of {of} experts"));
    }
    if inspection.vocabulary > 0 {
        facts.push(format!("vocabulary of {}", inspection.vocabulary));
    }
    let source = match (inspection.gguf_version, inspection.files) {
        (None, _) => "described by its dimensions".to_owned(),
        (Some(version), 1) => format!("1 file, GGUF version {version}"),
        (Some(version), files) => format!("{files} files, GGUF version {version}"),
    };
    document.paragraph(format!(
        "{}; {:.3} billion weights in {} ({source}).",
        facts.join(", "),
        inspection.parameters as f64 / 1e9,
        Bytes(inspection.tensor_bytes)
    ));
    let share = |part: u64, whole: u64| format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64);

    document.heading("Types");
    let mut table = Table::new(["type", "tensors", "in the file", "of it", "read a token"]);
    for row in &inspection.types {
        table.row(vec![
            row.name.clone(),
            row.tensors.to_string(),
            Bytes(row.bytes).to_string(),
            share(row.bytes, inspection.tensor_bytes),
            Bytes(row.read_bytes_per_token).to_string(),
        ]);
    }
    document.table(table);

    document.heading("Bytes that one token reads");
    let read = &inspection.read_bytes_per_token;
    let mut table = Table::new(["part", "bytes", "of it", "exactly"]);
    for (part, bytes) in
        [("always", read.always), ("experts picked", read.routed), ("head", read.head), ("all", read.total)]
    {
        table.row(vec![part.to_owned(), Bytes(bytes).to_string(), share(bytes, read.total), bytes.to_string()]);
    }
    document.table(table);

    document.heading("Barriers a token");
    let mut table = Table::new(["engine", "barriers"]);
    for (engine, barriers) in &inspection.barriers_per_token {
        let barriers = barriers.map_or("not known".to_owned(), |barriers| barriers.to_string());
        table.row(vec![(*engine).to_owned(), barriers]);
    }
    document.table(table);

    if let Some(ceiling) = &inspection.ceiling {
        document.heading("Ceiling");
        document.paragraph(format!(
            "{:.1} tokens/s at {}: counted bytes over bandwidth. Waiting, arithmetic and the KV cache take more.",
            ceiling.tokens_per_s, ceiling.bandwidth
        ));
    }
    for remark in &inspection.remarks {
        document.paragraph(format!("Note: {remark}."));
    }
    document
}
