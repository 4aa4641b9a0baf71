//! The parts of a token's time, from arms paired inside rounds.

use super::{Arms, time};
use crate::record::DecodeStep;
use crate::stats::{self, Interval};
use crate::workload::Arm;
use serde::Serialize;
use std::collections::BTreeMap;

/// One part of a token's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Over the middle half of the rounds, rounded. May be negative.
    pub ns: i64,
    /// 95 % bootstrap interval over rounds; `None` below five rounds.
    pub interval: Option<Interval>,
}

/// The parts. Those that are there add up to `full_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// Reading the bytes at the roof.
    pub bandwidth: Option<Part>,
    /// These threads, slices and places not reaching the roof.
    pub reach: Option<Part>,
    /// Arithmetic that does not hide behind loads; absent in records of versions that did not measure it.
    pub compute: Option<Part>,
    /// The barriers themselves, where stamps tell them from skew.
    pub barrier: Option<Part>,
    /// Waiting for late threads; all that waiting costs while `barrier` is absent.
    pub skew: Option<Part>,
    /// Activations and single-thread phases.
    pub exchange: Option<Part>,
}

impl Parts {
    /// The parts over these rounds; `None` without rounds.
    pub(super) fn over(rounds: &[Round], seed: u64) -> Option<Parts> {
        let middle = midmean(rounds)?;
        let part = |of: fn(&Round) -> Option<f64>| {
            let ns = of(&middle)?.round() as i64;
            let interval = stats::bootstrap(rounds, seed, |rounds| midmean(rounds).as_ref().and_then(of));
            Some(Part { ns, interval })
        };
        Some(Parts {
            bandwidth: part(|round| Some(round.roof)),
            reach: part(|round| Some(round.read - round.roof)),
            compute: part(|round| Some(round.dot? - round.read)),
            barrier: part(|round| round.barrier),
            skew: part(|round| Some(round.sync - round.dot.unwrap_or(round.read) - round.barrier.unwrap_or(0.0))),
            exchange: part(|round| Some(round.full - round.sync)),
        })
    }

    /// Largest first.
    pub(super) fn ranked(&self) -> Vec<(super::Limit, Part)> {
        let mut ranked: Vec<(super::Limit, Part)> = self.iter().collect();
        ranked.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(&b.0)));
        ranked
    }

    /// Those that are there, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (super::Limit, Part)> {
        use super::Limit;
        [
            (Limit::Bandwidth, self.bandwidth),
            (Limit::Reach, self.reach),
            (Limit::Compute, self.compute),
            (Limit::Barrier, self.barrier),
            (Limit::Skew, self.skew),
            (Limit::Exchange, self.exchange),
        ]
        .into_iter()
        .filter_map(|(limit, part)| Some((limit, part?)))
    }
}

/// The arms of one round, ns a token. What is absent in one round is absent in all that are looked at together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    pub roof: f64,
    pub read: f64,
    pub dot: Option<f64>,
    pub sync: f64,
    pub full: f64,
    /// What barriers took along the critical path of traced tokens.
    pub barrier: Option<f64>,
}

/// What rounds say together.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub rounds: Vec<Round>,
    pub parts: Parts,
    pub full_ns: i64,
}

/// The mean of each arm over the middle half of the rounds, ordered by the time of all their arms: a trimmed mean. It
/// leaves out rounds in which something went wrong, as a median would, but it is linear: parts add up to the token that
/// was measured, where medians of differences miss it by the noise of each.
fn midmean(rounds: &[Round]) -> Option<Round> {
    let total = |round: &Round| round.roof + round.read + round.dot.unwrap_or(0.0) + round.sync + round.full;
    let mut sorted = rounds.to_vec();
    sorted.sort_unstable_by(|a, b| total(a).total_cmp(&total(b)));
    let cut = sorted.len() / 4;
    let middle = &sorted[cut..sorted.len() - cut];
    let mean = |of: fn(&Round) -> f64| middle.iter().map(of).sum::<f64>() / middle.len() as f64;
    let optional = |of: fn(&Round) -> Option<f64>| {
        let sum = middle.iter().map(of).try_fold(0.0, |sum, ns| Some(sum + ns?))?;
        Some(sum / middle.len() as f64)
    };
    (!middle.is_empty()).then(|| Round {
        roof: mean(|round| round.roof),
        read: mean(|round| round.read),
        dot: optional(|round| round.dot),
        sync: mean(|round| round.sync),
        full: mean(|round| round.full),
        barrier: optional(|round| round.barrier),
    })
}

/// The parts over all rounds that have roof, read, sync, full and, where the run had it, dot; `None` when no round has.
pub(super) fn measure(arms: &BTreeMap<Arm, Arms<'_>>, seed: u64) -> Option<Measured> {
    let [roof, read, sync, full] = [Arm::Roof, Arm::Read, Arm::Sync, Arm::Full].map(|arm| arms.get(&arm));
    let (roof, read, sync, full) = (roof?, read?, sync?, full?);
    let (dot, traced) = (arms.get(&Arm::Dot), arms.get(&Arm::Traced));
    let in_round = |round: &u32| {
        let arm = |steps: &Arms<'_>| time(steps.get(round)?);
        let dot = match dot {
            Some(steps) => Some(arm(steps)?),
            None => None,
        };
        let barrier = traced.and_then(|steps| barrier(steps.get(round)?));
        Some(Round { roof: arm(roof)?, read: arm(read)?, dot, sync: arm(sync)?, full: arm(full)?, barrier })
    };
    let mut rounds: Vec<Round> = full.keys().filter_map(in_round).collect();
    // Clocks that disagreed once are not trusted in the other rounds either.
    if rounds.iter().any(|round| round.barrier.is_none()) {
        rounds.iter_mut().for_each(|round| round.barrier = None);
    }
    let parts = Parts::over(&rounds, seed)?;
    let full_ns = parts.iter().map(|(_, part)| part.ns).sum();
    Some(Measured { rounds, parts, full_ns })
}

/// What barriers took of a traced token, ns.
fn barrier(step: &DecodeStep) -> Option<f64> {
    let tokens = step.step.samples_ns.len() as u64 * step.step.units_per_sample;
    Some(step.trace.as_ref()?.barrier_ns as f64 / tokens.max(1) as f64)
}
