//! What the machinery itself costs: an empty kernel call, a clock read, a plan for a large machine, moving from one pair of
//! CPUs to the next; and how fast the dot kernels compute where memory does not hold them up.

// Test code may unwrap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use membar::kernel::dot::Dot;
use membar::kernel::{Kernel, Operands, Operation};
use membar::machine::{IsaSet, Machine};
use membar::plan::latency::{Home, Pair, Planned, Protocol};
use membar::plan::{self, Class, Preset, Scope};
use membar::run::clock::Clock;
use membar::run::{Context, Outcome, Stop};
use membar::units::{CpuId, CpuSet, Nanos};
use std::hint::black_box;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

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

/// One measurement of a pair of CPUs as on a large machine: two threads that swap their CPUs each time, a fresh page, five short
/// samples. What goes beyond the length of the samples is what a plan reckons for moving on.
fn latency(criterion: &mut Criterion) {
    let allowed: CpuSet = membar::machine::current_affinity();
    let Ok([a, b]) = <[CpuId; 2]>::try_from(allowed.iter().take(2).collect::<Vec<_>>()) else { return };
    let clock = Clock::start();
    let signal = AtomicUsize::new(0);
    let mut group = criterion.benchmark_group("latency");
    group.sample_size(10);
    for (name, sample_least_ns) in [("pair", 100_000), ("moving", 1_000)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|pairs| {
                let planned = |turn| Planned {
                    pair: if turn % 2 == 0 {
                        Pair { a, b, class: Class::L3 }
                    } else {
                        Pair { a: b, b: a, class: Class::L3 }
                    },
                    homes: vec![Home::FirstCpu(None)],
                    protocols: vec![Protocol::Cas],
                };
                // At least as many as share two threads.
                let measured = pairs.max(256);
                let plan = plan::latency::Plan {
                    pairs: (0..measured).map(planned).collect(),
                    protocols: vec![Protocol::Cas],
                    samples: 5,
                    sample_least_ns,
                    left_out: Vec::new(),
                };
                let stop = Stop { signal: &signal, deadline: None };
                let mut outcome = |_: Outcome| Ok(());
                let clock_step = Nanos(10);
                let mut context = Context { clock, stop, outcome: &mut outcome, clock_step, verify: false };
                let start = clock.now();
                membar::run::latency::run(&plan, &mut context).expect("outcomes are taken");
                Duration::from_nanos(((clock.now().0 - start.0) as f64 * pairs as f64 / measured as f64) as u64)
            });
        });
    }
}

/// Every dot kernel that can run here, on 8 rows of 4096 weights: at most 64 KiB, so from the second-level cache. Bytes are those
/// of the weights. The quantisation of a row's activations stands beside it, in bytes of 32-bit floats.
fn dots(criterion: &mut Criterion) {
    const WEIGHTS: usize = 4096;
    const ROWS: usize = 8;
    let isa = IsaSet::detect();
    let mut group = criterion.benchmark_group("dot");
    for dot in Dot::table().iter().filter_map(|row| Dot::new(row, &isa).ok()) {
        let kind = dot.row().weights;
        let mut weights = vec![0; ROWS * kind.row_bytes(WEIGHTS).expect("whole blocks")];
        kind.fill(&mut weights, 0, 1);
        let values: Vec<f32> = (0..WEIGHTS).map(|index| (index % 17) as f32 - 8.0).collect();
        let mut activation = vec![0; kind.activation().vector_bytes(WEIGHTS).expect("whole blocks")];
        dot.quantise(&values, &mut activation).expect("the lengths fit");
        let mut sums = [0.0; ROWS];
        group.throughput(Throughput::Bytes(weights.len() as u64));
        group.bench_function(dot.row().name, |bencher| {
            bencher.iter(|| {
                dot.rows(black_box(&weights), black_box(&activation), &mut sums).expect("the lengths fit");
                sums
            });
        });
        group.throughput(Throughput::Bytes(size_of_val(&*values) as u64));
        group.bench_function(format!("{}/quantise", dot.row().name), |bencher| {
            bencher.iter(|| dot.quantise(black_box(&values), black_box(&mut activation)));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = kernels, clock, plans, dots, latency
}
criterion_main!(benches);
