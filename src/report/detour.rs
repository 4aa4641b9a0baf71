//! Detours: what somebody else takes of each CPU, and what that means for a token on many threads.

use super::{Document, Table};
use crate::record::{DetourStep, Line, Record};
use crate::stats;
use crate::units::{Nanos, Threads};
use serde::Serialize;

/// CPUs that get a row of their own; of more, the worst.
const ROWS: usize = 16;
/// Lengths of a token, ms: 200, 50 and 10 tokens a second.
const TOKENS_MS: [u64; 3] = [5, 20, 100];

/// All CPUs together, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Detour {
    cpus: usize,
    share: Option<f64>,
    per_s: Option<f64>,
    longest_ns: Option<u64>,
}

fn steps(record: &Record) -> Vec<&DetourStep> {
    let steps = record.lines.iter().filter_map(|line| match line {
        Line::Detour(step) => Some(step),
        _ => None,
    });
    steps.collect()
}

/// The medians over CPUs, and the longest of all.
pub fn summary(record: &Record) -> Option<Detour> {
    let steps = steps(record);
    let median = |of: fn(&DetourStep) -> Option<f64>| {
        stats::median(&steps.iter().filter_map(|step| of(step)).collect::<Vec<_>>())
    };
    (!steps.is_empty()).then(|| Detour {
        cpus: steps.len(),
        share: median(|step| step.summary.share),
        per_s: median(|step| step.summary.per_s),
        longest_ns: steps.iter().filter_map(|step| step.summary.longest_ns).max(),
    })
}

/// Everything about detours that the record holds.
pub fn section(record: &Record, document: &mut Document) {
    let mut steps = steps(record);
    let Some(first) = steps.first().copied() else { return };
    document.heading(format!(
        "Detours: gaps above {} in a loop of clock reads, all CPUs at the same time for {}",
        Nanos(first.threshold_ns),
        Nanos(first.step.samples_ns.first().copied().unwrap_or_default())
    ));
    let all = steps.len();
    let maxima: Vec<u64> = steps.iter().flat_map(|step| step.window_longest_ns.iter().copied()).collect();
    let watched: Vec<f64> = maxima.iter().map(|ns| *ns as f64).collect();
    steps.sort_by(|a, b| b.summary.share.unwrap_or(0.0).total_cmp(&a.summary.share.unwrap_or(0.0)));
    steps.truncate(ROWS);
    steps.sort_by_key(|step| step.step.cpus.first().copied());
    let mut table = Table::new(["CPU", "a second", "of its time", "longest"]);
    for step in steps {
        let mark = table.mark(&step.step.caveats);
        let cpu = step.step.cpus.first().map_or("–".to_owned(), ToString::to_string);
        let summary = &step.summary;
        table.row(vec![
            format!("CPU {cpu}"),
            summary.per_s.map_or("–".into(), |rate| format!("{rate:.0}")),
            summary.share.map_or("–".into(), |share| format!("{:.2} %{mark}", share * 100.0)),
            summary.longest_ns.map_or("–".into(), |ns| Nanos(ns).to_string()),
        ]);
    }
    document.table(table);
    if all > ROWS {
        document.paragraph(format!("The {ROWS} worst of {all} CPUs; the record and the CSV have all."));
    }
    let mut table = Table::new(["longest expected"]);
    for ms in TOKENS_MS {
        table.column(format!("in {ms} ms"));
    }
    let mut counts = vec![1, all as u32];
    counts.dedup();
    for threads in counts {
        let mut row = vec![Threads(threads).to_string()];
        for ms in TOKENS_MS {
            let windows = f64::from(threads) * (ms * 1_000_000) as f64 / first.window_ns.max(1) as f64;
            let seen = if windows > watched.len() as f64 { "≥ " } else { "" };
            let expected = stats::expected_maximum(&watched, windows);
            row.push(expected.map_or("–".into(), |ns| format!("{seen}{}", Nanos(ns.round() as u64))));
        }
        table.row(row);
    }
    document.table(table);
    document.paragraph(
        "A barrier waits for whoever is away: the longest gap of any thread during a token is the least that it loses. ≥: more \
         time than was watched, so longer ones may come.",
    );
}
