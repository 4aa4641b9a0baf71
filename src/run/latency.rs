//! Core-to-core latency: a line handed back and forth between two pinned threads.

use super::team::{self, Seat};
use super::{Context, Outcome, Stop, calibrate, spans};
use crate::error::Result;
use crate::memory::Words;
use crate::plan::latency::{Pair, Plan, Protocol};
use crate::record::{CoreLatencyStep, Line, Step};
use crate::stats;
use crate::units::{Bytes, Nanos};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the second flag lies: beyond the neighbouring line, which prefetchers fetch in pairs.
const SECOND_FLAG: usize = 32;

/// Measures a latency plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    for (index, pair) in plan.pairs.iter().enumerate() {
        if let Some(reason) = context.stop_reason() {
            let what = format!("latency of {} of {} pairs", plan.pairs.len() - index, plan.pairs.len());
            return (context.outcome)(Outcome::LeftOut(crate::caveat::LeftOut { what, reason: reason.into() }));
        }
        if index % 64 == 0 {
            let what = format!("latency between cores, pair {} of {}", index + 1, plan.pairs.len());
            (context.outcome)(Outcome::Starting(what))?;
        }
        for &protocol in &plan.protocols {
            match measure(pair, protocol, (plan.samples, plan.sample_least_ns), context) {
                Ok(None) => {}
                Ok(Some(line)) => (context.outcome)(Outcome::Measured(Box::new(Line::CoreLatency(line))))?,
                Err(error) => (context.outcome)(Outcome::Failed(error))?,
            }
        }
    }
    Ok(())
}

/// Measures one pair: this many samples of at least so many nanoseconds. `None` when nothing is to be timed.
pub(super) fn measure(
    pair: &Pair,
    protocol: Protocol,
    (samples, sample_least_ns): (u32, u64),
    context: &Context<'_>,
) -> Result<Option<CoreLatencyStep>> {
    // Twice what is needed, since calibration takes what lasts half as long.
    let least = Nanos(sample_least_ns.max(2 * spans::CLOCK_STEPS * context.clock_step.0));
    // A fresh page for each pair: where the line lives matters, and the first thread touches it.
    let words = Words::reserve(Bytes(4096))?;
    let cpus = [pair.a, pair.b];
    let samples = if context.verify { 0 } else { samples };
    let stop = context.stop;
    let outcome =
        team::run(&cpus, context.clock, |mut seat| thread(&mut seat, &words, protocol, samples, least, stop))?;
    if context.verify {
        return Ok(None);
    }
    let per_sample = spans::by_sample(outcome.results.iter().map(|(spans, _)| spans));
    let round_trips = outcome.results[0].1;
    let mut step = Step {
        threads: 2,
        cpus: cpus.to_vec(),
        caveats: outcome.caveats,
        samples_ns: per_sample.iter().map(spans::elapsed).collect(),
        units_per_sample: round_trips * 2,
        warmup_samples: 0,
        per_thread: Vec::new(),
        disturbance: outcome.disturbance,
    };
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    let summary = stats::latency(&step);
    Ok(Some(CoreLatencyStep {
        step,
        cpu_a: pair.a,
        cpu_b: pair.b,
        protocol: protocol.name().to_owned(),
        path: "one_way".to_owned(),
        home_node: words.home(),
        reported_class: pair.class.name().to_owned(),
        summary,
    }))
}

/// What one of the two threads does. Returns its spans and the round trips in one sample.
fn thread(
    seat: &mut Seat<'_>,
    words: &[AtomicU64],
    protocol: Protocol,
    samples: u32,
    least: Nanos,
    stop: Stop<'_>,
) -> (Vec<(Nanos, Nanos)>, u64) {
    if seat.index == 0 {
        words[0].store(0, Ordering::Relaxed);
        words[SECOND_FLAG].store(0, Ordering::Relaxed);
    }
    let mut turn = 0;
    let mut bounce = |seat: &Seat<'_>, trips: u64| {
        seat.meet();
        let start = seat.now();
        match (protocol, seat.index) {
            (Protocol::Cas, 0) => cas(&words[0], trips, 0, 1),
            (Protocol::Cas, _) => cas(&words[0], trips, 1, 0),
            (Protocol::Flags, 0) => lead(&words[0], &words[SECOND_FLAG], turn, trips),
            (Protocol::Flags, _) => follow(&words[0], &words[SECOND_FLAG], turn, trips),
        }
        turn += trips;
        (start, seat.now())
    };
    let clock = seat.clock;
    let trips = calibrate::units(
        seat,
        least,
        |_| stop.reason(clock.now()).is_some(),
        |seat, trips| {
            let (start, finish) = bounce(seat, trips);
            Nanos(finish.0 - start.0)
        },
    );
    let mut spans = Vec::with_capacity(samples as usize);
    for _ in 0..samples {
        spans.push(bounce(seat, trips));
    }
    // The last exchange of thread 0 ends before that of thread 1 may: nobody leaves while the other still polls.
    seat.meet();
    (spans, trips)
}

/// Changes the word from `mine` to `theirs`, `trips` times. Thread 0's last change is seen by thread 1, whose answer is
/// what thread 0 waits for in its next change; so a sample of thread 0 is short of half a trip in `trips`.
#[inline]
fn cas(word: &AtomicU64, trips: u64, mine: u64, theirs: u64) {
    for _ in 0..trips {
        // Relaxed: the word itself is all that is handed over.
        while word.compare_exchange(mine, theirs, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
    }
}

/// Raises the first flag and waits for the second, `trips` times.
#[inline]
fn lead(first: &AtomicU64, second: &AtomicU64, turn: u64, trips: u64) {
    for trip in turn + 1..=turn + trips {
        // Release and Acquire here and below: as a program would hand over data. Plain moves on x86-64.
        first.store(trip, Ordering::Release);
        while second.load(Ordering::Acquire) != trip {}
    }
}

/// Waits for the first flag and raises the second, `trips` times.
#[inline]
fn follow(first: &AtomicU64, second: &AtomicU64, turn: u64, trips: u64) {
    for trip in turn + 1..=turn + trips {
        while first.load(Ordering::Acquire) != trip {}
        second.store(trip, Ordering::Release);
    }
}
