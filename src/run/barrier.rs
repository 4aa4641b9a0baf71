//! Barriers: episodes in batches, all threads arriving together.

use super::team::{self, Crew, Seat, StdThreads};
use super::{Context, Outcome, calibrate, openmp, spans};
use crate::barrier::{Barrier, WithBarrier};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::plan::Subject;
use crate::plan::barrier::{Plan, Step as Planned};
use crate::record::{BarrierStep, Line, Step};
use crate::stats;
use crate::units::{Bytes, Nanos, Threads};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// After this an oversubscribed step takes no new sample: an episode may cost a scheduler's time slice for every thread.
const OVERSUBSCRIBED_NS: u64 = 500_000_000;

/// Measures a barrier plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    for planned in &plan.steps {
        let name = planned.algorithm.name();
        let what = format!("barrier {name}, {}, {}", Threads(planned.cpus.len() as u32), planned.spread.name());
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what.clone()))?;
        let body = Measurement { plan, planned, context, crew: &StdThreads };
        let measured = match &planned.algorithm {
            Subject::Row(algorithm) => algorithm.with(&plan.caches.seating(&planned.cpus, planned.wait), body),
            Subject::OpenMp(runtime) => openmp::measure(*runtime, plan, planned, context),
            Subject::Plugin(plugin) => plugin.barrier(planned.cpus.len()).and_then(|barrier| body.call(&barrier)),
            Subject::Given(name) => Err(Error::usage(
                format!("measure the barrier {name}"),
                "it belongs to another program",
                "measure it there, with membar::run::sweep",
            )),
        };
        let outcome = match measured {
            // A process of its own is stopped at once, and what it had measured is lost.
            Ok(None) if context.stop.is_interrupted() && context.leave_out(&what)? => continue,
            Ok(None) => continue,
            Ok(Some(line)) => Outcome::Measured(Box::new(Line::Barrier(line))),
            Err(error) => Outcome::Failed(error),
        };
        (context.outcome)(outcome)?;
    }
    Ok(())
}

/// One step of a plan, for any barrier on any threads.
pub(super) struct Measurement<'a, 'c, C> {
    pub(super) plan: &'a Plan,
    pub(super) planned: &'a Planned,
    pub(super) context: &'a Context<'c>,
    pub(super) crew: &'a C,
}

impl<C: Crew> WithBarrier for Measurement<'_, '_, C> {
    type Output = Result<Option<BarrierStep>>;

    fn call<B: Barrier>(self, barrier: &B) -> Result<Option<BarrierStep>> {
        let Measurement { plan, planned, context, crew } = self;
        let oversubscribed = planned.caveats.iter().any(|caveat| matches!(caveat, Caveat::Oversubscribed { .. }));
        let bound = Nanos(if oversubscribed { OVERSUBSCRIBED_NS } else { u64::MAX });
        let stop = context.stop;
        let samples = if context.verify { 0 } else { plan.samples };
        let entered: Vec<AtomicU64> = planned.cpus.iter().map(|_| AtomicU64::new(0)).collect();

        let outcome = team::run_by(crew, &planned.cpus, context.clock, |mut seat| {
            let mut member = barrier.member(seat.index);
            let start = seat.now();
            let early = verify(&seat, barrier, &mut member, &entered);
            let clock = seat.clock;
            let late = move |now: Nanos| stop.reason(now).is_some() || now.0 - start.0 >= bound.0;
            let episodes = calibrate::units(&mut seat, Nanos(plan.sample_least_ns), late, |seat, episodes| {
                let (start, finish) = batch(seat, barrier, &mut member, episodes);
                Nanos(finish.0 - start.0)
            });
            let mut spans = Vec::with_capacity(samples as usize);
            for sample in 0..samples {
                // One sample is taken whatever it costs: without it the step says nothing.
                if !seat.go_on(|| sample == 0 || !late(clock.now())) {
                    break;
                }
                spans.push(batch(&seat, barrier, &mut member, episodes));
            }
            (spans, episodes, early)
        })?;

        let early: u64 = outcome.results.iter().map(|(_, _, early)| early).sum();
        if early > 0 {
            return Err(Error::refused(
                format!("trust the barrier {}", planned.algorithm.name()),
                format!("threads left it {early} times before all had come"),
                match planned.algorithm {
                    Subject::Row(_) => "its numbers were dropped; report this as a bug",
                    _ => "its numbers were dropped; mend it, or leave it out",
                },
            ));
        }
        if context.verify {
            return Ok(None);
        }
        let per_sample = spans::by_sample(outcome.results.iter().map(|(spans, _, _)| spans));
        let mut caveats = planned.caveats.clone();
        caveats.extend(outcome.caveats);
        caveats.extend(context.cut_short(per_sample.len() as u32, samples, "bounded in time"));
        let mut step = Step {
            threads: planned.cpus.len() as u32,
            cpus: planned.cpus.clone(),
            caveats,
            samples_ns: per_sample.iter().map(spans::elapsed).collect(),
            units_per_sample: outcome.results[0].1,
            warmup_samples: 0,
            per_thread: per_sample.last().map(spans::relative).unwrap_or_default(),
            disturbance: outcome.disturbance,
        };
        step.caveats.extend(spans::too_short(&step, context.clock_step));
        // Alone, a thread waits for nobody, and there are no levels to tell apart.
        let levels = stats::two_levels(&stats::unit_times(&step)).filter(|_| step.threads > 1);
        if let Some((low_ns, high_ns)) = levels {
            step.caveats.push(Caveat::Bimodal { low_ns, high_ns });
        }
        let summary = stats::barrier(&step);
        Ok(Some(BarrierStep {
            step,
            algorithm: planned.algorithm.name().to_owned(),
            wait: planned.wait,
            spread: planned.spread.name().to_owned(),
            late_ns: 0,
            work_ns: 0,
            work_bytes: Bytes(0),
            summary,
        }))
    }
}

/// Times `episodes` episodes as this thread sees them.
#[inline]
fn batch<B: Barrier>(seat: &Seat<'_>, barrier: &B, member: &mut B::Member, episodes: u64) -> (Nanos, Nanos) {
    seat.meet();
    let start = seat.now();
    for _ in 0..episodes {
        // Hidden from the compiler, which would see that a thread alone waits for nobody and drop the loop.
        barrier.wait(black_box(&mut *member));
    }
    (start, seat.now())
}

/// A few episodes in which every thread says that it has entered and looks whether all others had: no number is written
/// for a barrier that lets somebody through early. Returns how often that was seen.
fn verify<B: Barrier>(seat: &Seat<'_>, barrier: &B, member: &mut B::Member, entered: &[AtomicU64]) -> u64 {
    const EPISODES: u64 = 20;
    let mut early = 0;
    for episode in 1..=EPISODES {
        // Relaxed: the barrier under test has to order them.
        entered[seat.index].store(episode, Ordering::Relaxed);
        barrier.wait(member);
        early += entered.iter().filter(|other| other.load(Ordering::Relaxed) < episode).count() as u64;
    }
    early
}
