//! Bandwidth: all kernels of a plan in turn, sample by sample, on each thread set.

use super::clock::Clock;
use super::team::{self, Seat};
use super::{Context, Outcome, calibrate, spans};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel, Operands, Operation};
use crate::machine::IsaSet;
use crate::memory::{Buffer, Line, Pages, PagesByNode, Policy, fill_words};
use crate::plan::stream::{Group, Plan};
use crate::record::{Line as RecordLine, Step, StreamStep};
use crate::stats;
use crate::units::{Bytes, Nanos, NodeId, Threads};
use std::sync::Mutex;

/// Sampled pages of each thread's part of each array.
const PAGES_SAMPLED: usize = 16;
/// Share of the sampled pages that must lie where asked (METHOD: a caveat under 99 %).
const PAGES_THERE: f64 = 0.99;

/// Measures a bandwidth plan.
///
/// # Errors
/// Only when an outcome cannot be handed over; what fails inside is an [`Outcome::Failed`].
pub fn run(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<()> {
    let mut kernels = Vec::new();
    for row in &plan.kernels {
        // No number without a check in this process.
        match Kernel::new(row, isa).map_err(|reason| Error::refused(format!("run {}", row.name), reason, "see --list"))
        {
            Ok(kernel) => match kernel::check(kernel) {
                Ok(()) => kernels.push(kernel),
                Err(error) => (context.outcome)(Outcome::Failed(error))?,
            },
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    for group in &plan.groups {
        let what = format!("bandwidth of the {}, {}", group.scope, Threads(group.cpus.len() as u32));
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what))?;
        match measure(plan, group, &kernels, context) {
            Ok(lines) => {
                for line in lines {
                    (context.outcome)(line)?;
                }
            }
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    Ok(())
}

/// One thread's part of the arrays.
struct Part<'a> {
    dst: &'a mut [Line],
    a: &'a mut [Line],
    b: &'a mut [Line],
    first_line: u64,
}

/// What one thread brings back, by kernel.
struct Samples {
    spans: Vec<Vec<(Nanos, Nanos)>>,
    passes: Vec<u64>,
    wrong: Vec<Option<String>>,
}

fn measure(plan: &Plan, group: &Group, kernels: &[Kernel], context: &mut Context<'_>) -> Result<Vec<Outcome>> {
    let mut bind_caveats = Vec::new();
    let mut reserve = |used: bool| -> Result<Buffer> {
        // What no kernel uses is a placeholder and takes no pages of a special kind.
        let (bytes, pages) = if used { (group.array_bytes, plan.pages) } else { (Bytes(Line::BYTES), Pages::Default) };
        let buffer = Buffer::reserve(bytes, pages)?;
        if group.placement != Policy::FirstTouch
            && let Err(error) = buffer.bind(&group.placement)
        {
            bind_caveats.push(Caveat::PlacementUnverified { reason: error.to_string() });
        }
        Ok(buffer)
    };
    let uses = |arrays: u64| kernels.iter().any(|kernel| kernel.row().operation.sources() >= arrays);
    let writes = kernels.iter().any(|kernel| kernel.row().operation.arrays_written() > 0);
    let (mut dst, mut a, mut b) = (reserve(writes)?, reserve(uses(1))?, reserve(uses(2))?);
    bind_caveats.truncate(1);

    let threads = group.cpus.len();
    let lines = (group.array_bytes.0 / Line::BYTES) as usize;
    let cut = |thread: usize| lines * thread / threads;
    let parts: Vec<Mutex<Option<Part<'_>>>> = {
        let mut rest = [dst.lines_mut(), a.lines_mut(), b.lines_mut()];
        (0..threads)
            .map(|thread| {
                let [dst, a, b] = rest.each_mut().map(|array| {
                    // An array that no kernel uses is one line long, and every part of it is empty.
                    let length =
                        if array.len() < cut(threads) - cut(thread) { 0 } else { cut(thread + 1) - cut(thread) };
                    array.split_off_mut(..length).unwrap_or_default()
                });
                Mutex::new(Some(Part { dst, a, b, first_line: cut(thread) as u64 }))
            })
            .collect()
    };

    let stop = context.stop;
    let samples = if context.verify { 0 } else { plan.samples };
    let outcome = team::run(&group.cpus, context.clock, |mut seat| {
        let taken = parts[seat.index].lock().unwrap_or_else(|poison| poison.into_inner()).take();
        taken.map(|part| {
            thread(&mut seat, part, kernels, samples, plan.sample_least_ns, |clock: Clock| {
                stop.reason(clock.now()).is_none()
            })
        })
    })?;
    drop(parts);
    let results: Vec<Samples> = outcome.results.into_iter().flatten().collect();

    let (pages_on_node, huge_page_share, placement_caveats) = verify_placement(group, [&dst, &a, &b], cut);
    let mut outcomes = Vec::new();
    for (index, kernel) in kernels.iter().enumerate() {
        let row = kernel.row();
        if let Some(wrong) = results.iter().find_map(|result| result.wrong[index].as_ref()) {
            outcomes.push(Outcome::Failed(Error::refused(
                format!("trust {} on {}", row.name, Threads(threads as u32)),
                wrong,
                "its numbers were dropped; run --verify, and suspect the hardware if that passes",
            )));
            continue;
        }
        if context.verify {
            continue;
        }
        let per_sample = spans::by_sample(results.iter().map(|result| &result.spans[index]));
        let mut caveats = group.caveats.clone();
        caveats.extend(bind_caveats.iter().chain(&placement_caveats).chain(&outcome.caveats).cloned());
        let planned = samples + 1;
        if (per_sample.len() as u32) < planned {
            let reason = stop.reason(context.clock.now()).unwrap_or("stopped").to_owned();
            caveats.push(Caveat::CutShort { samples: per_sample.len() as u32, planned, reason });
        }
        let mut step = Step {
            threads: threads as u32,
            cpus: group.cpus.clone(),
            caveats,
            samples_ns: per_sample.iter().map(spans::elapsed).collect(),
            units_per_sample: results.first().map_or(1, |first| first.passes[index]),
            // STREAM's rule: the first repeat does not count.
            warmup_samples: u32::from(per_sample.len() > 1),
            per_thread: per_sample.last().map(spans::relative).unwrap_or_default(),
            disturbance: outcome.disturbance.clone(),
        };
        step.caveats.extend(spans::too_short(&step, context.clock_step));
        if let Some((low_ns, high_ns)) = stats::two_levels(&stats::unit_times(&step)) {
            step.caveats.push(Caveat::Bimodal { low_ns, high_ns });
        }
        let counted_bytes = row.operation.counted_bytes(group.array_bytes);
        let (bus_bytes_min, bus_bytes_max) = row.operation.bus_bytes(group.array_bytes, row.store);
        let summary = stats::stream(&step, counted_bytes);
        outcomes.push(Outcome::Measured(Box::new(RecordLine::Stream(StreamStep {
            step,
            kernel: row.name.to_owned(),
            operation: row.operation.name().to_owned(),
            isa: row.isa.name().to_owned(),
            store: row.store.map(|store| store.name().to_owned()),
            array_bytes: group.array_bytes,
            cache_bytes: group.cache_bytes,
            scope: group.scope.clone(),
            cpu_nodes: group.cpu_nodes.clone(),
            memory_nodes: group.memory_nodes.clone(),
            counted_bytes,
            bus_bytes_min,
            bus_bytes_max,
            placement: group.placement.clone(),
            pages_on_node: pages_on_node.clone(),
            page_kind: plan.pages.name().to_owned(),
            huge_page_share,
            summary,
        }))));
    }
    Ok(outcomes)
}

/// What one thread does: touch its part first, find how many passes make a sample, then sample all kernels in turn, so
/// that a machine that changes its mood changes it for all of them.
fn thread(
    seat: &mut Seat<'_>,
    part: Part<'_>,
    kernels: &[Kernel],
    samples: u32,
    sample_least_ns: u64,
    may_go_on: impl Fn(Clock) -> bool,
) -> Samples {
    let Part { dst, a, b, first_line } = part;
    fill_words(dst, first_line, 1);
    fill_words(a, first_line, 2);
    fill_words(b, first_line, 3);

    let clock = seat.clock;
    let mut passes = Vec::with_capacity(kernels.len());
    let mut wrong = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let before: Vec<Line> = sampled(dst.len()).map(|index| dst[index]).collect();
        seat.meet();
        wrong.push(match kernel.run(&mut Operands { dst: &mut *dst, a, b }, 1) {
            Ok(checksum) => check(*kernel, &before, dst, a, b, checksum),
            Err(error) => Some(error.to_string()),
        });
        passes.push(calibrate::units(
            seat,
            Nanos(sample_least_ns),
            |_| !may_go_on(clock),
            |seat, passes| {
                let mut operands = Operands { dst: &mut *dst, a, b };
                seat.meet();
                let start = seat.now();
                // Lengths were just seen to be right.
                let _ = kernel.run(&mut operands, passes);
                Nanos(seat.now().0 - start.0)
            },
        ));
    }

    let mut spans: Vec<Vec<(Nanos, Nanos)>> =
        kernels.iter().map(|_| Vec::with_capacity(samples as usize + 1)).collect();
    let samples = if samples == 0 { 0 } else { samples + 1 };
    for _ in 0..samples {
        if !seat.go_on(|| may_go_on(clock)) {
            break;
        }
        for (index, kernel) in kernels.iter().enumerate() {
            let mut operands = Operands { dst: &mut *dst, a, b };
            // What ordinary stores leave dirty in the caches is written back in the time of whoever comes next. After a
            // pass of its own, untimed, each kernel pays for itself alone.
            let _ = kernel.run(&mut operands, 1);
            seat.meet();
            let start = seat.now();
            let outcome = kernel.run(&mut operands, passes[index]);
            let finish = seat.now();
            spans[index].push((start, finish));
            if let Err(error) = outcome {
                wrong[index] = Some(error.to_string());
            }
        }
    }
    Samples { spans, passes, wrong }
}

/// The lines of a destination that are compared: one of each 64 KiB, the first and the last.
fn sampled(lines: usize) -> impl Iterator<Item = usize> {
    const STRIDE: usize = 1024;
    (0..lines).step_by(STRIDE).chain(lines.checked_sub(1))
}

/// Compares what a pass left behind with the definition of its operation: the sum of every line of a read, and sampled
/// lines of a write, which held `before`. (Every byte is compared once a process, by `kernel::check`.)
fn check(kernel: Kernel, before: &[Line], dst: &[Line], a: &[Line], b: &[Line], checksum: u64) -> Option<String> {
    let operation = kernel.row().operation;
    if operation == Operation::Read {
        let expected = kernel::expected_sum(a);
        return (expected != checksum).then(|| format!("its checksum is {checksum:#x} and should be {expected:#x}"));
    }
    let unused = Line([0; 64]);
    sampled(dst.len()).zip(before).find_map(|(index, before)| {
        let source = |array: &[Line]| *array.get(index).unwrap_or(&unused);
        let expected = kernel::expected_line(operation, before, &source(a), &source(b));
        (expected != dst[index]).then(|| format!("line {index} of its output is wrong"))
    })
}

/// Asks where a sample of each thread's pages lies.
fn verify_placement(
    group: &Group,
    arrays: [&Buffer; 3],
    cut: impl Fn(usize) -> usize,
) -> (Vec<(NodeId, u64)>, Option<f64>, Vec<Caveat>) {
    let mut all = PagesByNode::default();
    let (mut there, mut placed) = (0.0, 0.0);
    let mut huge = Vec::new();
    for array in arrays {
        // An array that no kernel uses.
        if array.lines().len() < cut(group.cpus.len()) {
            continue;
        }
        huge.extend(array.huge_share());
        for (thread, expected) in group.expected_nodes.iter().enumerate() {
            match array.nodes(cut(thread)..cut(thread + 1), PAGES_SAMPLED) {
                Ok(seen) => {
                    let right = |node| expected.map_or(group.memory_nodes.contains(node), |expected| expected == node);
                    if let Some(share) = seen.share(right) {
                        there += share;
                        placed += 1.0;
                    }
                    all.add(&seen);
                }
                Err(error) => {
                    return (Vec::new(), None, vec![Caveat::PlacementUnverified { reason: error.to_string() }]);
                }
            }
        }
    }
    // Without nodes there is no place to be wrong about.
    let elsewhere = placed > 0.0 && there / placed < PAGES_THERE && !group.memory_nodes.is_empty();
    let caveat = Caveat::PagesElsewhere { asked: group.memory_nodes.clone(), share_there: there / placed };
    let caveats = elsewhere.then_some(caveat).into_iter().collect();
    (all.pages.into_iter().collect(), stats::median(&huge), caveats)
}
