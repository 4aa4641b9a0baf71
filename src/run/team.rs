//! The thread team: created, pinned, pin read back, met at a start line; watched before, between and after. Who creates
//! the threads is a [`Crew`].

use super::clock::{Clock, thread_cpu_time};
use super::{affinity, watch};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::machine::{Counters, ThreadCounters};
use crate::record::{Detours, Disturbance};
use crate::units::{CpuId, Nanos};
use crossbeam_utils::CachePadded;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

/// What a team leaves behind: the threads' own results in thread order, and what disturbed them.
#[derive(Debug)]
pub struct TeamOutcome<R> {
    /// One result a thread.
    pub results: Vec<R>,
    /// What the system did around the work.
    pub disturbance: Disturbance,
    /// Pins not honoured, preemption, steal …
    pub caveats: Vec<Caveat>,
}

/// A thread's place in its team.
#[derive(Debug)]
pub struct Seat<'team> {
    /// Thread number, 0 to `threads` − 1.
    pub index: usize,
    /// The CPU it was asked onto.
    pub cpu: CpuId,
    /// The team's common clock.
    pub clock: Clock,
    shared: &'team Shared,
    agreements: usize,
}

/// Shared words of a team. The meeting point is for harness use outside timed sections; measured barriers are in
/// [`crate::barrier`].
#[derive(Debug)]
struct Shared {
    threads: u32,
    arrived: CachePadded<AtomicU32>,
    generation: CachePadded<AtomicU32>,
    /// Set when a thread panicked: the others would wait for it for ever.
    broken: AtomicBool,
    /// Threads that have done their work, or died.
    gone: AtomicU32,
    /// Two slots in turn: a slow reader of one agreement cannot see the next one's value.
    agreed: [CachePadded<AtomicU64>; 2],
}

impl Shared {
    /// After a panic: gives the others time to notice at a meeting. Those that wait in a barrier under test never will, and
    /// a process that spins for ever is worse than one that ends: the record keeps what was measured.
    fn end_or_abort(&self) {
        for _ in 0..200 {
            if self.gone.load(Ordering::Relaxed) == self.threads {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::process::abort();
    }
}

/// Payload with which a thread leaves a broken team without printing.
struct TeamBroken;

impl Seat<'_> {
    /// Spins of the meeting point before it starts to give its CPU away (a team may have more threads than CPUs).
    const SPINS: u32 = 20_000;

    /// Waits until the whole team is here.
    pub fn meet(&self) {
        let shared = self.shared;
        // Orderings as in `barrier::SenseReversing`: the increment releases and acquires, the generation publishes.
        let generation = shared.generation.load(Ordering::Acquire);
        if shared.arrived.fetch_add(1, Ordering::AcqRel) == shared.threads - 1 {
            shared.arrived.store(0, Ordering::Relaxed);
            shared.generation.fetch_add(1, Ordering::Release);
            return;
        }
        let mut spins = 0;
        while shared.generation.load(Ordering::Acquire) == generation {
            if spins < Self::SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                if shared.broken.load(Ordering::Relaxed) {
                    resume_unwind(Box::new(TeamBroken));
                }
                std::thread::yield_now();
            }
        }
    }

    /// Meets, and gives every thread the value that thread 0 computes.
    pub fn agree(&mut self, decide: impl FnOnce() -> u64) -> u64 {
        let slot = &self.shared.agreed[self.agreements % 2];
        self.agreements += 1;
        if self.index == 0 {
            // Relaxed here and below: the meeting orders them.
            slot.store(decide(), Ordering::Relaxed);
        }
        self.meet();
        slot.load(Ordering::Relaxed)
    }

    /// Meets, and agrees whether to go on.
    pub fn go_on(&mut self, decide: impl FnOnce() -> bool) -> bool {
        self.agree(|| u64::from(decide())) == 1
    }

    /// Time by the team's clock.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }
}

/// Whether the threads may leave the gate.
#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Closed,
    Open,
    Cancelled,
}

/// Who starts the threads of a team.
pub trait Crew {
    /// Calls `body` with each number below `threads`, each on a thread of its own and all at the same time, and returns when
    /// all these calls have. `body` does not panic.
    ///
    /// # Errors
    /// When there are not that many threads. Then `body` was called on none of them.
    fn start(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) -> Result<()>;
}

/// Threads of the standard library.
#[derive(Debug)]
pub struct StdThreads;

impl Crew for StdThreads {
    fn start(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) -> Result<()> {
        let gate = (Mutex::new(Gate::Closed), Condvar::new());
        let set_gate = |state| {
            *gate.0.lock().unwrap_or_else(|poison| poison.into_inner()) = state;
            gate.1.notify_all();
        };
        std::thread::scope(|scope| {
            for index in 0..threads {
                let gate = &gate;
                let behind_gate = move || {
                    let closed = gate.0.lock().unwrap_or_else(|poison| poison.into_inner());
                    let state = gate.1.wait_while(closed, |state| *state == Gate::Closed);
                    let state = *state.unwrap_or_else(|poison| poison.into_inner());
                    if state == Gate::Open {
                        body(index);
                    }
                };
                let thread = std::thread::Builder::new().name(format!("membar-{index}"));
                if let Err(reason) = thread.spawn_scoped(scope, behind_gate) {
                    set_gate(Gate::Cancelled);
                    return Err(Error::refused(
                        format!("start thread {} of {threads}", index + 1),
                        reason,
                        "raise the limit on processes (ulimit -u, the cgroup's pids.max) or use fewer --threads",
                    ));
                }
            }
            set_gate(Gate::Open);
            Ok(())
        })
    }
}

/// Runs `work` on one pinned thread for each of `cpus` (repeats allowed), and returns when all are done.
///
/// # Errors
/// When the system refuses a thread. A panic in `work` ends the team and is returned as an error.
pub fn run<R: Send>(cpus: &[CpuId], clock: Clock, work: impl Fn(Seat<'_>) -> R + Sync) -> Result<TeamOutcome<R>> {
    run_by(&StdThreads, cpus, clock, work)
}

/// As [`run`], on threads that `crew` starts.
///
/// # Errors
/// As [`run`].
pub fn run_by<R: Send>(
    crew: &impl Crew,
    cpus: &[CpuId],
    clock: Clock,
    work: impl Fn(Seat<'_>) -> R + Sync,
) -> Result<TeamOutcome<R>> {
    let shared = Shared {
        threads: cpus.len() as u32,
        arrived: CachePadded::default(),
        generation: CachePadded::default(),
        broken: AtomicBool::new(false),
        gone: AtomicU32::new(0),
        agreed: Default::default(),
    };
    let members: Vec<Mutex<Option<Member<R>>>> = cpus.iter().map(|_| Mutex::new(None)).collect();
    let before = Counters::now();
    let start = clock.now();

    crew.start(cpus.len(), &|index| {
        let seat = Seat { index, cpu: cpus[index], clock, shared: &shared, agreements: 0 };
        let outcome = catch_unwind(AssertUnwindSafe(|| member(seat, &work)));
        if outcome.is_err() {
            shared.broken.store(true, Ordering::Relaxed);
        }
        shared.gone.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(member) => *members[index].lock().unwrap_or_else(|poison| poison.into_inner()) = Some(member),
            Err(_) => shared.end_or_abort(),
        }
    })?;

    let elapsed = Nanos(clock.now().0 - start.0);
    let members = members.into_iter().map(|member| member.into_inner().unwrap_or_else(|poison| poison.into_inner()));
    let members: Option<Vec<Member<R>>> = members.collect();
    let Some(members) = members else {
        return Err(Error::refused("finish a step", "one of its threads panicked", "report this as a bug"));
    };

    let mut caveats: Vec<Caveat> = members.iter().filter_map(|member| member.pin.clone()).collect();
    let disturbance = Disturbance {
        counters: before.delta(&Counters::now()),
        involuntary_switches: members.iter().filter_map(|member| Some(member.switches?.involuntary_switches)).sum(),
        voluntary_switches: members.iter().map(|member| Some(member.switches?.voluntary_switches)).sum(),
        off_cpu_ns: members.iter().map(|member| member.off_cpu_ns).max().unwrap_or(0),
        detours: members.iter().map(|member| member.detours).collect(),
    };
    caveats.extend(watch::caveats(&disturbance, cpus, elapsed));
    Ok(TeamOutcome { results: members.into_iter().map(|member| member.result).collect(), disturbance, caveats })
}

/// What one thread brings back.
struct Member<R> {
    result: R,
    pin: Option<Caveat>,
    switches: Option<ThreadCounters>,
    off_cpu_ns: u64,
    detours: Detours,
}

/// The life of one thread of a team.
fn member<R>(seat: Seat<'_>, work: &(impl Fn(Seat<'_>) -> R + Sync)) -> Member<R> {
    let pin = affinity::pin(seat.cpu);
    let cpu = seat.cpu;
    seat.meet();
    let detours = watch::detours(seat.clock);
    let before = ThreadCounters::now();
    let (clock, start) = (seat.clock, seat.now());
    let cpu_before = thread_cpu_time();
    let result = work(seat);
    let cpu_after = thread_cpu_time();
    let wall = clock.now().0 - start.0;
    let off_cpu_ns = match (cpu_before, cpu_after) {
        (Some(before), Some(after)) => wall.saturating_sub(after.0 - before.0),
        _ => 0,
    };
    let switches = before.zip(ThreadCounters::now()).map(|(before, after)| before.delta(&after));
    // Asked again after the work: a CPU that goes offline moves its threads without telling them.
    let seen = affinity::observed();
    let mask = crate::machine::current_affinity();
    let got = if seen.contains(cpu) { mask } else { seen };
    let moved = (got.len() != 1 || !got.contains(cpu)).then_some(Caveat::PinNotHonoured { asked: cpu, got });
    Member { result, pin: pin.or(moved), switches, off_cpu_ns, detours }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(threads: usize) -> Vec<CpuId> {
        crate::machine::current_affinity().iter().cycle_to(threads)
    }

    /// Repeats the allowed CPUs until there are enough.
    trait CycleTo {
        fn cycle_to(self, threads: usize) -> Vec<CpuId>;
    }

    impl<I: Iterator<Item = CpuId>> CycleTo for I {
        fn cycle_to(self, threads: usize) -> Vec<CpuId> {
            let all: Vec<CpuId> = self.collect();
            all.iter().copied().cycle().take(threads).collect()
        }
    }

    #[test]
    fn threads_run_where_asked_and_in_order() {
        let cpus = cpus(2);
        let outcome = run(&cpus, Clock::start(), |seat| (seat.index, affinity::observed())).unwrap();
        for (index, (seat, seen)) in outcome.results.iter().enumerate() {
            assert_eq!(*seat, index);
            assert!(seen.contains(cpus[index]));
        }
    }

    #[test]
    fn all_threads_agree_with_the_first() {
        let outcome = run(&cpus(4), Clock::start(), |mut seat| {
            let values: Vec<u64> = (0..1000).map(|round| seat.agree(|| round * 3)).collect();
            values
        })
        .unwrap();
        for values in outcome.results {
            assert!(values.iter().enumerate().all(|(round, value)| *value == round as u64 * 3));
        }
    }

    #[test]
    fn a_panic_ends_the_team_instead_of_hanging_it() {
        let silent = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let outcome = run(&cpus(3), Clock::start(), |seat| {
            assert!(seat.index != 1, "on purpose");
            seat.meet();
        });
        std::panic::set_hook(silent);
        assert!(outcome.unwrap_err().to_string().contains("panicked"));
    }

    #[test]
    fn a_thread_that_is_moved_while_it_works_is_a_caveat() {
        // What the kernel does to the threads of a CPU that goes offline.
        let cpus: Vec<CpuId> = crate::machine::current_affinity().iter().take(2).collect();
        let [asked, other] = cpus[..] else { return };
        let outcome = run(&[asked], Clock::start(), |_| drop(affinity::pin(other))).unwrap();
        let moved = Caveat::PinNotHonoured { asked, got: std::iter::once(other).collect() };
        assert!(outcome.caveats.contains(&moved), "{:?}", outcome.caveats);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_a_caveat() {
        let outcome = run(&[CpuId(5000)], Clock::start(), |_| ()).unwrap();
        assert!(matches!(outcome.caveats[0], Caveat::PinNotHonoured { asked: CpuId(5000), .. }));
    }
}
