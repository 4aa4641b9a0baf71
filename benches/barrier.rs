//! What an episode of each barrier costs on one thread, on two and on all, as the planner spreads them: in one last-level
//! cache or the tightest domain that holds them, and over several caches in turn where there are several.
//!
//! `cargo bench -- barrier` compares with the last run, so a change to a barrier is judged with statistics.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use criterion::{Criterion, criterion_group, criterion_main};
use membar::barrier::{Barrier, WithBarrier};
use membar::machine::Machine;
use membar::plan::barrier::{Options, Spread, plan};
use membar::plan::{Scope, Subject};
use membar::run::clock::Clock;
use membar::run::team;
use membar::units::CpuId;
use std::hint::black_box;
use std::time::Duration;

/// A batch of episodes by a team of its own, timed by its first thread.
struct Episodes<'a> {
    cpus: &'a [CpuId],
    episodes: u64,
}

impl WithBarrier for Episodes<'_> {
    type Output = Duration;

    fn call<B: Barrier>(self, barrier: &B) -> Duration {
        let outcome = team::run(self.cpus, Clock::start(), |seat| {
            let mut member = barrier.member(seat.index);
            seat.meet();
            let start = seat.now();
            for _ in 0..self.episodes {
                barrier.wait(black_box(&mut member));
            }
            Duration::from_nanos(seat.now().0 - start.0)
        });
        outcome.expect("a team can be started").results[0]
    }
}

fn barriers(criterion: &mut Criterion) {
    let machine = Machine::this_system().expect("this machine can be read");
    let scope = Scope::new(&machine, None, None).expect("some CPU is allowed");
    let threads = format!("1,2,{}", scope.cpus.len()).parse().expect("a list of counts");
    let plan = plan(&machine, &scope, &Options { threads: Some(threads), ..Options::default() }).expect("some step");
    // Over nodes and packages in turn is, on most machines, over caches in turn.
    let wider = [Spread::ScatterNode, Spread::ScatterSocket];
    for step in plan.steps.iter().filter(|step| !wider.contains(&step.spread)) {
        // A runtime's threads are its own, in a process of its own.
        let Subject::Row(algorithm) = step.algorithm else { continue };
        let (name, threads) = (algorithm.name(), step.cpus.len());
        let seating = plan.caches.seating(&step.cpus, step.wait);
        criterion.bench_function(&format!("barrier/{name}/{threads}t/{}", step.spread.name()), |bencher| {
            bencher.iter_custom(|episodes| algorithm.with(&seating, Episodes { cpus: &step.cpus, episodes }));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = barriers
}
criterion_main!(benches);
