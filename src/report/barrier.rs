//! Barriers: what an episode costs, single episodes, after work and between reads, and which to take.

use super::{Document, Table};
use crate::attribute::barrier::{self, Choice, Half, Law};
use crate::machine::Topology;
use crate::plan::Subject;
use crate::record::{BarrierStep, Record};
use crate::units::{Bytes, CpuId, Nanos, Threads};
use serde::Serialize;
use std::collections::BTreeSet;

/// One barrier on one set of threads, in the summary of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Barrier {
    algorithm: String,
    wait: String,
    threads: u32,
    spread: String,
    median_ns: Option<f64>,
}

/// All that were measured with nothing between episodes.
pub fn summary(record: &Record) -> Vec<Barrier> {
    let one = |step: &BarrierStep| Barrier {
        algorithm: step.algorithm.clone(),
        wait: step.wait.to_string(),
        threads: step.step.threads,
        spread: step.spread.clone(),
        median_ns: step.summary.median_ns,
    };
    barrier::steps(record).filter(|step| step.is_idle()).map(one).collect()
}

/// The machine in two numbers for one set of threads.
#[derive(Clone, Debug, Serialize)]
pub struct Granularity {
    algorithm: String,
    wait: String,
    threads: u32,
    spread: String,
    roof_bytes_per_s: f64,
    half_bytes: Option<u64>,
    /// `at`, `below` the smallest size, `above` the largest, or `unclear`.
    half: &'static str,
}

/// All that were measured between reads; `half_bytes` is null where half of the roof was not crossed.
pub fn granularity(record: &Record) -> Vec<Granularity> {
    let one = |found: barrier::Granularity| Granularity {
        algorithm: found.algorithm,
        wait: found.wait,
        threads: found.threads,
        spread: found.spread,
        roof_bytes_per_s: found.roof.0,
        half: match found.half {
            Half::At(_) => "at",
            Half::Below(_) => "below",
            Half::Above(_) => "above",
            Half::Between(..) => "unclear",
        },
        half_bytes: match found.half {
            Half::At(bytes) => Some(bytes.0),
            Half::Below(_) | Half::Above(_) | Half::Between(..) => None,
        },
    };
    barrier::granularities(record).into_iter().map(one).collect()
}

/// All that was measured of barriers.
pub fn section(record: &Record, document: &mut Document) {
    idle(record, document);
    choices(record, document);
    fits(record, document);
    traced(record, document);
    worked(record, document);
    granularities(record, document);
}

fn idle(record: &Record, document: &mut Document) {
    let steps: Vec<&BarrierStep> = barrier::steps(record).filter(|step| step.is_idle()).collect();
    if steps.is_empty() {
        return;
    }
    document.heading("Barriers: ns an episode, all threads arriving together (median of batch means)");
    let mut columns: Vec<(u32, &str)> = Vec::new();
    let mut rows: Vec<(&str, String)> = Vec::new();
    for step in &steps {
        let column = (step.step.threads, step.spread.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
        let row = (step.algorithm.as_str(), step.wait.to_string());
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    columns.sort_by_key(|(threads, _)| *threads);
    // More columns than a terminal holds are written as rows.
    if columns.len() <= 6 {
        let mut table = Table::new(["algorithm", "wait"]);
        for (threads, spread) in &columns {
            table.column(format!("{}, {spread}", Threads(*threads)));
        }
        for (algorithm, wait) in rows {
            let mut cells = vec![algorithm.to_owned(), wait.clone()];
            for column in &columns {
                let step = steps.iter().find(|step| {
                    (step.step.threads, step.spread.as_str()) == *column
                        && step.algorithm == algorithm
                        && step.wait.to_string() == wait
                });
                cells.push(step.map_or(String::new(), |step| episode(step, &mut table)));
            }
            table.row(cells);
        }
        document.table(table);
    } else {
        let mut table = Table::new(["algorithm", "wait", "threads", "spread", "ns"]);
        for step in steps {
            let ns = episode(step, &mut table);
            table.row(vec![
                step.algorithm.clone(),
                step.wait.to_string(),
                step.step.threads.to_string(),
                step.spread.clone(),
                ns,
            ]);
        }
        document.table(table);
    }
}

fn episode(step: &BarrierStep, table: &mut Table) -> String {
    let mark = table.mark(&step.step.caveats);
    match step.summary.median_ns {
        // One thread has nobody to wait for, and the compiler may see it.
        Some(ns) if ns < 0.1 => format!("<0.1{mark}"),
        Some(ns) if ns < 1000.0 => format!("{ns:.1}{mark}"),
        Some(ns) => format!("{ns:.0}{mark}"),
        None => "–".into(),
    }
}

/// Nanoseconds of a difference, which noise may make negative.
fn difference(ns: Option<f64>) -> String {
    ns.map_or("–".into(), |ns| if ns.abs() < 1000.0 { format!("{ns:.1}") } else { format!("{ns:.0}") })
}

/// Where it is said which barrier to take: in words, for each set of threads.
fn choices(record: &Record, document: &mut Document) {
    for choice in barrier::choices(record) {
        let best = |step: &&BarrierStep| {
            let named =
                (step.algorithm.as_str(), step.wait.to_string()) == (choice.best.0.as_str(), choice.best.1.clone());
            step.is_idle() && named && step.step.threads == choice.threads && step.spread == choice.spread
        };
        let disturbed = super::disturbed(barrier::steps(record).filter(best).flat_map(|step| &step.step.caveats));
        document.paragraph(format!("{}{disturbed}.", sentence(&choice)));
    }
}

fn sentence(choice: &Choice) -> String {
    let Choice { threads, spread, best: (algorithm, wait, ns), same, central_over_best, .. } = choice;
    let like = match &same[..] {
        [] => String::new(),
        [(one, wait)] => format!("; {one} ({wait}) is not told apart from it"),
        [first, .., last] if same.len() <= 3 => {
            let middle: String = same[1..same.len() - 1].iter().map(|(name, _)| format!(", {name}")).collect();
            format!("; {}{middle} and {} are not told apart from it", first.0, last.0)
        }
        many => format!("; {} others are not told apart from it", many.len()),
    };
    let central = match central_over_best {
        Some(ratio) if algorithm != "central" && !same.iter().any(|(name, _)| name == "central") => {
            format!("; llama.cpp's central counter takes {ratio:.2} times as long")
        }
        _ => String::new(),
    };
    let crowded = if choice.oversubscribed { " on fewer CPUs" } else { "" };
    format!("Take for {}{crowded}, {spread}: {algorithm} ({wait}), {ns:.1} ns{like}{central}", Threads(*threads))
}

fn fits(record: &Record, document: &mut Document) {
    let fits = barrier::fits(record);
    let mut table = Table::new(["algorithm", "wait", "sets", "c0, ns", "c1, ns", "times", "error", "points"]);
    for fit in &fits {
        table.row(vec![
            fit.algorithm.clone(),
            fit.wait.clone(),
            fit.family.clone(),
            format!("{:.0}", fit.base_ns),
            format!("{:.1}", fit.slope_ns),
            match fit.law {
                Law::Linear => "n".into(),
                Law::Logarithmic => "log2 n".into(),
            },
            format!("{:.0} %", fit.error * 100.0),
            fit.points.to_string(),
        ]);
    }
    if !fits.is_empty() {
        document
            .heading("Barriers by threads: c0 + c1 times n or log2 n, whichever fits better (root mean square error)");
        document.table(table);
    }
}

/// Most rows of single episodes; more are in the record.
const TRACED_ROWS: usize = 40;

fn traced(record: &Record, document: &mut Document) {
    let mut steps: Vec<_> = barrier::steps(record).filter_map(|step| Some((step, step.summary.traced?))).collect();
    if steps.is_empty() {
        return;
    }
    let all = steps.len();
    if all > TRACED_ROWS {
        let most = steps.iter().map(|(step, _)| step.step.threads).max();
        steps.retain(|(step, _)| Some(step.step.threads) == most);
    }
    document.heading("Single barriers: ns, by stamps before and after each (to 3 % and a step of the clock)");
    let mut table = Table::new([
        "algorithm",
        "wait",
        "threads",
        "spread",
        "p5",
        "p95",
        "p99",
        "max",
        "release",
        "skew",
        "stamps",
        "lines (in a row)",
    ]);
    for (step, traced) in &steps {
        let mark = table.mark(&step.step.caveats);
        table.row(vec![
            step.algorithm.clone(),
            step.wait.to_string(),
            step.step.threads.to_string(),
            step.spread.clone(),
            traced.p5_ns.to_string(),
            traced.p95_ns.to_string(),
            traced.p99_ns.to_string(),
            traced.max_ns.to_string(),
            traced.release_ns.to_string(),
            traced.skew_ns.to_string(),
            // Less than nothing is the batches' disturbance, not the stamps' price.
            format!("{}{mark}", difference(Some(traced.overhead_ns).filter(|ns| *ns >= 0.0))),
            transfers(step, &record.header.topology),
        ]);
    }
    document.table(table);
    document.paragraph(
        "p5 to max: from the moment when all had left one episode to the same moment of the next; release: from the last \
         arrival until all had left; skew: from the first arrival to the last (medians); stamps: what they cost, the mean of \
         these episodes less the batch median; lines: how often an episode should move a cache line between cores, and how often \
         one after another, each about as long as a line takes between two of these cores.",
    );
    if steps.len() < all {
        document.paragraph(format!("Of the most threads only: `membar report RECORD --format jsonl` has all {all}."));
    }
}

/// Transfers of lines that the algorithm should need, in all and one after another.
fn transfers(step: &BarrierStep, topology: &Topology) -> String {
    let cache = |cpu: &CpuId| topology.pu(*cpu).and_then(|pu| pu.last_level_cache);
    let groups = step.step.cpus.iter().map(cache).collect::<BTreeSet<_>>().len() as u64;
    let row = Subject::find(&step.algorithm).ok().and_then(|subject| subject.row());
    let known = row.and_then(|row| (row.transfers)(u64::from(step.step.threads), groups));
    known.map_or("–".into(), |lines| format!("{} ({})", lines.all, lines.in_a_row))
}

/// What is done before each episode of a step, in words.
fn work(step: &BarrierStep) -> String {
    match (step.late_ns, step.work_ns, step.exchange_bytes.0) {
        (0, 0, 0) => format!("reading {} each", step.work_bytes),
        (0, 0, bytes) => format!("exchanging {}", Bytes(bytes)),
        (0, ns, _) => format!("computing {}", Nanos(ns)),
        (ns, ..) => format!("one late by {}", Nanos(ns)),
    }
}

fn worked(record: &Record, document: &mut Document) {
    let mut table =
        Table::new(["algorithm", "wait", "threads", "spread", "between episodes", "ns", "the barrier's share, ns"]);
    let steps: Vec<&BarrierStep> = barrier::steps(record).filter(|step| !step.is_idle()).collect();
    for step in &steps {
        let ns = episode(step, &mut table);
        table.row(vec![
            step.algorithm.clone(),
            step.wait.to_string(),
            step.step.threads.to_string(),
            step.spread.clone(),
            work(step),
            ns,
            difference(step.summary.exposed_ns),
        ]);
    }
    if !steps.is_empty() {
        document
            .heading("Barriers after work: ns an episode with its work, and what it takes longer than the work alone");
        document.table(table);
    }
}

fn granularities(record: &Record, document: &mut Document) {
    for found in barrier::granularities(record) {
        let who = format!("{}, {}", Threads(found.threads), found.spread);
        let half = match found.half {
            Half::At(bytes) => format!("below {bytes} between two barriers they lose more than half of it"),
            Half::Below(bytes) => format!("already {bytes} between two barriers give them more than half of it"),
            Half::Above(bytes) => format!("{bytes} between two barriers do not give them half of it"),
            Half::Between(low, high) => format!(
                "where they lose more than half of it cannot be told, between {low} and {high}: shares go up and down"
            ),
        };
        let same = |step: &&BarrierStep| {
            step.work_bytes.0 > 0 && step.step.threads == found.threads && step.spread == found.spread
        };
        let disturbed = super::disturbed(barrier::steps(record).filter(same).flat_map(|step| &step.step.caveats));
        document.paragraph(format!(
            "{who}, {} ({}): read up to {} without barriers; {half} (b½, bytes of all threads){disturbed}.",
            found.algorithm, found.wait, found.roof
        ));
    }
}
