//! What the machinery itself costs: a barrier episode, an empty kernel call, a clock read, a plan for a large machine.
//!
//! `cargo bench -- barrier` compares with the last run, so a change to a barrier is judged with statistics.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use criterion::{Criterion, criterion_group, criterion_main};
use membar::barrier::{Algorithm, Barrier, WithBarrier};
use membar::kernel::{Kernel, Operands, Operation};
use membar::machine::{IsaSet, Machine};
use membar::plan::{self, Preset, Scope};
use membar::run::clock::Clock;
use membar::run::team;
use membar::units::{CpuId, CpuSet};
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
    let allowed: CpuSet = membar::machine::current_affinity();
    let cpus: Vec<CpuId> = allowed.iter().take(2).collect();
    for algorithm in Algorithm::ALL {
        for threads in 1..=cpus.len() {
            let wait = algorithm.row().waits[0];
            criterion.bench_function(&format!("barrier/{}/{threads}", algorithm.name()), |bencher| {
                bencher.iter_custom(|episodes| {
                    algorithm.with(threads, wait, Episodes { cpus: &cpus[..threads], episodes })
                });
            });
        }
    }
}

fn kernels(criterion: &mut Criterion) {
    let isa = IsaSet::detect();
    let read = Kernel::best(Operation::Read, None, &isa).expect("some reader runs everywhere");
    criterion.bench_function("kernel/empty_call", |bencher| {
        bencher.iter(|| read.run(&mut Operands { dst: &mut [], a: black_box(&[]), b: &[] }, 1));
    });
}

fn clock(criterion: &mut Criterion) {
    let clock = Clock::start();
    criterion.bench_function("clock/read", |bencher| bencher.iter(|| clock.now()));
}

fn plans(criterion: &mut Criterion) {
    let source = "synthetic:\"pack:4 numa:8 l3:4 core:8 pu:2\"";
    let machine = Machine::from_source(source).expect("hwloc builds it");
    let isa = IsaSet::detect();
    criterion.bench_function("plan/2048_cpus", |bencher| {
        bencher.iter(|| {
            let scope = Scope::new(&machine, None, None).expect("it has CPUs");
            let stream = plan::stream::plan(&machine, &scope, &isa, &plan::stream::Options::default());
            let latency = plan::latency::Options { preset: Preset::Default, ..Default::default() };
            let latency = plan::latency::plan(&machine, &scope, &latency);
            let barrier = plan::barrier::plan(&machine, &scope, &plan::barrier::Options::default());
            let experts = plan::experts::Plan::new(&machine, &plan::experts::Options::new(scope.cpus.clone()));
            (stream.is_ok(), latency.pairs.len(), barrier.is_ok(), experts.is_ok())
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = barriers, kernels, clock, plans
}
criterion_main!(benches);
