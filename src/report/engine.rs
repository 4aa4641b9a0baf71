//! A real engine beside the replay of its file: ratios inside rounds.

use super::{Document, Table};
use crate::attribute;
use crate::record::{DecodeStep, EngineStep, Line, Record, Step};
use crate::stats;
use crate::workload::Arm;
use std::collections::BTreeMap;

/// One thread count: the rounds that have both.
#[derive(Default)]
struct Pairs<'a> {
    engine: Vec<&'a EngineStep>,
    replay: Vec<&'a DecodeStep>,
    /// Tokens a second: the engine's and the replay's.
    rates: Vec<(f64, f64)>,
}

/// Adds what a record of `membar validate --llama-bench` holds.
pub(super) fn section(record: &Record, document: &mut Document) {
    let pairs = pairs(record);
    let Some(first) = pairs.values().find_map(|pairs| pairs.engine.first()) else { return };
    let build = first.build.as_ref().map_or(String::new(), |build| format!(", build {build}"));
    document.heading(format!("Beside {}{build}: tokens/s of {}, median over rounds", first.program, first.file));
    let columns = ["threads", "barrier", "slicing", "engine", "replay", "replay / engine", "95 % interval", "rounds"];
    let mut table = Table::new(columns);
    for pairs in pairs.values() {
        let mut mark = |steps: Vec<&Step>| {
            let tainted = attribute::tainted(steps.iter().copied());
            table.mark(tainted.iter().map(|tainted| tainted.among(steps.len())))
        };
        let engine_mark = mark(pairs.engine.iter().map(|step| &step.step).collect());
        let replay_mark = mark(pairs.replay.iter().map(|step| &step.step).collect());
        let median = |rate: fn(&(f64, f64)) -> f64| stats::median(&pairs.rates.iter().map(rate).collect::<Vec<_>>());
        let ratio = |rates: &[(f64, f64)]| {
            stats::median(&rates.iter().map(|(engine, replay)| replay / engine).collect::<Vec<_>>())
        };
        let number =
            |value: Option<f64>, digits: usize| value.map_or("–".into(), |value| format!("{value:.digits$}"));
        let interval = stats::bootstrap(&pairs.rates, record.header.seed, ratio);
        let Some(replay) = pairs.replay.first() else { continue };
        table.row(vec![
            replay.step.threads.to_string(),
            replay.barrier.clone(),
            replay.slicing.clone(),
            format!("{}{engine_mark}", number(median(|(engine, _)| *engine), 2)),
            format!("{}{replay_mark}", number(median(|(_, replay)| *replay), 2)),
            number(ratio(&pairs.rates), 3),
            interval.map_or(String::new(), |interval| format!("{:.3} to {:.3}", interval.low, interval.high)),
            pairs.rates.len().to_string(),
        ]);
    }
    document.table(table);
    document.paragraph(format!(
        "replay / engine: above 1, the engine does what the replay leaves out. The engine was told {}.",
        first.arguments.join(" ")
    ));
}

/// By configuration of the replay.
fn pairs(record: &Record) -> BTreeMap<u32, Pairs<'_>> {
    let mut replays: BTreeMap<(u32, u32), &DecodeStep> = BTreeMap::new();
    for line in &record.lines {
        if let Line::Decode(step) = line
            && step.arm == Arm::Full
        {
            replays.insert((step.configuration, step.round), step);
        }
    }
    let mut pairs: BTreeMap<u32, Pairs<'_>> = BTreeMap::new();
    for line in &record.lines {
        let Line::Engine(engine) = line else { continue };
        let Some(replay) = replays.get(&(engine.configuration, engine.round)) else { continue };
        let Some(rates) = engine.summary.tokens_per_s.zip(replay.summary.tokens_per_s) else { continue };
        let pairs = pairs.entry(engine.configuration).or_default();
        pairs.engine.push(engine);
        pairs.replay.push(replay);
        pairs.rates.push(rates);
    }
    pairs
}
