//! Contended atomics: threads take numbers from one shared counter until they are used up, as threads take chunks of work.

use super::team::{self, Seat};
use super::{Context, Outcome, calibrate, spans};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::plan::atomic::{Operation, Plan, Step as Planned};
use crate::record::{AtomicStep, Line, Step};
use crate::stats;
use crate::units::{Bytes, Nanos, Threads};
use std::sync::atomic::{AtomicU64, Ordering};

/// Measures a plan of contended atomics.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for planned in &plan.steps {
        let what = format!("{} by {}", planned.operation.name(), Threads(planned.cpus.len() as u32));
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what))?;
        match measure(plan, planned, context) {
            Ok(None) => {}
            Ok(Some(line)) => (context.outcome)(Outcome::Measured(Box::new(Line::Atomic(line))))?,
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    Ok(())
}

/// What one thread brings back.
struct Taken {
    spans: Vec<(Nanos, Nanos)>,
    /// Numbers in a sample, for all threads together.
    limit: u64,
    /// Those that this thread took, in the samples that count.
    mine: u64,
    /// Whether the counter did not end where it must.
    wrong: bool,
}

fn measure(plan: &Plan, planned: &Planned, context: &Context<'_>) -> Result<Option<AtomicStep>> {
    let words = Words::reserve(Bytes(4096))?;
    let counter = &words[0];
    let threads = planned.cpus.len() as u64;
    // Calibration takes what lasts half as long.
    let least = Nanos(plan.sample_least_ns.max(2 * spans::CLOCK_STEPS * context.clock_step.0));
    let samples = if context.verify { 0 } else { plan.samples };
    let stop = context.stop;
    let outcome = team::run(&planned.cpus, context.clock, |mut seat| {
        let clock = seat.clock;
        let late = |now| stop.reason(now).is_some();
        let mut mine = 0;
        // Turns a count for each thread into one for all, so that calibration counts alike with any number of threads.
        let each = calibrate::units(&mut seat, least, late, |seat, each| {
            let (start, finish) = sample(seat, counter, planned.operation, each.saturating_mul(threads), &mut mine);
            Nanos(finish.0 - start.0)
        });
        let limit = each.saturating_mul(threads);
        // Nobody is counting: after the last sample all met, and the counter is past the limit by one failed try each.
        let left = counter.load(Ordering::Relaxed);
        let wrong = match planned.operation {
            Operation::FetchAdd => left != limit + threads,
            Operation::CompareAndSwap => left != limit,
        };
        mine = 0;
        let mut spans = Vec::with_capacity(samples as usize);
        for sampled in 0..samples {
            if !seat.go_on(|| sampled == 0 || !late(clock.now())) {
                break;
            }
            spans.push(sample(&seat, counter, planned.operation, limit, &mut mine));
        }
        Taken { spans, limit, mine, wrong }
    })?;
    if outcome.results.iter().any(|taken| taken.wrong) {
        return Err(Error::refused(
            format!("trust {} by {}", planned.operation.name(), Threads(threads as u32)),
            "the counter did not end where it must",
            "its numbers were dropped; report this as a bug",
        ));
    }
    if context.verify {
        return Ok(None);
    }
    let per_sample = spans::by_sample(outcome.results.iter().map(|taken| &taken.spans));
    let mut caveats = planned.caveats.clone();
    caveats.extend(outcome.caveats);
    caveats.extend(context.cut_short(per_sample.len() as u32, samples, "time budget"));
    let mut step = Step {
        threads: threads as u32,
        cpus: planned.cpus.clone(),
        caveats,
        samples_ns: per_sample.iter().map(spans::elapsed).collect(),
        units_per_sample: outcome.results[0].limit,
        disturbance: outcome.disturbance,
        ..Step::default()
    };
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    let levels = stats::two_levels(&stats::unit_times(&step)).filter(|_| step.threads > 1);
    step.caveats.extend(levels.map(|(low_ns, high_ns)| Caveat::Bimodal { low_ns, high_ns }));
    let operations_by_thread: Vec<u64> = outcome.results.iter().map(|taken| taken.mine).collect();
    let summary = stats::atomic(&step, &operations_by_thread);
    Ok(Some(AtomicStep {
        step,
        operation: planned.operation.name().to_owned(),
        operations_by_thread,
        home_node: words.home(),
        summary,
    }))
}

/// Takes numbers below `limit` together with the others, adds how many to `mine`, and says when this thread began and ended.
fn sample(seat: &Seat<'_>, counter: &AtomicU64, operation: Operation, limit: u64, mine: &mut u64) -> (Nanos, Nanos) {
    if seat.index == 0 {
        // Relaxed here and below: the meetings order what one sample leaves to the next, and the number itself is all that
        // is handed over.
        counter.store(0, Ordering::Relaxed);
    }
    seat.meet();
    let start = seat.now();
    *mine += match operation {
        Operation::FetchAdd => fetch_add(counter, limit),
        Operation::CompareAndSwap => compare_and_swap(counter, limit),
    };
    let finish = seat.now();
    seat.meet();
    (start, finish)
}

#[inline(never)]
fn fetch_add(counter: &AtomicU64, limit: u64) -> u64 {
    let mut mine = 0;
    while counter.fetch_add(1, Ordering::Relaxed) < limit {
        mine += 1;
    }
    mine
}

#[inline(never)]
fn compare_and_swap(counter: &AtomicU64, limit: u64) -> u64 {
    let mut mine = 0;
    let mut seen = counter.load(Ordering::Relaxed);
    while seen < limit {
        match counter.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                mine += 1;
                seen += 1;
            }
            Err(now) => seen = now,
        }
    }
    mine
}
