//! Contended atomics: numbers taken from one counter a second, by threads.

use super::{Document, Table};
use crate::record::{AtomicStep, Line, Record};
use crate::units::Threads;
use serde::Serialize;

/// One operation on one set of threads, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Atomic {
    operation: String,
    threads: u32,
    operations_per_s: Option<f64>,
    fairness: Option<f64>,
}

fn steps(record: &Record) -> impl Iterator<Item = &AtomicStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::Atomic(step) => Some(step),
        _ => None,
    })
}

/// All of them.
pub fn summary(record: &Record) -> Vec<Atomic> {
    let one = |step: &AtomicStep| Atomic {
        operation: step.operation.clone(),
        threads: step.step.threads,
        operations_per_s: step.summary.operations_per_s,
        fairness: step.summary.fairness,
    };
    steps(record).map(one).collect()
}

/// What a shared counter costs.
pub fn section(record: &Record, document: &mut Document) {
    let mut counts: Vec<u32> = steps(record).map(|step| step.step.threads).collect();
    let mut operations: Vec<&str> = Vec::new();
    for step in steps(record) {
        if !operations.contains(&step.operation.as_str()) {
            operations.push(&step.operation);
        }
    }
    if operations.is_empty() {
        return;
    }
    counts.sort_unstable();
    counts.dedup();
    document.heading("Contended atomics: threads take numbers from one counter; millions a second in all (fairness)");
    let mut table = Table::new(["threads"]);
    for operation in &operations {
        table.column(*operation);
    }
    table.column("ns a number, at best");
    for threads in counts {
        let mut row = vec![Threads(threads).to_string()];
        let mut best = f64::INFINITY;
        for operation in &operations {
            let step = steps(record).find(|step| step.step.threads == threads && step.operation == *operation);
            let rate = step.and_then(|step| Some((step, step.summary.operations_per_s?)));
            row.push(rate.map_or("–".to_owned(), |(step, rate)| {
                best = best.min(1e9 / rate);
                let fairness = step.summary.fairness.map_or("–".to_owned(), |share| format!("{share:.2}"));
                format!("{:.1} ({fairness}){}", rate / 1e6, table.mark(&step.step.caveats))
            }));
        }
        row.push(if best.is_finite() { format!("{best:.1}") } else { "–".into() });
        table.row(row);
    }
    document.table(table);
    document.paragraph(
        "fairness: the share of the thread that got the fewest over that of the one that got the most. A chunk counter or the \
         arrival counter of a barrier can be no faster: ns a number times threads is what all of them cost once.",
    );
}
