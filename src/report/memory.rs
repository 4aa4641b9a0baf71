//! Memory latency: by node and page size, and the ladder of footprints beside the reported caches.

use super::{Document, Table};
use crate::attribute::ladder::{ladder, levels};
use crate::record::{Line, MemoryLatencyStep, Record};
use crate::units::{Bytes, NodeId};
use serde::Serialize;
use std::collections::BTreeMap;

/// A chase beyond the caches, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    cpu_node: Option<NodeId>,
    memory_node: Option<NodeId>,
    footprint_bytes: Bytes,
    page_bytes: Bytes,
    median_ns: Option<f64>,
}

/// A level that the ladder shows, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    from_bytes: Bytes,
    to_bytes: Bytes,
    below_bytes: Option<Bytes>,
    latency_ns: f64,
}

/// All chases over whole buffers.
pub fn chases(record: &Record) -> Vec<Memory> {
    let chases = record.lines.iter().filter_map(|line| match line {
        Line::MemoryLatency(step) if step.scope == "memory" => Some(Memory {
            cpu_node: step.cpu_node,
            memory_node: step.memory_node,
            footprint_bytes: step.footprint_bytes,
            page_bytes: step.page_bytes,
            median_ns: step.summary.median_ns,
        }),
        _ => None,
    });
    chases.collect()
}

/// The levels of the ladder.
pub fn measured_levels(record: &Record) -> Vec<Level> {
    let points: Vec<(Bytes, f64)> = ladder(record).into_iter().map(|(step, ns)| (step.footprint_bytes, ns)).collect();
    let levels = levels(&points).into_iter().map(|level| Level {
        from_bytes: level.from_bytes,
        to_bytes: level.to_bytes,
        below_bytes: level.below_bytes,
        latency_ns: level.latency_ns,
    });
    levels.collect()
}

/// Everything about memory latency that the record holds.
pub fn section(record: &Record, document: &mut Document) {
    latency(record, document);
    footprints(record, document);
}

fn nanoseconds(ns: f64) -> String {
    if ns < 10.0 { format!("{ns:.2}") } else { format!("{ns:.1}") }
}

fn node(node: Option<NodeId>) -> String {
    node.map_or("all".to_owned(), |node| node.to_string())
}

fn latency(record: &Record, document: &mut Document) {
    let steps = record.lines.iter().filter_map(|line| match line {
        Line::MemoryLatency(step) if step.scope == "memory" => Some(step),
        _ => None,
    });
    // By nodes and footprint: the step asked for in 4 KiB pages, and the one in huge ones.
    type Rows<'a> = BTreeMap<(Option<NodeId>, Option<NodeId>, Bytes), [Option<&'a MemoryLatencyStep>; 2]>;
    let mut rows = Rows::new();
    for step in steps {
        let row = rows.entry((step.cpu_node, step.memory_node, step.footprint_bytes)).or_default();
        row[usize::from(step.page_kind != "4k")] = Some(step);
    }
    if rows.is_empty() {
        return;
    }
    document.heading(
        "Memory latency: ns a load that waits for the one before, lines in random order, nothing else running",
    );
    let mut table = Table::new([
        "CPUs of node",
        "memory of node",
        "footprint",
        "small pages",
        "huge pages",
        "in huge",
        "translation",
    ]);
    for ((cpu_node, memory_node, footprint), pages) in rows {
        let mut cell = |step: Option<&MemoryLatencyStep>| {
            let Some((step, ns)) = step.and_then(|step| Some((step, step.summary.median_ns?))) else {
                return "–".to_owned();
            };
            format!("{}{}", nanoseconds(ns), table.mark(&step.step.caveats))
        };
        let (small, huge) = (cell(pages[0]), cell(pages[1]));
        let share = pages[1].and_then(|step| step.huge_page_share);
        let medians = pages.map(|step| step.and_then(|step| step.summary.median_ns));
        let translation = match medians {
            // Without huge pages both were measured in small ones.
            [Some(small), Some(huge)] if share.is_some_and(|share| share > 0.5) && small > 0.0 => {
                format!("{} ({:.0} %)", nanoseconds(small - huge), (small - huge) / small * 100.0)
            }
            _ => "–".to_owned(),
        };
        table.row(vec![
            node(cpu_node),
            node(memory_node),
            footprint.to_string(),
            small,
            huge,
            share.map_or("–".into(), |share| format!("{:.0} %", share * 100.0)),
            translation,
        ]);
    }
    document.table(table);
    document.paragraph(
        "translation: what small pages cost above huge ones, the share of the translation buffers (TLB) and page tables; \
         in huge: how much of the memory asked for in huge pages was granted in them.",
    );
}

fn footprints(record: &Record, document: &mut Document) {
    let steps = ladder(record);
    let Some((first, _)) = steps.first() else { return };
    let Some(cpu) = first.step.cpus.first() else { return };
    document.heading(format!("Footprints: ns a load on CPU {cpu}, from 4 KiB to memory"));
    let mut points: Vec<(Bytes, f64)> = steps.iter().map(|(step, ns)| (step.footprint_bytes, *ns)).collect();
    points.sort_by_key(|(bytes, _)| *bytes);
    let mut listed: Vec<String> = Vec::new();
    let mut last = 0;
    for (index, (bytes, ns)) in points.iter().enumerate() {
        // A line for a person: half an octave apart; the record and the CSV have all of them.
        if bytes.0 as f64 >= last as f64 * 1.4 || index + 1 == points.len() {
            listed.push(format!("{bytes} {}", nanoseconds(*ns)));
            last = bytes.0;
        }
    }
    document.paragraph(listed.join(", "));
    let levels = levels(&points);
    let measured: Vec<String> = levels
        .iter()
        .map(|level| match level.below_bytes {
            Some(below) => {
                format!("{} (less than {below}) at {} ns", level.to_bytes, nanoseconds(level.latency_ns))
            }
            None => format!("beyond, {} ns", nanoseconds(level.latency_ns)),
        })
        .collect();
    let reported = record.header.topology.caches_of(*cpu);
    let said: Vec<String> = reported.iter().map(|(level, bytes)| format!("L{level} {bytes}")).collect();
    let said = if said.is_empty() { "no caches".to_owned() } else { said.join(", ") };
    let measured = if measured.is_empty() { "no levels".to_owned() } else { measured.join("; ") };
    document.paragraph(format!("Measured: {measured}. Reported: {said}."));
    // A cache agrees with a level that ends within a factor of two of its size.
    let held: Vec<u64> =
        levels.iter().filter(|level| level.below_bytes.is_some()).map(|level| level.to_bytes.0).collect();
    for (level, bytes) in &reported {
        let near = |held: &u64| *held >= bytes.0 / 2 && *held <= bytes.0.saturating_mul(2);
        if !held.iter().any(near) && points.iter().any(|(footprint, _)| *footprint > *bytes) {
            document.paragraph(format!(
                "Note: no level ends near the reported L{level} of {bytes}: this CPU does not get all of it to itself, or the \
                 report is not true."
            ));
        }
    }
    for held in &held {
        let near = |bytes: &u64| *held >= bytes / 2 && *held <= bytes.saturating_mul(2);
        if !reported.is_empty() && !reported.iter().any(|(_, bytes)| near(&bytes.0)) {
            document.paragraph(format!(
                "Note: the level that ends at {} is no reported cache: where the host backs a guest with small pages, the reach of \
                 the translation buffers looks like one, and so does the part of a cache that neighbours leave.",
                Bytes(*held)
            ));
        }
    }
    if first.page_bytes.0 < (1 << 20) {
        document.paragraph("Note: in small pages, so misses of translations blur the levels.");
    }
}
