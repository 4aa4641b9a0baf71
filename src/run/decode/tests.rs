//! Programs without timing, for every model; and a small replay through the whole path.

use super::program::{Op, Piece, Program, Share, compile, compile_roof, whole_ranges};
use super::*;
use crate::barrier::Algorithm;
use crate::machine::OpenMp;
use crate::memory::{Pages, Policy};
use crate::plan::CacheGroups;
use crate::plan::experts::layout::{Layout, read_lines};
use crate::plan::experts::{RoofRule, RoundRule};
use crate::run::Stop;
use crate::run::activation::Area;
use crate::run::clock::Clock;
use crate::units::{Bytes, NodeSet};
use crate::workload::decode::{Phase, Token};
use crate::workload::{BlockType, Engine, Reading, Slicing, Weight, models};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

const THREADS: [usize; 5] = [1, 2, 3, 5, 8];

fn dots() -> Dots {
    Dots::new(Flavour::Engine, &IsaSet::detect(), std::iter::empty()).unwrap()
}

fn sliced(token: &Token, places: &[Option<u64>], threads: usize, arm: Arm, slicing: Slicing) -> Vec<Program> {
    let source = Source { token, places, slicing, dots: &dots() };
    (0..threads).map(|thread| compile(source, Share { thread, threads }, Parts::of(arm))).collect()
}

fn programs(token: &Token, places: &[Option<u64>], threads: usize, arm: Arm) -> Vec<Vec<Op>> {
    sliced(token, places, threads, arm, Slicing::Chunks).into_iter().map(|program| program.ops).collect()
}

/// What each thread takes of the arena, in lines. Threads come one after another, so the first one that comes to shared
/// chunks takes all that nobody begins with; those that come later are told that none are left.
fn lines(programs: &[Program], picks: &Picks, token: usize) -> Vec<Vec<Range<usize>>> {
    let threads = programs.len();
    let counters = RefCell::new(BTreeMap::<u32, u64>::new());
    let of_thread = |(thread, program): (usize, &Program)| {
        let mut ranges = Vec::new();
        let next = |counter, count: u64| {
            let mut counters = counters.borrow_mut();
            let given = counters.entry(counter).or_insert(0);
            *given += 1;
            assert!(*given <= count, "every token must take as many numbers as there are chunks");
            *given - 1 + threads as u64
        };
        for op in &program.ops {
            program.for_each_piece(op, (picks, token), Share { thread, threads }, next, |matrix, piece| match piece {
                Piece::Lines(lines) => ranges.push(lines),
                Piece::Rows(line, rows) => {
                    let lines = matrix.unwrap().lines(&rows);
                    ranges.push(line + lines.start..line + lines.end);
                }
            });
        }
        ranges
    };
    let ranges = programs.iter().enumerate().map(of_thread).collect();
    // As many numbers as chunks: the next token counts on from there.
    let chunks = programs[0].ops.iter().filter(|op| matches!(op, Op::Chunks { .. })).count();
    assert!(counters.borrow().len() >= chunks);
    ranges
}

/// How often each line is covered, as the places where that changes: equal maps mean equal cover.
fn cover(ranges: impl IntoIterator<Item = Range<usize>>) -> BTreeMap<usize, i64> {
    let mut changes = BTreeMap::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        *changes.entry(range.start).or_insert(0) += 1;
        *changes.entry(range.end).or_insert(0) -= 1;
    }
    changes.retain(|_, change| *change != 0);
    changes
}

fn is_stream(op: &Op) -> bool {
    matches!(op, Op::Stream { .. } | Op::Rows { .. } | Op::Chunks { .. } | Op::Span { .. } | Op::Row { .. })
}

/// Calls `check` for every model, its largest and its smallest quantisation, and every number of threads.
fn everywhere(check: impl Fn(&Token, &[Option<u64>], usize, &str)) {
    for model in models().unwrap() {
        for quantization in [&model.quantizations[0], model.quantizations.last().unwrap()] {
            let token = Token::new(model, quantization, Engine::LlamaCpp).unwrap();
            let places = Layout::new(&token, Bytes(0), Bytes(0)).places(&token);
            for threads in THREADS {
                let name = format!("{} {} with {threads} threads", model.name, quantization.name);
                check(&token, &places, threads, &name);
            }
        }
    }
}

#[test]
fn slices_cover_each_selected_matrix_once() {
    everywhere(|token, places, threads, name| {
        let picks = Picks::new(token, 3);
        for slicing in Slicing::ALL {
            for index in [0, 1] {
                let slices = lines(&sliced(token, places, threads, Arm::Read, slicing), &picks, index);
                let whole = whole_ranges(token, places, &picks, index).into_iter().map(|(_, range)| range);
                let all: u64 = token.phases.iter().filter_map(|phase| phase.weight.as_ref()).map(read_lines).sum();
                assert_eq!(whole.clone().map(|range| range.len() as u64).sum::<u64>(), all, "{name}");
                assert_eq!(cover(slices.into_iter().flatten()), cover(whole), "{name} {}", slicing.name());
            }
        }
    });
}

#[test]
fn the_roof_reads_the_same_lines_in_the_longest_slices() {
    everywhere(|token, places, threads, name| {
        let picks = Picks::new(token, 3);
        let roof: Vec<Program> =
            (0..threads).map(|thread| compile_roof(token, places, Share { thread, threads })).collect();
        for index in [0, 1] {
            let whole = whole_ranges(token, places, &picks, index).into_iter().map(|(_, range)| range);
            assert_eq!(cover(lines(&roof, &picks, index).into_iter().flatten()), cover(whole), "{name}");
        }
        let roof = lines(&roof, &picks, 0);
        let sizes = || roof.iter().map(|ranges| ranges.iter().map(ExactSizeIterator::len).sum::<usize>());
        let (least, most) = (sizes().min().unwrap(), sizes().max().unwrap());
        let row = token.phases.iter().filter_map(|phase| phase.weight.as_ref()).map(|weight| weight.row_bytes / 64 + 1);
        assert!(most - least <= 2 * row.max().unwrap() as usize + threads, "{name}: {least} to {most} lines");
        let read = lines(&sliced(token, places, threads, Arm::Read, Slicing::Static), &picks, 0);
        let count = |ranges: &[Vec<Range<usize>>]| ranges.iter().map(Vec::len).sum::<usize>();
        assert!(count(&roof) <= count(&read), "{name}");
    });
}

#[test]
fn every_thread_meets_as_often_as_the_graph_says() {
    everywhere(|token, places, threads, name| {
        for arm in [Arm::Sync, Arm::Full, Arm::Barrier] {
            for program in programs(token, places, threads, arm) {
                let barriers = program.iter().filter(|op| **op == Op::Barrier).count() as u64;
                assert_eq!(barriers, token.barriers(), "{name} {}", arm.name());
            }
        }
        for arm in [Arm::Read, Arm::Dot] {
            let silent = sliced(token, places, threads, arm, Slicing::Static);
            assert!(silent.iter().all(|program| program.ops.iter().all(is_stream)), "{name}");
            // Shared counters must be done with one token before the next begins.
            for program in sliced(token, places, threads, arm, Slicing::Chunks) {
                let barriers = program.ops.iter().filter(|op| **op == Op::Barrier).count();
                let chunks = program.ops.iter().any(|op| matches!(op, Op::Chunks { .. }));
                assert_eq!(barriers, usize::from(chunks), "{name}");
                assert!(barriers == 0 || program.ops.last() == Some(&Op::Barrier), "{name}");
            }
        }
    });
}

#[test]
fn arms_differ_only_in_what_they_should() {
    everywhere(|token, places, threads, name| {
        let arms = [Arm::Read, Arm::Dot, Arm::Sync, Arm::Full, Arm::Traced];
        let [read, dot, sync, full, traced] = &arms.map(|arm| programs(token, places, threads, arm));
        assert_eq!((read, full), (dot, traced), "{name}");
        let only = |program: &[Op], keep: &dyn Fn(&Op) -> bool| -> Vec<Op> {
            program.iter().filter(|op| keep(op)).copied().collect()
        };
        for thread in 0..threads {
            assert_eq!(only(&sync[thread], &is_stream), only(&read[thread], &is_stream), "{name}");
            let without_activations = only(&full[thread], &|op| is_stream(op) || *op == Op::Barrier);
            assert_eq!(without_activations, sync[thread], "{name}");
        }
    });
}

/// Thread, whether it writes, buffer, lines.
type Access = (usize, bool, Area, Range<u32>);

#[test]
fn between_barriers_nobody_writes_what_another_reads_or_writes() {
    everywhere(|token, places, threads, name| {
        let mut sections: Vec<Vec<Access>> = Vec::new();
        let lines = program::activation_lines(token) as u32;
        for (thread, program) in programs(token, places, threads, Arm::Full).iter().enumerate() {
            let mut section = 0;
            for op in program {
                let (writes, area, first, count) = match *op {
                    Op::Barrier => {
                        section += 1;
                        continue;
                    }
                    Op::Take { from, first, lines } | Op::Norm { from, first, lines } => (false, from, first, lines),
                    Op::Put { to, first, lines } => (true, to, first, lines),
                    _ => continue,
                };
                assert!(first + count <= lines, "{name}");
                sections.resize(sections.len().max(section + 1), Vec::new());
                sections[section].push((thread, writes, area, first..first + count));
            }
        }
        for accesses in sections {
            for (thread, _, area, range) in accesses.iter().filter(|(_, writes, ..)| *writes) {
                for (other, _, other_area, other_range) in &accesses {
                    let overlap = range.start < other_range.end && other_range.start < range.end;
                    assert!(thread == other || area != other_area || !overlap, "{name}");
                }
            }
        }
    });
}

#[test]
fn a_phase_reads_what_the_last_one_wrote() {
    everywhere(|token, places, threads, name| {
        // Of thread 0, which has a part in every phase.
        let program = &programs(token, places, threads, Arm::Full)[0];
        let mut written = Area::Even;
        for op in program {
            match *op {
                Op::Put { to, .. } => written = to,
                Op::Take { from, .. } | Op::Norm { from, .. } => {
                    assert!(from == written || written == Area::Copy, "{name}");
                }
                _ => {}
            }
        }
        let reads = |op: &Op, area| matches!(op, Op::Take { from, .. } | Op::Norm { from, .. } if *from == area);
        let takes = |area| program.iter().filter(|op| reads(op, area)).count();
        assert!(takes(Area::Even) > token.phases.len() / 4 && takes(Area::Odd) > token.phases.len() / 4, "{name}");
    });
}

#[test]
fn picks_are_ascending_distinct_and_in_range() {
    for model in models().unwrap() {
        let token = Token::new(model, &model.quantizations[0], Engine::LlamaCpp).unwrap();
        let draws = program::draws(&token);
        assert_eq!(draws.is_empty(), !model.has_experts);
        let picks = Picks::new(&token, 11);
        let mut seen = BTreeSet::new();
        for index in 0..Picks::TOKENS {
            for (draw, (of, picked)) in draws.iter().enumerate() {
                let experts = picks.experts(index, draw as u32);
                assert_eq!(experts.len() as u64, *picked);
                assert!(experts.is_sorted_by(|a, b| a < b) && experts.iter().all(|expert| u64::from(*expert) < *of));
                seen.extend(experts.iter().map(|expert| (draw, *expert)));
            }
            assert!(picks.row(index, 7) < 7);
        }
        // 64 tokens of the sparsest model use most of its experts.
        let all: u64 = draws.iter().map(|(of, _)| of).sum();
        assert!(seen.len() as u64 * 4 >= all * 3, "{}: {} of {all}", model.name, seen.len());
    }
}

#[test]
fn operations_are_small() {
    // A token of the largest graph has about 20,000 a thread, streamed through the cache beside the weights.
    assert!(size_of::<Op>() <= 24);
}

fn phase(op: &'static str, layer: u32, weight: Option<(&str, u64, u64, Reading)>, barriers: u32) -> Phase {
    let weight = weight.map(|(tensor, rows, row_bytes, reading)| {
        let block = (row_bytes % 34 == 0).then_some(BlockType::Q8_0);
        Weight { tensor: tensor.into(), rows, row_bytes, reading, block }
    });
    Phase {
        op,
        layer: Some(layer),
        weight,
        barriers,
        single_thread: op == "GET_ROWS",
        rows: (op == "ADD").then_some(1),
        in_bytes: 4096,
        out_bytes: 2048,
        copy_bytes: 1088 * u64::from(op.starts_with("MUL_MAT")),
    }
}

/// A token with every kind of phase, small enough for a test.
fn small_plan() -> Plan {
    let experts = Reading::Experts { of: 8, picked: 3 };
    let phases = (0..3)
        .flat_map(|layer| {
            [
                phase("GET_ROWS", layer, Some(("table", 50, 100, Reading::OneRow)), 1),
                phase("MUL_MAT", layer, Some(("square", 333, 340, Reading::All)), 2),
                phase("FLASH_ATTN_EXT", layer, None, 2),
                phase("MUL_MAT_ID", layer, Some(("exps", 100, 136, experts)), 2),
                phase("ADD", layer, Some(("bias", 1, 12, Reading::All)), 1),
            ]
        })
        .collect();
    let token = Token { model: "small", quantization: "Q8_0", engine: Engine::LlamaCpp, phases };
    let layout = Layout::new(&token, Bytes(0), Bytes(1 << 20));
    let allowed: Vec<CpuId> = crate::machine::current_affinity().iter().collect();
    let cpus: Vec<CpuId> = allowed.iter().copied().cycle().take(2).collect();
    let with = |threads: usize, barrier, arms: &[Arm], baseline| Configuration {
        cpus: cpus[..threads].to_vec(),
        barrier,
        // Gives the CPU away at once: tests run beside each other.
        wait: Wait::SpinThenYield(100),
        arms: arms.to_vec(),
        baseline,
        caveats: Vec::new(),
    };
    let arms = [Arm::Read, Arm::Dot, Arm::Sync, Arm::Full, Arm::Traced, Arm::Barrier];
    Plan {
        arena_bytes: layout.resident_bytes,
        pages: Pages::Default,
        placement: Policy::FirstTouch,
        memory_nodes: NodeSet::default(),
        slicing: Slicing::Chunks,
        seed: 5,
        models: vec![ModelPlan {
            model: "small",
            quantization: "Q8_0",
            engine: Engine::LlamaCpp,
            bytes_per_token: Bytes(token.bytes()),
            barriers_per_token: token.barriers(),
            layout,
            caveats: vec![Caveat::MemorySizeUnknown],
            token,
        }],
        configurations: vec![
            with(1, Algorithm::Central.into(), &arms, false),
            with(2, Algorithm::Central.into(), &arms, true),
            with(2, Algorithm::Dissemination.into(), &[Arm::Full], false),
        ],
        roof: RoofRule { candidates: vec![cpus[..1].to_vec(), cpus.clone()], trials: 1 },
        rounds: RoundRule { least: 2, most: 2, time_per_model: Nanos(u64::MAX), sample_at_least: Nanos(100_000) },
        left_out: Vec::new(),
        estimated_s: 0.0,
        caches: CacheGroups::default(),
    }
}

fn outcomes(signal: usize, run: impl FnOnce(&Plan, &IsaSet, &mut Context<'_>) -> Result<()>) -> Vec<Outcome> {
    outcomes_of(&small_plan(), signal, run)
}

fn outcomes_of(
    plan: &Plan,
    signal: usize,
    run: impl FnOnce(&Plan, &IsaSet, &mut Context<'_>) -> Result<()>,
) -> Vec<Outcome> {
    let signal = AtomicUsize::new(signal);
    let mut seen = Vec::new();
    let mut outcome = |outcome| {
        seen.push(outcome);
        Ok(())
    };
    let stop = Stop { signal: &signal, deadline: None };
    let mut context =
        Context { clock: Clock::start(), stop, outcome: &mut outcome, clock_step: Nanos(10), verify: false };
    run(plan, &IsaSet::detect(), &mut context).unwrap();
    seen
}

#[test]
fn a_small_replay_records_every_arm_of_every_round() {
    let mut arms = BTreeMap::new();
    for outcome in outcomes(0, run) {
        let line = match outcome {
            Outcome::Starting(text) => {
                assert!(text.contains("small Q8_0"), "{text}");
                continue;
            }
            Outcome::Measured(line) => *line,
            other => panic!("{other:?}"),
        };
        assert!(crate::stats::agrees(&line));
        let Line::Decode(step) = line else { panic!("not a decode line") };
        assert_eq!(step.step.per_thread.len(), step.step.threads as usize);
        assert!(step.step.samples_ns.len() == 1 && step.step.samples_ns[0] > 0 && step.step.units_per_sample > 0);
        assert!(step.step.caveats.contains(&Caveat::MemorySizeUnknown));
        assert_eq!(step.barriers_per_token, 24);
        // Clocks of CPUs may disagree; then there is a caveat instead.
        let disagree = step.step.caveats.iter().any(|caveat| matches!(caveat, Caveat::ClocksDisagree { .. }));
        assert_eq!(step.trace.is_some() || disagree, step.arm == Arm::Traced);
        if let Some(trace) = &step.trace {
            assert_eq!(trace.busy_ns.len(), step.step.threads as usize);
            let elapsed = step.step.samples_ns[0];
            assert!(trace.busy_ns.iter().all(|busy| (1..elapsed).contains(busy)) && trace.barrier_ns < elapsed);
            assert!(trace.serial_ns <= trace.busy_ns[0]);
        }
        *arms.entry((step.arm, step.step.threads * u32::from(step.arm != Arm::Roof), step.barrier)).or_insert(0) += 1;
    }
    let arm = |arm, threads, barrier: &str, times| ((arm, threads, barrier.to_owned()), times);
    let expected = [
        arm(Arm::Roof, 0, "central", 4),
        arm(Arm::Read, 1, "central", 2),
        arm(Arm::Read, 2, "central", 2),
        arm(Arm::Dot, 1, "central", 2),
        arm(Arm::Dot, 2, "central", 2),
        arm(Arm::Sync, 1, "central", 2),
        arm(Arm::Sync, 2, "central", 2),
        arm(Arm::Traced, 1, "central", 2),
        arm(Arm::Traced, 2, "central", 2),
        arm(Arm::Full, 1, "central", 2),
        arm(Arm::Full, 2, "central", 2),
        arm(Arm::Full, 2, "dissemination", 2),
        arm(Arm::Barrier, 1, "central", 2),
        arm(Arm::Barrier, 2, "central", 2),
    ];
    assert_eq!(arms, BTreeMap::from(expected));
}

#[test]
fn verifying_checks_every_configuration_and_times_nothing() {
    let seen = outcomes(0, verify);
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|outcome| matches!(outcome, Outcome::Starting(text) if text.starts_with("checked"))));
}

#[test]
fn threads_of_an_openmp_runtime_take_the_same_weights() {
    let before = crate::machine::current_affinity();
    for runtime in OpenMp::ALL.into_iter().filter(|runtime| OpenMp::installed().contains_key(runtime.name())) {
        let mut plan = small_plan();
        for configuration in &mut plan.configurations {
            configuration.barrier = Subject::OpenMp(runtime);
        }
        for outcome in outcomes_of(&plan, 0, run) {
            match outcome {
                Outcome::Starting(_) => {}
                Outcome::Measured(line) => {
                    assert!(matches!(*line, Line::Decode(step) if step.barrier == runtime.name()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(crate::machine::current_affinity(), before, "the thread that asks is not pinned");
}

#[test]
fn a_signal_leaves_out_what_was_not_begun() {
    assert!(matches!(&outcomes(2, run)[..], [Outcome::LeftOut(LeftOut { reason, .. })] if reason == "interrupted"));
}

#[test]
fn the_check_catches_a_wrong_sum_and_a_line_too_few() {
    outcomes(0, |plan, isa, context| {
        let mut session = prepare(plan, isa, context)?.unwrap();
        let replay = Replay::new(&plan.models[0], 1);
        session.fill(&replay, context)?;
        let right = session.expected(&replay)?;
        let products = |tally: Tally| (tally.sum, tally.bytes);
        assert_ne!(products(right.read), products(right.dot));
        let check = |expected| session.checked(&replay, &plan.configurations[1], context, expected);
        assert_eq!(check(right)?.len(), 6);
        let read = |tally: Tally| Expected { read: tally, ..right };
        let dot = |tally: Tally| Expected { dot: tally, ..right };
        let flipped = |tally: Tally| Tally { sum: tally.sum ^ 1, ..tally };
        let short = |tally: Tally| Tally { bytes: tally.bytes - 64, ..tally };
        for wrong in [dot(flipped(right.dot)), dot(short(right.dot))] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.contains("arm dot"), "{error}");
        }
        for wrong in [read(flipped(right.read)), read(short(right.read))] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.contains("small Q8_0") && error.contains("2 threads"), "{error}");
            // The roof has a program of its own, and the same check.
            let error =
                session.roof(&replay, (&plan.configurations[1]).into(), context, wrong).unwrap_err().to_string();
            assert!(error.contains("arm roof"), "{error}");
        }
        Ok(())
    });
}
