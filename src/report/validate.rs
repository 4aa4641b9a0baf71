//! Our rows beside another STREAM program: ratios inside rounds, and which row reproduces its copy.

use super::{Document, STREAM_OPERATIONS, Table};
use crate::attribute;
use crate::kernel::Operation;
use crate::plan::validate::VALIDATE;
use crate::record::{Line, PeerStep, Record, Step, StreamStep};
use crate::stats::{self, Interval};
use crate::units::Threads;

/// A row reproduces a program when the whole interval of their ratio lies this near to 1: METHOD's "same".
const SAME: f64 = 0.03;

/// What one round holds.
#[derive(Default)]
struct Round<'a> {
    number: u32,
    peers: Vec<&'a PeerStep>,
    rows: Vec<&'a StreamStep>,
}

/// One of our rows against the program, over all rounds that have both.
struct Comparison<'a> {
    kernel: &'a str,
    operation: &'a str,
    /// Medians over rounds, bytes/s.
    program: f64,
    ours: f64,
    /// Ours over the program's: median of the rounds' ratios.
    ratio: f64,
    interval: Option<Interval>,
    peers: Vec<&'a Step>,
    rows: Vec<&'a Step>,
}

/// Adds what a record of `membar validate` holds.
pub(super) fn section(record: &Record, document: &mut Document) {
    let rounds = rounds(record);
    let Some(first) = rounds.iter().find_map(|round| round.peers.first()) else { return };
    let program = &first.program;
    document.heading(format!(
        "Beside {program}: GB/s of counted bytes, median over {} of the best of each; {}, arrays of {}",
        if rounds.len() == 1 { "1 round".to_owned() } else { format!("{} rounds", rounds.len()) },
        Threads(first.step.threads),
        first.array_bytes
    ));
    let comparisons: Vec<Comparison<'_>> =
        STREAM_OPERATIONS.iter().flat_map(|operation| compare(&rounds, operation.name(), record.header.seed)).collect();
    let mut table = Table::new(["function", "program", "row", "membar", "membar / program", "95 % interval"]);
    for comparison in &comparisons {
        let mut mark = |steps: &[&Step]| {
            let tainted = attribute::tainted(steps.iter().copied());
            table.mark(tainted.iter().map(|tainted| tainted.among(steps.len())))
        };
        let (program_mark, row_mark) = (mark(&comparison.peers), mark(&comparison.rows));
        table.row(vec![
            comparison.operation.to_owned(),
            format!("{:.1}{program_mark}", comparison.program / 1e9),
            comparison.kernel.to_owned(),
            format!("{:.1}{row_mark}", comparison.ours / 1e9),
            format!("{:.3}", comparison.ratio),
            comparison.interval.map_or(String::new(), |interval| between(&interval)),
        ]);
    }
    document.table(table);
    document.paragraph(verdict(&comparisons, program));
}

fn between(interval: &Interval) -> String {
    format!("{:.3} to {:.3}", interval.low, interval.high)
}

/// A round's lines follow each other, the program's first.
fn rounds(record: &Record) -> Vec<Round<'_>> {
    let mut rounds: Vec<Round<'_>> = Vec::new();
    for line in &record.lines {
        match line {
            Line::Peer(step) => match rounds.last_mut() {
                Some(round) if round.number == step.round => round.peers.push(step),
                _ => rounds.push(Round { number: step.round, peers: vec![step], rows: Vec::new() }),
            },
            Line::Stream(step) if step.scope == VALIDATE => {
                if let Some(round) = rounds.last_mut() {
                    round.rows.push(step);
                }
            }
            _ => {}
        }
    }
    rounds
}

/// Each row of an operation that the program has as well.
fn compare<'a>(rounds: &[Round<'a>], operation: &str, seed: u64) -> Vec<Comparison<'a>> {
    let mut kernels: Vec<&'a str> = Vec::new();
    for step in rounds.iter().flat_map(|round| &round.rows).filter(|step| step.operation == operation) {
        if !kernels.contains(&step.kernel.as_str()) {
            kernels.push(&step.kernel);
        }
    }
    let comparison = |kernel: &'a str| {
        let both = |round: &Round<'a>| -> Option<(&'a PeerStep, &'a StreamStep, f64, f64)> {
            let peer = *round.peers.iter().find(|peer| peer.function == operation)?;
            let row = *round.rows.iter().find(|row| row.kernel == kernel)?;
            Some((peer, row, peer.summary.best_bytes_per_s?.0, row.summary.best_bytes_per_s?.0))
        };
        let pairs: Vec<_> = rounds.iter().filter_map(both).collect();
        let of = |value: fn(f64, f64) -> f64| -> Vec<f64> {
            pairs.iter().map(|(_, _, program, ours)| value(*program, *ours)).collect()
        };
        let ratios = of(|program, ours| ours / program);
        Some(Comparison {
            kernel,
            operation: &pairs.first()?.1.operation,
            program: stats::median(&of(|program, _| program))?,
            ours: stats::median(&of(|_, ours| ours))?,
            ratio: stats::median(&ratios)?,
            interval: stats::bootstrap(&ratios, seed, stats::median),
            peers: pairs.iter().map(|(peer, ..)| &peer.step).collect(),
            rows: pairs.iter().map(|(_, row, ..)| &row.step).collect(),
        })
    };
    kernels.into_iter().filter_map(comparison).collect()
}

/// Which row reproduces the program's copy.
fn verdict(comparisons: &[Comparison<'_>], program: &str) -> String {
    let mut copies: Vec<&Comparison<'_>> =
        comparisons.iter().filter(|comparison| comparison.operation == Operation::Copy.name()).collect();
    // As far from 1 as another is on the other side of it.
    copies.sort_by(|a, b| a.ratio.ln().abs().total_cmp(&b.ratio.ln().abs()));
    let Some(nearest) = copies.first() else { return format!("No copy of {program} and ours in one round.") };
    let near = format!(
        "the nearest is {}, {:.1} % {}",
        nearest.kernel,
        (nearest.ratio - 1.0).abs() * 100.0,
        if nearest.ratio < 1.0 { "slower" } else { "faster" }
    );
    let Some(interval) = nearest.interval else {
        return format!("Which row reproduces the copy of {program} takes 5 rounds to say; {near}.");
    };
    let same = |comparison: &&&Comparison<'_>| {
        comparison.interval.is_some_and(|interval| interval.low >= 1.0 - SAME && interval.high <= 1.0 + SAME)
    };
    match copies.iter().find(same) {
        Some(row) => {
            let interval = row.interval.map_or(String::new(), |interval| between(&interval));
            format!(
                "{} reproduces the copy of {program}: ratio {:.3}, 95 % interval {interval}.",
                row.kernel, row.ratio
            )
        }
        None if copies.iter().any(|row| row.interval.is_some_and(|it| it.low < 1.0 + SAME && it.high > 1.0 - SAME)) => {
            format!(
                "Whether a row reproduces the copy of {program} cannot be told from these rounds: {near}, but the 95 % \
                 interval of the ratio ({}) reaches into ±{:.0} %; take more rounds (--samples) on a calmer machine.",
                between(&interval),
                SAME * 100.0
            )
        }
        None => format!(
            "None reproduces the copy of {program} within {:.0} %: {near} (95 % interval of the ratio {}).",
            SAME * 100.0,
            between(&interval)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"kind":"run","schema":1,"version":"9.9","commit":null,"command":[],"started_utc":"","seed":1,"host":"h","cpu":{"model_name":"c","vendor":"v","isa":[],"hypervisor":null},"topology":{"packages":[],"dies":[],"nodes":[],"caches":[],"cores":[],"pus":[],"distances":null},"clock":{"source":"s","step_ns":20},"allowed_cpus":"0-1","allowed_nodes":"","environment":{"kernel":null},"labels":{},"caveats":[]}"#;

    fn peer(round: usize, rate: f64) -> String {
        let ns = (16e7 / rate * 1e9) as u64;
        format!(
            r#"{{"kind":"peer","threads":2,"cpus":[0,1],"caveats":[],"samples_ns":[{ns}],"units_per_sample":1,"program":"./stream","function":"copy","round":{round},"array_bytes":80000000,"avg_ns":{ns},"max_ns":{ns},"counted_bytes":160000000,"summary":{{"best_bytes_per_s":{rate}}}}}"#
        )
    }

    fn row(kernel: &str, rate: f64) -> String {
        let ns = (16e7 / rate * 1e9) as u64;
        let best = 16e7 * 1e9 / ns as f64;
        format!(
            r#"{{"kind":"stream","threads":2,"cpus":[0,1],"caveats":[],"samples_ns":[1,{ns}],"units_per_sample":1,"warmup_samples":1,"kernel":"{kernel}","operation":"copy","isa":"avx2","store":"ordinary","array_bytes":80000000,"cache_bytes":1,"scope":"validate","cpu_nodes":"","memory_nodes":"","counted_bytes":160000000,"bus_bytes_min":1,"bus_bytes_max":1,"placement":"first_touch","pages_on_node":[],"page_kind":"default","huge_page_share":null,"summary":{{"best_bytes_per_s":{best},"median_bytes_per_s":{best}}}}}"#
        )
    }

    /// Rounds on a machine whose mood doubles: one row follows it within `spread`, the other is 1.4 times as fast.
    fn text(rounds: usize, near: f64) -> String {
        let mut lines = vec![HEADER.to_owned()];
        for round in 0..rounds {
            let mood = if round % 2 == 0 { 20e9 } else { 40e9 };
            lines.push(peer(round, mood));
            lines.push(row("copy_avx2", 1.4 * mood));
            lines.push(row("copy_libc", near * mood));
        }
        let record = Record::parse(&format!("{}\n", lines.join("\n")), "made up").unwrap();
        assert_eq!(stats::disagreements(&record.lines), Vec::<String>::new());
        crate::report::document(&record).to_text()
    }

    #[test]
    fn ratios_are_taken_inside_rounds() {
        let text = text(5, 1.01);
        let row = text.lines().find(|line| line.contains("copy_libc  ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["copy", "20.0", "copy_libc", "20.2", "1.010", "1.010", "to", "1.010"], "{text}");
        assert!(text.contains("Beside ./stream: GB/s of counted bytes, median over 5 rounds"), "{text}");
        assert!(text.contains("copy_libc reproduces the copy of ./stream: ratio 1.010"), "{text}");
        assert!(!text.contains("Bandwidth of the validate"), "{text}");
    }

    #[test]
    fn what_is_not_near_or_not_often_measured_reproduces_nothing() {
        let far = text(5, 0.9);
        assert!(
            far.contains("None reproduces the copy of ./stream within 3 %: the nearest is copy_libc, 10.0 % slower")
        );
        let few = text(4, 1.0);
        assert!(few.contains("takes 5 rounds to say; the nearest is copy_libc, 0.0 % faster"), "{few}");
    }
}
