//! Fork and join: thread 0 hands out a job that does nothing, the others begin it and all meet at its end. Between jobs they
//! poll for a while and then sleep, as llama.cpp's threads do between tokens.

use super::team::{self, Seat};
use super::{Context, Outcome, spans};
use crate::barrier::{Barrier, Central, Seating, Wait};
use crate::error::Result;
use crate::plan::dispatch::{HINTS, Plan, Step as Planned};
use crate::record::{DispatchStep, Line, Step};
use crate::stats;
use crate::units::{Nanos, Threads};
use crossbeam_utils::CachePadded;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Measures a plan of jobs.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for planned in &plan.steps {
        let threads = Threads(planned.cpus.len() as u32);
        let what = format!(
            "a job for {threads}, {}, poll {}, after {} without one",
            planned.spread.name(),
            planned.poll,
            Nanos(planned.idle_ns)
        );
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what))?;
        match measure(plan, planned, context) {
            Ok(None) => {}
            Ok(Some(line)) => (context.outcome)(Outcome::Measured(Box::new(Line::Dispatch(line))))?,
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    Ok(())
}

/// Where jobs come from: the number of the last one, and where those sleep who have polled long enough.
#[derive(Default)]
struct Desk {
    job: CachePadded<AtomicU64>,
    sleepers: (Mutex<()>, Condvar),
}

impl Desk {
    /// Hands out the next job. The lock is taken also when nobody sleeps, as llama.cpp takes it: a thread that goes to sleep
    /// has looked for a job under it.
    fn hand_out(&self) {
        let _guard = self.sleepers.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Release: pairs with the Acquire loads below.
        self.job.fetch_add(1, Ordering::Release);
        self.sleepers.1.notify_all();
    }

    /// Waits until there is a job after number `last`.
    fn wait_for(&self, last: u64, hints: u64) {
        let waiting = || self.job.load(Ordering::Acquire) == last;
        for _ in 0..hints {
            if !waiting() {
                return;
            }
            spin_loop();
        }
        let guard = self.sleepers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _guard = self.sleepers.1.wait_while(guard, |()| waiting()).unwrap_or_else(PoisonError::into_inner);
    }
}

fn measure(plan: &Plan, planned: &Planned, context: &Context<'_>) -> Result<Option<DispatchStep>> {
    let threads = planned.cpus.len();
    let desk = Desk::default();
    let end: Central = Central::new(&Seating::flat(threads, Wait::HINT));
    // Two jobs nobody counts.
    let samples = if context.verify { 1 } else { plan.samples + 2 };
    let hints = u64::from(planned.poll) * HINTS;
    let stop = context.stop;
    let outcome = team::run(&planned.cpus, context.clock, |mut seat| {
        let clock = seat.clock;
        let mut spans = Vec::with_capacity(samples as usize);
        for job in 0..u64::from(samples) {
            if !seat.go_on(|| job < 3 || stop.reason(clock.now()).is_none()) {
                break;
            }
            let start = if seat.index == 0 {
                pause(&seat, planned.idle_ns);
                let start = seat.now();
                desk.hand_out();
                start
            } else {
                desk.wait_for(job, hints);
                seat.now()
            };
            end.wait(&mut ());
            spans.push((start, seat.now()));
        }
        spans
    })?;
    if context.verify {
        return Ok(None);
    }
    let jobs: Vec<spans::Sample> = spans::by_sample(outcome.results.iter()).into_iter().skip(2).collect();
    // Thread 0 hands out first: the earliest start is when it did.
    let started_ns = jobs.iter().map(|job| {
        let starts = || job.iter().map(|(start, _)| start.0);
        starts().max().unwrap_or(0) - starts().min().unwrap_or(0)
    });
    let started_ns: Vec<u64> = started_ns.collect();
    let mut caveats = planned.caveats.clone();
    caveats.extend(outcome.caveats);
    caveats.extend(context.cut_short(jobs.len() as u32, plan.samples, "time budget"));
    let step = Step {
        threads: threads as u32,
        cpus: planned.cpus.clone(),
        caveats,
        samples_ns: jobs.iter().map(spans::elapsed).collect(),
        units_per_sample: 1,
        disturbance: outcome.disturbance,
        ..Step::default()
    };
    let summary = stats::dispatch(&step, &started_ns);
    Ok(Some(DispatchStep {
        step,
        spread: planned.spread.name().to_owned(),
        poll: planned.poll,
        idle_ns: planned.idle_ns,
        started_ns,
        summary,
    }))
}

/// Looks at the clock for so long, as the thread would sample a token meanwhile.
fn pause(seat: &Seat<'_>, idle_ns: u64) {
    let until = Nanos(seat.now().0 + idle_ns);
    while seat.now() < until {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::barrier::Spread;
    use crate::run::Stop;
    use crate::run::clock::Clock;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn jobs_are_handed_out_to_threads_that_poll_and_to_those_that_sleep() {
        let cpus: Vec<_> = crate::machine::current_affinity().iter().take(2).collect();
        if cpus.len() < 2 {
            return;
        }
        for (poll, idle_ns) in [(0, 0), (0, 300_000), (1, 0)] {
            let planned = Planned { cpus: cpus.clone(), spread: Spread::Given, poll, idle_ns, caveats: Vec::new() };
            let plan = Plan { steps: vec![planned], samples: 5 };
            let signal = AtomicUsize::new(0);
            let mut lines = Vec::new();
            let mut outcome = |outcome: Outcome| {
                if let Outcome::Measured(line) = outcome {
                    lines.push(*line);
                }
                Ok(())
            };
            let stop = Stop { signal: &signal, deadline: None };
            let clock = Clock::start();
            let mut context = Context { clock, stop, outcome: &mut outcome, clock_step: Nanos(20), verify: false };
            run(&plan, &mut context).unwrap();
            let [Line::Dispatch(line)] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!((line.step.samples_ns.len(), line.started_ns.len()), (5, 5));
            for (all, started) in line.step.samples_ns.iter().zip(&line.started_ns) {
                assert!(started <= all && *all > 0, "{started} of {all}");
            }
        }
    }
}
