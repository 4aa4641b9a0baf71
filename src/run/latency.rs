//! Core-to-core latency: a line handed back and forth between two pinned threads, which move from pair to pair.

mod exchange;
mod pair;

use super::team::{self, TeamOutcome};
use super::{Context, Outcome, spans, watch};
use crate::caveat::{Caveat, LeftOut};
use crate::error::Result;
use crate::memory::{Policy, Words};
use crate::plan::latency::{Home, Pair, Plan, Protocol, Step as Planned, TERSE};
use crate::record::{CoreLatencyStep, Disturbance, Line, Step};
use crate::stats;
use crate::units::{Bytes, Nanos, NodeSet};
use exchange::Trips;
use pair::{Known, Page, Sampling, Share};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Up to so many measurements each has a team of its own, which is watched before it and between: its disturbance is recorded.
const ALONE: usize = 100;
/// Beyond that so many share two threads: starting threads for each pair would cost more than measuring it, and counters for
/// each would be most of the record. About a quarter of a second, after which their lines are written.
const TOGETHER: usize = 256;
/// What of a round trip by flags the two directions of a message must make up at least: a message has everything in it that
/// half a round trip has, and a clock read.
const ROUND_TRIP_SHARE: f64 = 0.8;

/// Measures a latency plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    let steps: Vec<Planned> = plan.steps().collect();
    let together = if steps.len() <= ALONE { 1 } else { TOGETHER };
    let sampling = (plan.samples, plan.sample_least_ns);
    let mut known = Known::new();
    let mut refused: BTreeMap<Refusal, (usize, String)> = BTreeMap::new();
    let mut done = 0;
    for chunk in steps.chunks(together) {
        if context.stop_reason().is_some() {
            break;
        }
        if done % TOGETHER == 0 {
            let what = format!("latency between cores, measurement {} of {}", done + 1, steps.len());
            (context.outcome)(Outcome::Starting(what))?;
        }
        let measured = match measure_all(chunk, sampling, &mut known, context) {
            Ok(measured) => measured,
            Err(error) => {
                (context.outcome)(Outcome::Failed(error))?;
                done += chunk.len();
                continue;
            }
        };
        done += measured.len();
        for (planned, result) in chunk.iter().zip(measured) {
            match result {
                Measured::Untimed => {}
                Measured::Line(mut line) => {
                    if steps.len() > TERSE {
                        line.line_state = None;
                    }
                    (context.outcome)(Outcome::Measured(Box::new(Line::CoreLatency(*line))))?;
                }
                Measured::Refused(refusal, seen) => {
                    let example = || format!("CPUs {} and {}: {seen}", planned.pair.a, planned.pair.b);
                    refused.entry(refusal).or_insert_with(|| (0, example())).0 += 1;
                }
            }
        }
    }
    for (refusal, (count, example)) in refused {
        let what = format!("{count} of {} latencies by message ({example})", messages(&steps));
        (context.outcome)(Outcome::LeftOut(LeftOut { what, reason: refusal.reason().to_owned() }))?;
    }
    if done < steps.len() {
        let what = format!("{} of {} latencies", steps.len() - done, steps.len());
        let reason = context.stop_reason().unwrap_or("time budget").to_owned();
        (context.outcome)(Outcome::LeftOut(LeftOut { what, reason }))?;
    }
    Ok(())
}

fn messages(steps: &[Planned]) -> usize {
    steps.iter().filter(|step| step.protocol == Protocol::Message).count()
}

/// Measures one pair: this many samples of at least so many nanoseconds. `None` when nothing is to be timed.
pub(super) fn measure(
    pair: &Pair,
    protocol: Protocol,
    sampling: (u32, u64),
    context: &Context<'_>,
) -> Result<Option<CoreLatencyStep>> {
    let step = Planned { pair: pair.clone(), home: Home::FirstCpu(None), protocol };
    let measured = measure_all(std::slice::from_ref(&step), sampling, &mut Known::new(), context)?;
    Ok(measured.into_iter().find_map(|measured| match measured {
        Measured::Line(line) => Some(*line),
        Measured::Untimed | Measured::Refused(..) => None,
    }))
}

/// What came of one measurement.
#[derive(Debug)]
enum Measured {
    Line(Box<CoreLatencyStep>),
    /// It was carried out, and nothing was to be timed.
    Untimed,
    /// The clock does not allow it, and what was seen.
    Refused(Refusal, String),
}

/// Why one-way messages cannot be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Coarse,
    Negative,
    Short,
}

impl Refusal {
    fn reason(self) -> &'static str {
        match self {
            Refusal::Coarse => "the clock is too coarse: its step is longer than a round trip by flags",
            Refusal::Negative => "the clocks of the two CPUs disagree: by them, messages arrived before they were sent",
            Refusal::Short => {
                "the clocks of the two CPUs disagree: both ways together took less than a round trip by flags"
            }
        }
    }
}

/// Measures some steps, one after another, with two threads that are started once. Fewer results than steps when it was time
/// to stop.
fn measure_all(
    steps: &[Planned],
    (samples, sample_least_ns): (u32, u64),
    known: &mut Known,
    context: &Context<'_>,
) -> Result<Vec<Measured>> {
    let Some(first) = steps.first() else { return Ok(Vec::new()) };
    let mut pages = Vec::with_capacity(steps.len());
    let mut unbound = Vec::with_capacity(steps.len());
    for step in steps {
        // A fresh page for each: where the line lives matters.
        let words = Words::reserve(Bytes(exchange::PAGE_BYTES))?;
        let policy = match step.home {
            Home::FirstCpu(_) | Home::SecondCpu(_) => Policy::FirstTouch,
            Home::Bound(node) => Policy::Bind([node].into_iter().collect()),
        };
        unbound.push(words.bind(&policy).err().map(|error| error.to_string()));
        pages.push(Page { words, loose: AtomicBool::new(false) });
    }
    let sampling = Sampling {
        samples: if context.verify { 0 } else { samples },
        least: Nanos(sample_least_ns.max(spans::CLOCK_STEPS * context.clock_step.0)),
        clock_step: context.clock_step,
        stop: context.stop,
    };
    let cpus = [first.pair.a, first.pair.b];
    let given = Mutex::new(known);
    let start = context.clock.now();
    let outcome = team::run(&cpus, context.clock, |mut seat| {
        // What thread 0 knows decides; the other one's is never read.
        let mut guard = (seat.index == 0).then(|| given.lock().unwrap_or_else(|poison| poison.into_inner()));
        let mut own = Known::new();
        let known: &mut Known = guard.as_mut().map_or(&mut own, |guard| &mut **guard);
        let clock = seat.clock;
        let mut shares = Vec::with_capacity(steps.len());
        for (index, (step, page)) in steps.iter().zip(&pages).enumerate() {
            if index > 0 && !seat.go_on(|| sampling.stop.reason(clock.now()).is_none()) {
                break;
            }
            shares.push(pair::measure(&mut seat, step, page, sampling, known));
        }
        shares
    })?;
    let elapsed = Nanos(context.clock.now().0 - start.0);
    let TeamOutcome { results, disturbance, caveats } = outcome;
    // The team's own view is that of one pair: threads that moved on were neither disturbed nor lost.
    let (disturbance, common) = if steps.len() == 1 {
        (disturbance, caveats)
    } else {
        let counters = Disturbance { counters: disturbance.counters, ..Disturbance::default() };
        (Disturbance::default(), watch::caveats(&counters, &cpus, elapsed))
    };
    let [leader, follower] = <[Vec<Share>; 2]>::try_from(results).unwrap_or_default();
    let shares = leader.into_iter().zip(follower);
    let lines = steps.iter().zip(shares).zip(unbound).map(|((step, shares), unbound)| {
        let mut caveats = common.clone();
        caveats.extend(unbound.map(|reason| Caveat::PlacementUnverified { reason }));
        line(step, [shares.0, shares.1], caveats, &disturbance, context)
    });
    Ok(lines.collect())
}

/// What the two threads saw of one measurement, as a line of the record.
fn line(
    planned: &Planned,
    [mut leader, mut follower]: [Share; 2],
    mut caveats: Vec<Caveat>,
    disturbance: &Disturbance,
    context: &Context<'_>,
) -> Measured {
    if context.verify {
        return Measured::Untimed;
    }
    for caveat in leader.caveats.drain(..).chain(follower.caveats.drain(..)) {
        let known = |other: &Caveat| std::mem::discriminant(other) == std::mem::discriminant(&caveat);
        let preempted = matches!(caveat, Caveat::Preempted { .. });
        if !(caveats.contains(&caveat) || preempted && caveats.iter().any(known)) {
            caveats.push(caveat);
        }
    }
    caveats.extend(misplaced(planned.home, leader.home, &caveats));
    let units_per_sample = leader.trips * 2;
    let mut backward_ns = Vec::new();
    let samples_ns = if planned.protocol == Protocol::Message {
        if leader.samples.is_empty() {
            let seen =
                format!("{} against {:.0} ns", context.clock_step, leader.flags_round_trip_ns.unwrap_or_default());
            return Measured::Refused(Refusal::Coarse, seen);
        }
        let way = |share: &Share| share.samples.iter().map(|trips| trips.under_way_ns).collect::<Vec<i64>>();
        let (forward, backward) = (way(&follower), way(&leader));
        if let Some((refusal, seen)) =
            disagreement(&forward, &backward, leader.trips, leader.flags_round_trip_ns.unwrap_or_default())
        {
            return Measured::Refused(refusal, seen);
        }
        backward_ns = backward.iter().map(|ns| u64::try_from(*ns).unwrap_or_default()).collect();
        forward.iter().zip(&backward).map(|(there, back)| u64::try_from(there + back).unwrap_or_default()).collect()
    } else {
        let span = |trips: &Trips| (trips.start, trips.finish);
        let pairs = leader.samples.iter().zip(&follower.samples);
        pairs.map(|(one, other)| spans::elapsed(&vec![span(one), span(other)])).collect()
    };
    let mut step = Step {
        threads: 2,
        cpus: vec![planned.pair.a, planned.pair.b],
        caveats,
        samples_ns,
        units_per_sample,
        warmup_samples: 0,
        per_thread: Vec::new(),
        disturbance: disturbance.clone(),
    };
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    let summary = stats::core_latency(&step);
    Measured::Line(Box::new(CoreLatencyStep {
        step,
        cpu_a: planned.pair.a,
        cpu_b: planned.pair.b,
        protocol: planned.protocol.name().to_owned(),
        path: planned.protocol.path().to_owned(),
        line_state: Some(planned.protocol.line_state().to_owned()),
        home_node: leader.home,
        home_asked: match planned.home {
            Home::Bound(node) => Some(node),
            Home::FirstCpu(_) | Home::SecondCpu(_) => None,
        },
        backward_ns,
        flags_round_trip_ns: leader.flags_round_trip_ns,
        reported_class: planned.pair.class.name().to_owned(),
        summary,
    }))
}

/// Whether the page was seen elsewhere than on the node where it should be.
fn misplaced(home: Home, seen: Option<crate::units::NodeId>, known: &[Caveat]) -> Option<Caveat> {
    let asked = home.node()?;
    match seen {
        Some(seen) if seen == asked => None,
        Some(_) => Some(Caveat::PagesElsewhere { asked: NodeSet::from_iter([asked]), share_there: 0.0 }),
        None if known.iter().any(|caveat| matches!(caveat, Caveat::PlacementUnverified { .. })) => None,
        None => Some(Caveat::PlacementUnverified { reason: "the system does not tell where the line lives".into() }),
    }
}

/// Why the clocks of two CPUs do not allow to measure one way, if they do not: sums over `trips` messages each way, and a
/// round trip by flags.
fn disagreement(forward: &[i64], backward: &[i64], trips: u64, flags_round_trip_ns: f64) -> Option<(Refusal, String)> {
    let each = |sums: &[i64]| {
        let times: Vec<f64> = sums.iter().map(|ns| *ns as f64 / trips.max(1) as f64).collect();
        stats::median(&times).unwrap_or_default()
    };
    let (there, back) = (each(forward), each(backward));
    let seen = format!("{there:.1} ns there, {back:.1} ns back, {flags_round_trip_ns:.1} ns by flags");
    // A single sum below zero cannot be recorded as a time either.
    let negative = forward.iter().chain(backward).any(|ns| *ns <= 0);
    if negative {
        return Some((Refusal::Negative, seen));
    }
    (there + back < ROUND_TRIP_SHARE * flags_round_trip_ns).then_some((Refusal::Short, seen))
}

#[cfg(test)]
mod tests;
