//! One row a step, for spreadsheets.

use crate::error::{Error, Result};
use crate::record::{Line, Record};
use crate::stats;
use crate::units::NodeId;
use serde::Serialize;

#[derive(Serialize)]
struct Row<'a> {
    kind: &'a str,
    name: String,
    detail: String,
    threads: u32,
    cpus: String,
    samples: usize,
    median_ns: Option<f64>,
    p5_ns: Option<f64>,
    p95_ns: Option<f64>,
    best_bytes_per_s: Option<f64>,
    median_bytes_per_s: Option<f64>,
    caveats: String,
}

/// The steps of a record as CSV with a header line. Times are those of one unit: a pass, a one-way trip, an episode, a
/// token.
///
/// # Errors
/// Never for a record that was read; the writer's errors are passed on.
pub fn csv(record: &Record) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |reason: String| Error::refused("write the record as CSV", reason, "take --format jsonl");
    for line in &record.lines {
        let Some(step) = line.step() else { continue };
        let (kind, name, detail) = names(line);
        let (best, median) = match line {
            Line::Stream(step) => (step.summary.best_bytes_per_s, step.summary.median_bytes_per_s),
            Line::Peer(step) => (step.summary.best_bytes_per_s, None),
            Line::Reference(step) => (None, step.summary.bytes_per_s),
            _ => (None, None),
        };
        let times = stats::unit_times(step);
        let cpus: Vec<String> = step.cpus.iter().map(ToString::to_string).collect();
        let caveats: Vec<String> = step.caveats.iter().map(ToString::to_string).collect();
        let row = Row {
            kind,
            name,
            detail,
            threads: step.threads,
            cpus: cpus.join(" "),
            samples: times.len(),
            median_ns: stats::median(&times),
            p5_ns: stats::quantile(&times, 0.05),
            p95_ns: stats::quantile(&times, 0.95),
            best_bytes_per_s: best.map(|rate| rate.0),
            median_bytes_per_s: median.map(|rate| rate.0),
            caveats: caveats.join("; "),
        };
        writer.serialize(row).map_err(|error| failed(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

fn names(line: &Line) -> (&'static str, String, String) {
    match line {
        Line::Run(_) => ("run", String::new(), String::new()),
        Line::End(_) => ("end", String::new(), String::new()),
        Line::Stream(step) => ("stream", step.kernel.clone(), step.scope.clone()),
        Line::CoreLatency(step) => {
            let home = step.home_node.map(|node| format!(", home {node}")).unwrap_or_default();
            ("core_latency", step.protocol.clone(), format!("{}{home}", step.reported_class))
        }
        Line::MemoryLatency(step) => {
            let node = |node: Option<NodeId>| node.map_or("-".to_owned(), |node| node.to_string());
            let (from, to) = (node(step.cpu_node), node(step.memory_node));
            let what = format!("{} {} {}", step.scope, step.footprint_bytes.0, step.page_kind);
            ("memory_latency", what, format!("node {from} to node {to}, pages of {}", step.page_bytes.0))
        }
        Line::Sibling(step) => {
            let slowdown = step.summary.slowdown.map_or(String::new(), |slowdown| format!(", slowdown {slowdown:.3}"));
            ("sibling", step.chosen.clone(), format!("{}{slowdown}", step.reported_class))
        }
        Line::PageLatency(step) => {
            let what = format!("{} {}", step.footprint_bytes.0, step.page_kind);
            ("page_latency", what, format!("{} pages", step.pages))
        }
        Line::LoadedLatency(step) => {
            let rate = step.summary.background_bytes_per_s;
            let rate = rate.map_or(String::new(), |rate| format!("background {rate:.0} bytes/s"));
            ("loaded_latency", step.scope.clone(), rate)
        }
        Line::Atomic(step) => {
            let fairness = step.summary.fairness.map_or(String::new(), |share| format!("fairness {share:.3}"));
            ("atomic", step.operation.clone(), fairness)
        }
        Line::Detour(step) => {
            let summary = &step.summary;
            let share = summary.share.map_or(String::new(), |share| format!("share {share:.6}"));
            let longest = summary.longest_ns.map_or(String::new(), |ns| format!(", longest {ns} ns"));
            ("detour", format!("above {} ns", step.threshold_ns), format!("{} gaps, {share}{longest}", step.count))
        }
        Line::Barrier(step) => {
            let work = [
                (step.late_ns, "ns late"),
                (step.work_ns, "ns of work"),
                (step.work_bytes.0, "bytes read"),
                (step.exchange_bytes.0, "bytes exchanged"),
            ];
            let work = work.iter().filter(|(amount, _)| *amount > 0).map(|(amount, what)| format!(", {amount} {what}"));
            let detail = format!("{} {}{}", step.wait, step.spread, work.collect::<String>());
            ("barrier", step.algorithm.clone(), detail)
        }
        Line::Dispatch(step) => {
            let detail = format!("{}, poll {}, idle {} ns", step.spread, step.poll, step.idle_ns);
            ("dispatch", "fork and join".to_owned(), detail)
        }
        Line::Decode(step) => (
            "decode",
            format!("{} {}", step.model, step.quantization),
            format!("{} round {} {}", step.arm.name(), step.round, step.barrier),
        ),
        Line::Engine(step) => (
            "engine",
            format!("{} {}", step.model, step.quantization),
            format!("{} round {}", step.program, step.round),
        ),
        Line::Reference(step) => {
            let by = step.kernel.as_ref().or(step.protocol.as_ref());
            let at = format!("{} at {:.1} s", by.map_or("", String::as_str), step.at_ns as f64 / 1e9);
            ("reference", step.what.name().to_owned(), at)
        }
        Line::Overhead(step) => ("overhead", step.what.clone(), String::new()),
        Line::Peer(step) => ("peer", step.function.clone(), format!("{} round {}", step.program, step.round)),
    }
}
