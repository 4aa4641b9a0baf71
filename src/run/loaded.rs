//! Loaded latency: thread 0 chases through memory while the others read at a pace.

use super::team::{self, Seat};
use super::{Context, Outcome, memory_latency, spans};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel, Operands, Operation};
use crate::machine::IsaSet;
use crate::memory::chain::{BLOCK_BYTES, Chain, chase};
use crate::memory::{Buffer, Line, Pages, fill_words};
use crate::plan::loaded::{Group, Plan};
use crate::record::{Line as RecordLine, LoadedLatencyStep, Step};
use crate::stats;
use crate::units::{Nanos, Threads};
use crossbeam_utils::CachePadded;
use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Lines that a reader reads between two pauses: 16 KiB, about a microsecond at full speed.
const CHUNK_LINES: usize = 256;
/// A reader that is so many chunks late does not catch up: it would read in bursts.
const LATE_CHUNKS: u64 = 8;

/// Measures a plan of loaded latency.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    for group in &plan.groups {
        let what = format!("loaded latency of {}, {}", group.scope, Threads(group.cpus.len() as u32));
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what.clone()))?;
        if context.verify {
            continue;
        }
        match measure(plan, group, isa, context) {
            Ok(lines) => {
                for line in lines {
                    (context.outcome)(Outcome::Measured(Box::new(RecordLine::LoadedLatency(line))))?;
                }
                context.leave_out(&format!("more of {what}"))?;
            }
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    Ok(())
}

/// What the chaser saw at one pace.
struct Point {
    pace: f64,
    steps: u64,
    samples_ns: Vec<u64>,
    background_bytes: Vec<u64>,
    background_ns: Vec<u64>,
}

/// What the threads share: bytes read so far by each reader, and how many paces are over.
struct Shared {
    read: Vec<CachePadded<AtomicU64>>,
    over: CachePadded<AtomicUsize>,
}

fn measure(plan: &Plan, group: &Group, isa: &IsaSet, context: &Context<'_>) -> Result<Vec<LoadedLatencyStep>> {
    let kernel = Kernel::best(Operation::Read, None, isa)
        .ok_or_else(|| Error::refused("read an array", "no kernel reads here", "report this as a bug"))?;
    kernel::check(kernel)?;
    let chain = Chain::new((group.chain_bytes.0 / BLOCK_BYTES) as usize, 1, plan.seed);
    let mut chained = Buffer::reserve(group.chain_bytes, Pages::Default)?;
    if !memory_latency::build(&mut chained, &chain, &group.builders, group.cpus[0], context)? {
        return Ok(Vec::new());
    }
    let mut array = Buffer::reserve(group.array_bytes, Pages::Default)?;
    let readers = group.cpus.len() - 1;
    let lines = (group.array_bytes.0 / Line::BYTES) as usize;
    let cut = |reader: usize| lines * reader / readers;
    touch(&mut array, group, context)?;

    let shared = Shared { read: (0..readers).map(|_| CachePadded::default()).collect(), over: CachePadded::default() };
    let (chain_lines, array_lines) = (&chained.lines()[..chain.lines() as usize], array.lines());
    let stop = context.stop;
    let outcome = team::run(&group.cpus, context.clock, |mut seat| {
        let mut at = chain.start();
        let mut points = Vec::new();
        // Time of a chunk at full speed, of a reader.
        let mut chunk_ns = 0.0;
        let mut next = 0;
        for (index, pace) in plan.paces.iter().enumerate() {
            let clock = seat.clock;
            if !seat.go_on(|| stop.reason(clock.now()).is_none()) {
                break;
            }
            match seat.index.checked_sub(1) {
                None => {
                    points.push(point(&seat, chain_lines, &mut at, &shared, (*pace, plan)));
                    // Relaxed: nothing else is handed over.
                    shared.over.store(index + 1, Ordering::Relaxed);
                }
                Some(reader) => {
                    let mine = &array_lines[cut(reader)..cut(reader + 1)];
                    let over = || shared.over.load(Ordering::Relaxed) > index;
                    read(&seat, kernel, (mine, &mut next), &shared.read[reader], (*pace, &mut chunk_ns), over);
                }
            }
        }
        points
    })?;

    let points = outcome.results.into_iter().next().unwrap_or_default();
    let visited: u64 = points.iter().map(|point| point.steps * (point.samples_ns.len() as u64 + 2)).sum();
    let lines = points.into_iter().map(|point| {
        let mut caveats = group.caveats.clone();
        caveats.extend(outcome.caveats.iter().cloned());
        if visited > chain.lines() {
            caveats.push(Caveat::CacheResident { reuse_bytes: group.chain_bytes, cache_bytes: group.cache_bytes });
        }
        let mut step = Step {
            threads: group.cpus.len() as u32,
            cpus: group.cpus.clone(),
            caveats,
            samples_ns: point.samples_ns,
            units_per_sample: point.steps,
            disturbance: outcome.disturbance.clone(),
            ..Step::default()
        };
        step.disturbance.detours.clear();
        step.caveats.extend(spans::too_short(&step, context.clock_step));
        let summary = stats::loaded(&step, &point.background_bytes, &point.background_ns);
        LoadedLatencyStep {
            step,
            scope: group.scope.clone(),
            cpu_node: group.cpu_node,
            memory_node: group.memory_node,
            pace: point.pace,
            chain_bytes: group.chain_bytes,
            array_bytes: group.array_bytes,
            background_bytes: point.background_bytes,
            background_ns: point.background_ns,
            summary,
        }
    });
    Ok(lines.collect())
}

/// Each reader touches its own part.
fn touch(array: &mut Buffer, group: &Group, context: &Context<'_>) -> Result<()> {
    let readers = group.cpus.len() - 1;
    let lines = (group.array_bytes.0 / Line::BYTES) as usize;
    let cut = |reader: usize| lines * reader / readers;
    let mut rest = array.lines_mut();
    let parts: Vec<Mutex<&mut [Line]>> = (0..readers)
        .map(|reader| Mutex::new(rest.split_off_mut(..cut(reader + 1) - cut(reader)).unwrap_or_default()))
        .collect();
    let stop = context.stop;
    team::run(&group.cpus[1..], context.clock, |seat| {
        let mut lines = parts[seat.index].lock().unwrap_or_else(|poison| poison.into_inner());
        let first = cut(seat.index);
        for (index, piece) in lines.chunks_mut(1 << 16).enumerate() {
            if stop.reason(seat.now()).is_none() {
                fill_words(piece, (first + (index << 16)) as u64, 1);
            }
        }
    })?;
    Ok(())
}

/// Chases at one pace of the readers.
fn point(seat: &Seat<'_>, lines: &[Line], at: &mut u64, shared: &Shared, (pace, plan): (f64, &Plan)) -> Point {
    /// As in calibration elsewhere: what takes no time at all must end as well.
    const MOST: u64 = 1 << 40;
    let mut timed = |steps: u64| {
        let start = seat.now();
        *at = chase(lines, *at, steps);
        (start, seat.now())
    };
    let mut steps = 64;
    loop {
        let elapsed = |(start, finish): (Nanos, Nanos)| (finish.0 - start.0).max(1);
        let elapsed = elapsed(timed(steps)).min(elapsed(timed(steps)));
        if elapsed * 2 >= plan.sample_least_ns || steps >= MOST {
            break;
        }
        steps *= plan.sample_least_ns.div_ceil(elapsed).clamp(2, 10);
    }
    let mut point = Point {
        pace,
        steps,
        samples_ns: Vec::with_capacity(plan.samples as usize),
        background_bytes: Vec::with_capacity(plan.samples as usize),
        background_ns: Vec::with_capacity(plan.samples as usize),
    };
    let read = || shared.read.iter().map(|read| read.load(Ordering::Relaxed)).sum::<u64>();
    for _ in 0..plan.samples {
        // From the beginning of one look at all readers to the beginning of the next: both looks take as long.
        let (looked, before) = (seat.now(), read());
        let (start, finish) = timed(steps);
        let (again, after) = (seat.now(), read());
        point.samples_ns.push(finish.0 - start.0);
        point.background_bytes.push(after - before);
        point.background_ns.push(again.0 - looked.0);
    }
    point
}

/// Reads at one pace until that is over.
fn read(
    seat: &Seat<'_>,
    kernel: Kernel,
    (lines, next): (&[Line], &mut usize),
    count: &AtomicU64,
    (pace, chunk_ns): (f64, &mut f64),
    over: impl Fn() -> bool,
) {
    let start = seat.now();
    let mut chunks = 0u64;
    let mut due = start.0 as f64;
    while !over() {
        if pace <= 0.0 {
            spin_loop();
            continue;
        }
        let end = (*next + CHUNK_LINES).min(lines.len());
        let mut operands = Operands { dst: &mut [], a: &lines[*next..end], b: &[] };
        // The kernel was checked; a length that does not fit it would read nothing.
        let _ = black_box(kernel.run(&mut operands, 1));
        let bytes = (end - *next) as u64 * Line::BYTES;
        // Only this thread writes it.
        count.store(count.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        *next = if end == lines.len() { 0 } else { end };
        chunks += 1;
        if pace < 1.0 {
            let interval = *chunk_ns / pace;
            due = (due + interval).max(seat.now().0 as f64 - LATE_CHUNKS as f64 * interval);
            while (seat.now().0 as f64) < due && !over() {
                spin_loop();
            }
        }
    }
    if pace >= 1.0 {
        *chunk_ns = (seat.now().0 - start.0) as f64 / chunks.max(1) as f64;
    }
}
