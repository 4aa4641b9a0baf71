//! Barriers: episodes in batches, all threads arriving together, one late, or each after some work.

mod trace;
mod work;

use super::activation::Activations;
use super::team::{self, Crew, Seat, StdThreads};
use super::{Context, Outcome, calibrate, openmp, spans};
use crate::barrier::{Barrier, WithBarrier};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel, Reader};
use crate::machine::IsaSet;
use crate::memory::Buffer;
use crate::plan::Subject;
use crate::plan::barrier::{Plan, Step as Planned, Work};
use crate::plan::experts::layout::lines_of;
use crate::record::{BarrierStep, Line, Step};
use crate::stats;
use crate::units::{Bytes, Nanos, Threads};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use trace::Stamp;
use work::{Between, Means, Ready};

/// After this an oversubscribed step takes no new sample: an episode may cost a scheduler's time slice for every thread.
const OVERSUBSCRIBED_NS: u64 = 500_000_000;

/// What each thread saw is recorded of so many threads: hundreds of steps with hundreds of threads would fill a record, and all
/// leave a barrier together.
const EACH_THREAD: usize = 16;

/// Stamps of two CPUs that are farther apart than this are no fault of the clock: the kernel uses a time-stamp counter only if
/// CPUs agree on it to less. A guess on the large side.
const CLOCKS_APART_NS: u64 = 1_000;

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
        let outcomes: Vec<Outcome> = match measured {
            // A process of its own is stopped at once, and what it had measured is lost.
            Ok(lines) if lines.is_empty() && context.stop.is_interrupted() => {
                context.leave_out(&what)?;
                continue;
            }
            Ok(lines) => {
                let missing = if context.verify { &[] } else { &planned.works[lines.len().min(planned.works.len())..] };
                let reason = context.stop_reason().unwrap_or("bounded in time");
                let left =
                    missing.iter().map(|work| LeftOut { what: format!("{what}, {work}"), reason: reason.into() });
                let left: Vec<Outcome> = left.map(Outcome::LeftOut).collect();
                let lines = lines.into_iter().map(|line| Outcome::Measured(Box::new(Line::Barrier(line))));
                lines.chain(left).collect()
            }
            Err(error) => vec![Outcome::Failed(error)],
        };
        for outcome in outcomes {
            (context.outcome)(outcome)?;
        }
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

/// What one thread saw.
#[derive(Default)]
struct Thread {
    /// For each kind of work.
    rounds: Vec<Round>,
    stamps: Vec<Stamp>,
    caveat: Option<Caveat>,
}

/// One thread's samples of one kind of work.
#[derive(Default)]
struct Round {
    episodes: u64,
    with: Vec<(Nanos, Nanos)>,
    without: Vec<(Nanos, Nanos)>,
}

/// No barrier: what the same work costs alone.
struct Open;

impl Barrier for Open {
    type Member = ();

    fn member(&self, _thread: usize) {}

    #[inline]
    fn wait(&self, (): &mut ()) {}
}

impl<C: Crew> WithBarrier for Measurement<'_, '_, C> {
    type Output = Result<Vec<BarrierStep>>;

    fn call<B: Barrier>(self, barrier: &B) -> Result<Vec<BarrierStep>> {
        let Measurement { plan, planned, context, crew } = self;
        let threads = planned.cpus.len();
        let oversubscribed = planned.caveats.iter().any(|caveat| matches!(caveat, Caveat::Oversubscribed { .. }));
        let bound = Nanos(if oversubscribed { OVERSUBSCRIBED_NS } else { u64::MAX });
        let stop = context.stop;
        let samples = if context.verify { 0 } else { plan.samples };
        let traced = if context.verify || oversubscribed { 0 } else { planned.traced_episodes };
        let entered: Vec<AtomicU64> = planned.cpus.iter().map(|_| AtomicU64::new(0)).collect();
        let seen_early = AtomicU64::new(0);
        // A check asks whether the barrier keeps its contract; with work between it would ask nothing else.
        let works = if context.verify { &planned.works[..planned.works.len().min(1)] } else { &planned.works[..] };
        let reader = works.iter().any(|work| work.streams()).then(|| reader(planned)).transpose()?;
        let longest = works.iter().map(|work| match work {
            Work::Exchange(bytes) => lines_of(bytes.0),
            _ => 0,
        });
        let vectors = Activations::new(longest.max().unwrap_or(0) as usize);

        let outcome = team::run_by(crew, &planned.cpus, context.clock, |mut seat| -> Result<Thread> {
            let mut member = barrier.member(seat.index);
            let start = seat.now();
            let clock = seat.clock;
            // Relaxed: the meeting orders it.
            let check = |seat: &Seat<'_>, member: &mut B::Member, first: u64| {
                seen_early.fetch_add(verify(seat, barrier, member, &entered, first), Ordering::Relaxed);
                seat.meet();
                seen_early.load(Ordering::Relaxed) == 0
            };
            if !check(&seat, &mut member, 0) {
                return Ok(Thread::default());
            }
            let late = move |now: Nanos| stop.reason(now).is_some() || now.0 - start.0 >= bound.0;

            let own = planned.stream.as_ref().filter(|_| reader.is_some()).map(|stream| {
                let bytes = Bytes(stream.bytes.0 / threads as u64);
                work::own_memory(bytes, seat.index, planned.nodes.get(seat.index).copied().flatten())
            });
            // All threads go on or none does: a barrier waits for everybody.
            let (own, failure) = match own.transpose() {
                Ok(own) => (own, None),
                Err(error) => (None, Some(error)),
            };
            let (memory, caveat) = own.map_or((None, None), |(memory, caveat)| (Some(memory), caveat));
            let means = Means {
                thread: (seat.index, threads),
                clock,
                stream: reader.zip(memory.as_ref().map(Buffer::lines)),
                vectors: &vectors,
            };
            let mut ready: Vec<Ready<'_>> = works.iter().map(|work| Ready::new(*work, &means)).collect();
            let mut rounds: Vec<Round> = Vec::with_capacity(ready.len());
            for ready in &mut ready {
                // What follows the first may last a second an episode: it does not begin when it is late.
                if !seat.go_on(|| rounds.is_empty() || !late(clock.now())) {
                    break;
                }
                let least = Nanos(plan.sample_least_ns);
                let episodes = calibrate::units(&mut seat, least, late, |seat, episodes| {
                    let (start, finish) = ready.batch(seat, barrier, &mut member, episodes);
                    Nanos(finish.0 - start.0)
                });
                let empty = || Vec::with_capacity(samples as usize);
                rounds.push(Round { episodes, with: empty(), without: empty() });
            }
            for sample in 0..samples {
                // One sample is taken whatever it costs: without it the step says nothing.
                if !seat.go_on(|| sample == 0 || !late(clock.now())) {
                    break;
                }
                for ((round, ready), work) in rounds.iter_mut().zip(&mut ready).zip(works) {
                    if *work == Work::Nothing {
                        round.with.push(ready.batch(&seat, barrier, &mut member, round.episodes));
                    } else if sample < plan.work_samples {
                        round.with.push(ready.batch(&seat, barrier, &mut member, round.episodes));
                        round.without.push(ready.batch(&seat, &Open, &mut (), round.episodes));
                    }
                }
            }
            // As many as twenty samples have, where a barrier is slow.
            let most = rounds.first().map_or(0, |round| round.episodes.saturating_mul(20));
            let traced = if seat.go_on(|| !late(clock.now())) { u64::from(traced).min(most) } else { 0 };
            let stamps = stamps(&seat, barrier, &mut member, traced);
            // Once more: a barrier may be right at first.
            check(&seat, &mut member, CHECKED);
            failure.map_or(Ok(Thread { rounds, stamps, caveat }), Err)
        })?;

        let results: Vec<Thread> = outcome.results.into_iter().collect::<Result<_>>()?;
        let early = seen_early.into_inner();
        let untrusted = |reason: String| {
            let advice = match planned.algorithm {
                Subject::Row(_) => "its numbers were dropped; report this as a bug",
                _ => "its numbers were dropped; mend it, or leave it out",
            };
            Error::refused(format!("trust the barrier {}", planned.algorithm.name()), reason, advice)
        };
        if early > 0 {
            return Err(untrusted(format!("threads left it {early} times before all had come")));
        }
        if context.verify {
            return Ok(Vec::new());
        }
        let stamps: Vec<&[Stamp]> = results.iter().map(|thread| &thread.stamps[..]).collect();
        let (trace, untraced) = match trace::trace(&stamps, context.clock_step) {
            Ok(trace) => (trace, None),
            // Clocks of CPUs differ by less, or the kernel would not use them.
            Err(by_ns) if by_ns > CLOCKS_APART_NS => {
                let seen = format!("a thread was seen to leave it {} before the last one came", Nanos(by_ns));
                return Err(untrusted(seen));
            }
            Err(by_ns) => (None, Some(Caveat::ClocksDisagree { by_ns })),
        };
        let mut traces = [trace].into_iter();
        let each = threads <= EACH_THREAD;
        let mut disturbance = outcome.disturbance;
        if !each {
            disturbance.detours.clear();
        }
        let mut disturbances = [disturbance].into_iter();
        let one = |(index, work): (usize, &Work)| {
            let idle = *work == Work::Nothing;
            let with = spans::by_sample(results.iter().map(|thread| &thread.rounds[index].with));
            let without = spans::by_sample(results.iter().map(|thread| &thread.rounds[index].without));
            let mut caveats = planned.caveats.clone();
            caveats.extend(outcome.caveats.iter().cloned());
            if work.streams() {
                caveats.extend(planned.stream.iter().flat_map(|stream| stream.caveats.iter().cloned()));
                caveats.extend(results.iter().filter_map(|thread| thread.caveat.clone()));
            }
            caveats.extend(untraced.clone().filter(|_| idle));
            let asked = if idle { samples } else { samples.min(plan.work_samples) };
            caveats.extend(context.cut_short(with.len() as u32, asked, "bounded in time"));
            let mut step = Step {
                threads: threads as u32,
                cpus: planned.cpus.clone(),
                caveats,
                samples_ns: with.iter().map(spans::elapsed).collect(),
                units_per_sample: results[0].rounds[index].episodes,
                warmup_samples: 0,
                per_thread: with.last().filter(|_| each).map(spans::relative).unwrap_or_default(),
                // Once for all that these threads did.
                disturbance: disturbances.next().unwrap_or_default(),
            };
            step.caveats.extend(spans::too_short(&step, context.clock_step));
            // Alone, a thread waits for nobody, and there are no levels to tell apart.
            let levels = stats::two_levels(&stats::unit_times(&step)).filter(|_| step.threads > 1);
            if let Some((low_ns, high_ns)) = levels {
                step.caveats.push(Caveat::Bimodal { low_ns, high_ns });
            }
            let without_ns: Vec<u64> = without.iter().map(spans::elapsed).collect();
            let trace = if idle { traces.next().flatten() } else { None };
            let summary = stats::barrier(&step, &without_ns, trace.as_ref());
            let mut line = BarrierStep {
                step,
                algorithm: planned.algorithm.name().to_owned(),
                wait: planned.wait,
                spread: planned.spread.name().to_owned(),
                late_ns: 0,
                work_ns: 0,
                work_bytes: Bytes(0),
                exchange_bytes: Bytes(0),
                without_ns,
                trace,
                summary,
            };
            match *work {
                Work::Nothing => {}
                Work::Late(time) => line.late_ns = time.0,
                Work::Compute(time) => line.work_ns = time.0,
                Work::Stream(bytes) => line.work_bytes = bytes,
                Work::Exchange(bytes) => line.exchange_bytes = bytes,
            }
            line
        };
        let measured = results.first().map_or(0, |thread| thread.rounds.len());
        Ok(works.iter().enumerate().take(measured).map(one).collect())
    }
}

/// The kernel that streams.
fn reader(planned: &Planned) -> Result<Reader> {
    let missing = || Error::refused("read memory between barriers", "no kernel was planned", "report this as a bug");
    let row = Kernel::find(&planned.stream.as_ref().ok_or_else(missing)?.kernel)?;
    let kernel = Kernel::new(row, &IsaSet::detect())
        .map_err(|reason| Error::refused(format!("run the kernel {}", row.name), reason, "report this as a bug"))?;
    kernel::check(kernel)?;
    kernel.reader().ok_or_else(missing)
}

impl Ready<'_> {
    /// Times `episodes` episodes with this work before each, as this thread sees them.
    fn batch<B: Barrier>(
        &mut self,
        seat: &Seat<'_>,
        barrier: &B,
        member: &mut B::Member,
        episodes: u64,
    ) -> (Nanos, Nanos) {
        match self {
            Ready::Nothing => batch(seat, barrier, member, &mut work::Nothing, episodes),
            Ready::Compute(work) => batch(seat, barrier, member, work, episodes),
            Ready::Stream(work) => batch(seat, barrier, member, work, episodes),
            Ready::Exchange(work) => batch(seat, barrier, member, work, episodes),
        }
    }
}

#[inline]
fn batch<B: Barrier>(
    seat: &Seat<'_>,
    barrier: &B,
    member: &mut B::Member,
    work: &mut impl Between,
    episodes: u64,
) -> (Nanos, Nanos) {
    seat.meet();
    let start = seat.now();
    for _ in 0..episodes {
        work.act();
        // Hidden from the compiler, which would see that a thread alone waits for nobody and drop the loop.
        barrier.wait(black_box(&mut *member));
    }
    (start, seat.now())
}

/// Episodes with a stamp before and after each.
fn stamps<B: Barrier>(seat: &Seat<'_>, barrier: &B, member: &mut B::Member, episodes: u64) -> Vec<Stamp> {
    let mut stamps = vec![(Nanos(0), Nanos(0)); episodes as usize];
    seat.meet();
    for stamp in &mut stamps {
        let came = seat.now();
        barrier.wait(black_box(&mut *member));
        *stamp = (came, seat.now());
    }
    stamps
}

/// Episodes of a check.
const CHECKED: u64 = 20;

/// A few episodes in which every thread says that it has entered and looks whether all others had: no number is written
/// for a barrier that lets somebody through early. One thread in turn comes late, by up to a third of a millisecond: who does
/// not wait long enough for it is seen. Returns how often that was. `first` is how many episodes were checked before.
fn verify<B: Barrier>(seat: &Seat<'_>, barrier: &B, member: &mut B::Member, entered: &[AtomicU64], first: u64) -> u64 {
    const LATE_NS: [u64; 4] = [0, 1_000, 20_000, 300_000];
    let mut early = 0;
    for episode in first + 1..=first + CHECKED {
        if (episode as usize / LATE_NS.len() + seat.index).is_multiple_of(entered.len()) {
            let until = seat.now().0 + LATE_NS[episode as usize % LATE_NS.len()];
            while seat.now().0 < until {
                spin_loop();
            }
        }
        // Relaxed: the barrier under test has to order them.
        entered[seat.index].store(episode, Ordering::Relaxed);
        barrier.wait(member);
        early += entered.iter().filter(|other| other.load(Ordering::Relaxed) < episode).count() as u64;
    }
    early
}
