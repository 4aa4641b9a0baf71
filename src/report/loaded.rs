//! Loaded latency: what a load costs while others read.

use super::{Document, Table};
use crate::attribute::knee::{KNEE, knee};
use crate::record::{Line, LoadedLatencyStep, Record};
use serde::Serialize;

/// One point of a curve, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Loaded {
    scope: String,
    background_bytes_per_s: Option<f64>,
    median_ns: Option<f64>,
}

fn steps(record: &Record) -> Vec<&LoadedLatencyStep> {
    let steps = record.lines.iter().filter_map(|line| match line {
        Line::LoadedLatency(step) => Some(step),
        _ => None,
    });
    steps.collect()
}

/// All points.
pub fn summary(record: &Record) -> Vec<Loaded> {
    let one = |step: &LoadedLatencyStep| Loaded {
        scope: step.scope.clone(),
        background_bytes_per_s: step.summary.background_bytes_per_s,
        median_ns: step.summary.median_ns,
    };
    steps(record).into_iter().map(one).collect()
}

/// Every curve, and its knee.
pub fn section(record: &Record, document: &mut Document) {
    let steps = steps(record);
    let mut scopes: Vec<&str> = Vec::new();
    for step in &steps {
        if !scopes.contains(&step.scope.as_str()) {
            scopes.push(&step.scope);
        }
    }
    if scopes.is_empty() {
        return;
    }
    document.heading("Loaded latency: ns a load on one CPU while the others read, GB/s");
    for scope in scopes {
        let mut points: Vec<(f64, f64, &LoadedLatencyStep)> = steps
            .iter()
            .filter(|step| step.scope == scope)
            .filter_map(|step| Some((step.summary.background_bytes_per_s?, step.summary.median_ns?, *step)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut table = Table::new([scope, "read by the others", "ns"]);
        for (rate, ns, step) in &points {
            let mark = table.mark(&step.step.caveats);
            let pace = if step.pace > 0.0 { format!("pace {:.0} %", step.pace * 100.0) } else { "idle".to_owned() };
            table.row(vec![pace, format!("{:.1}", rate / 1e9), format!("{ns:.1}{mark}")]);
        }
        document.table(table);
        let curve: Vec<(f64, f64)> = points.iter().map(|(rate, ns, _)| (*rate, *ns)).collect();
        let Some((_, idle, first)) = points.iter().find(|(_, _, step)| step.pace <= 0.0) else { continue };
        let disturbed = super::disturbed(points.iter().flat_map(|(_, _, step)| &step.step.caveats));
        document.paragraph(match knee(*idle, &curve) {
            Some(rate) => format!(
                "Knee: from {:.1} GB/s on a load takes more than {KNEE} times what it takes idle{disturbed}.",
                rate / 1e9
            ),
            None => format!(
                "No knee: with the most that was read a load takes at most {KNEE} times what it takes idle{disturbed}."
            ),
        });
        document.paragraph(format!(
            "The chain has {} in pages as the system gives them, so a load may wait for translations as well: compare it with \
             small pages above.",
            first.chain_bytes
        ));
    }
}
