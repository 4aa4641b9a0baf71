//! Memory latency: one pinned thread goes along a chain of lines, each load waiting for the one before.

use super::team;
use super::{Context, Outcome, Stop, calibrate, spans, stream};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::memory::chain::{BLOCK_BYTES, Chain, chase, sweep};
use crate::memory::{Buffer, HUGE_PAGE_BYTES, Line, Pages, Policy, base_page_bytes};
use crate::plan::memory_latency::{Chase, Group, Plan, ZONES};
use crate::record::{Line as RecordLine, MemoryLatencyStep, Step};
use crate::stats;
use crate::units::{Bytes, CpuId, Nanos, NodeSet};
use std::sync::Mutex;

/// Lines of a block.
pub(super) const BLOCK_LINES: usize = (BLOCK_BYTES / Line::BYTES) as usize;
/// Blocks written between two looks at the clock: 4 MiB.
pub(super) const BLOCKS_AT_ONCE: usize = 1024;
/// From this size on all builders write a chain; below, the thread that will chase leaves it in its own caches.
const SHARED_WORK: u64 = 32 << 20;
/// Going once along the chain warms the caches; so does half of it, where once takes longer than this.
const WARM_UP: Nanos = Nanos(50_000_000);
/// Steps between two looks at the clock while warming up.
const STEPS_AT_ONCE: u64 = 4096;
/// With `--verify` a chain is no larger than this.
pub(super) const VERIFIED_BYTES: u64 = 16 << 20;
/// Sampled pages.
pub(super) const PAGES_SAMPLED: usize = 64;
/// Share of huge pages from which on the page size is theirs.
const PAGES_HUGE: f64 = 0.9;

/// Measures a memory-latency plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    for group in &plan.groups {
        let place = group.memory_node.map_or("memory".to_owned(), |node| format!("memory of node {node}"));
        let what =
            format!("latency of {place}, {} in pages asked for as {}", group.footprint_bytes, group.pages.name());
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what.clone()))?;
        if let Err(error) = measure(plan, group, &what, context)? {
            (context.outcome)(Outcome::Failed(error))?;
        }
    }
    Ok(())
}

/// A buffer with what is known of it.
struct Held {
    buffer: Buffer,
    pages: Pages,
    bind_caveat: Option<Caveat>,
}

/// Measures one group. The outer error ends the run, the inner one the group.
fn measure(plan: &Plan, group: &Group, what: &str, context: &mut Context<'_>) -> Result<Result<()>> {
    let bytes = if context.verify { group.footprint_bytes.min(Bytes(VERIFIED_BYTES)) } else { group.footprint_bytes };
    let mut held = match reserve(group, bytes) {
        Ok(held) => held,
        Err(error) => return Ok(Err(error)),
    };
    if context.verify {
        return Ok(verify(&mut held.buffer, bytes, plan.seed, group, context));
    }
    if let Some(ladder) = &group.ladder {
        for (index, footprint) in ladder.footprints.iter().enumerate() {
            if let Some(reason) = context.stop_reason() {
                let what = format!("{} of {} footprints", ladder.footprints.len() - index, ladder.footprints.len());
                (context.outcome)(Outcome::LeftOut(LeftOut { what, reason: reason.into() }))?;
                break;
            }
            let beyond = footprint.0 > 2 * ladder.chase.cache_bytes.0;
            let chain = chain_of(*footprint, beyond, plan.seed);
            let built = build(&mut held.buffer, &chain, &group.builders, ladder.chase.cpu, context);
            let how = How {
                scope: "ladder",
                footprint: *footprint,
                samples: plan.ladder_samples,
                sample_least: plan.ladder_sample_least_ns,
                caveats: &[],
            };
            let step = match built {
                Ok(true) => time(&held, group, &ladder.chase, &mut chain.start(), &how, context),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            match step {
                Ok(line) => (context.outcome)(Outcome::Measured(Box::new(RecordLine::MemoryLatency(line))))?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    if context.leave_out(what)? {
        return Ok(Ok(()));
    }
    let chain = chain_of(group.footprint_bytes, true, plan.seed);
    match build(&mut held.buffer, &chain, &group.builders, group.builders[0], context) {
        Ok(true) => {}
        Ok(false) => {
            context.leave_out(what)?;
            return Ok(Ok(()));
        }
        Err(error) => return Ok(Err(error)),
    }
    // Each goes on where the one before stopped: no line comes twice before the others were visited.
    let mut at = chain.start();
    for chaser in &group.chases {
        let from = chaser.cpu_node.map_or("CPUs".to_owned(), |node| format!("node {node}"));
        if context.leave_out(&format!("{what}, from {from}"))? {
            continue;
        }
        let how = How {
            scope: "memory",
            footprint: group.footprint_bytes,
            samples: plan.samples,
            sample_least: plan.sample_least_ns,
            caveats: &group.caveats,
        };
        match time(&held, group, chaser, &mut at, &how, context) {
            Ok(line) => (context.outcome)(Outcome::Measured(Box::new(RecordLine::MemoryLatency(line))))?,
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

fn chain_of(footprint: Bytes, beyond_caches: bool, seed: u64) -> Chain {
    let zones = if beyond_caches { ZONES as usize } else { 1 };
    Chain::new((footprint.0 / BLOCK_BYTES) as usize, zones, seed)
}

/// Maps the buffer, in ordinary pages where the kernel knows no huge ones: what was granted is seen later.
fn reserve(group: &Group, bytes: Bytes) -> Result<Held> {
    let (buffer, pages) = match Buffer::reserve(bytes, group.pages) {
        Ok(buffer) => (buffer, group.pages),
        Err(_) if group.pages != Pages::Small => (Buffer::reserve(bytes, Pages::Default)?, Pages::Default),
        Err(error) => return Err(error),
    };
    let bound = if group.placement == Policy::FirstTouch { Ok(()) } else { buffer.bind(&group.placement) };
    let bind_caveat = bound.err().map(|error| Caveat::PlacementUnverified { reason: error.to_string() });
    Ok(Held { buffer, pages, bind_caveat })
}

/// Writes a chain over the beginning of the buffer, zone by zone. Small ones by `chaser` alone. False when it was stopped.
pub(super) fn build(
    buffer: &mut Buffer,
    chain: &Chain,
    builders: &[CpuId],
    chaser: CpuId,
    context: &Context<'_>,
) -> Result<bool> {
    let small = chain.lines() * Line::BYTES < SHARED_WORK;
    let cpus: Vec<CpuId> = if small { vec![chaser] } else { builders.to_vec() };
    let threads = cpus.len();
    // By zone, then thread: the first block of each part and its lines.
    let mut rest = buffer.lines_mut();
    let mut parts: Vec<Mutex<(usize, &mut [Line])>> = Vec::new();
    for zone in chain.zones() {
        for thread in 0..threads {
            let cut = |thread: usize| zone.start + zone.len() * thread / threads;
            let lines = (cut(thread + 1) - cut(thread)) * BLOCK_LINES;
            let part = rest.split_off_mut(..lines).unwrap_or_default();
            parts.push(Mutex::new((cut(thread), part)));
        }
    }
    let stop = context.stop;
    let outcome = team::run(&cpus, context.clock, |seat| {
        let mut whole = true;
        for zone in 0..chain.zones().len() {
            let mut part = parts[zone * threads + seat.index].lock().unwrap_or_else(|poison| poison.into_inner());
            let (first_block, lines) = &mut *part;
            for (index, piece) in lines.chunks_mut(BLOCKS_AT_ONCE * BLOCK_LINES).enumerate() {
                whole = whole && stop.reason(seat.now()).is_none();
                if whole {
                    chain.write(piece, *first_block + index * BLOCKS_AT_ONCE);
                }
            }
            seat.meet();
        }
        whole
    })?;
    Ok(outcome.results.iter().all(|whole| *whole))
}

/// What is timed, and how often.
struct How<'a> {
    scope: &'static str,
    footprint: Bytes,
    samples: u32,
    sample_least: u64,
    caveats: &'a [Caveat],
}

/// Times a chase from `at`, and leaves there where it stopped.
fn time(
    held: &Held,
    group: &Group,
    chaser: &Chase,
    at: &mut u64,
    how: &How<'_>,
    context: &Context<'_>,
) -> Result<MemoryLatencyStep> {
    let lines = &held.buffer.lines()[..(how.footprint.0 / Line::BYTES) as usize];
    let cached = how.footprint.0 <= 2 * chaser.cache_bytes.0;
    // Calibration takes what lasts half as long.
    let least = Nanos(how.sample_least.max(2 * spans::CLOCK_STEPS * context.clock_step.0));
    let (stop, start) = (context.stop, *at);
    let outcome = team::run(&[chaser.cpu], context.clock, |mut seat| {
        let mut at = start;
        if cached {
            sweep(lines);
            warm_up(lines, &mut at, stop, || seat.now());
        }
        let clock = seat.clock;
        let late = |now| stop.reason(now).is_some();
        let steps = calibrate::units(&mut seat, least, late, |seat, steps| {
            let start = seat.now();
            at = chase(lines, at, steps);
            Nanos(seat.now().0 - start.0)
        });
        let mut spans = Vec::with_capacity(how.samples as usize);
        for sample in 0..how.samples {
            if sample > 0 && late(clock.now()) {
                break;
            }
            let start = clock.now();
            at = chase(lines, at, steps);
            spans.push((start, clock.now()));
        }
        (spans, steps, at)
    })?;
    let (taken, steps, end) = &outcome.results[0];
    *at = *end;
    let mut caveats: Vec<Caveat> = how.caveats.iter().cloned().chain(held.bind_caveat.clone()).collect();
    caveats.extend(outcome.caveats);
    caveats.extend(context.cut_short(taken.len() as u32, how.samples, "time budget"));
    let mut step = Step {
        threads: 1,
        cpus: vec![chaser.cpu],
        caveats,
        samples_ns: taken.iter().map(|(start, finish)| finish.0 - start.0).collect(),
        units_per_sample: *steps,
        disturbance: outcome.disturbance,
        ..Step::default()
    };
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    let seen = held.buffer.nodes(0..lines.len(), PAGES_SAMPLED);
    let asked: NodeSet = group.memory_node.into_iter().collect();
    match &seen {
        Ok(seen) => {
            let there = seen.share(|node| asked.contains(node));
            step.caveats.extend(there.and_then(|share_there| stream::elsewhere(&asked, share_there)));
        }
        Err(error) => step.caveats.push(Caveat::PlacementUnverified { reason: error.to_string() }),
    }
    let huge_page_share = held.buffer.huge_share();
    let huge = huge_page_share.is_some_and(|share| share >= PAGES_HUGE);
    let summary = stats::latency(&step);
    Ok(MemoryLatencyStep {
        step,
        scope: how.scope.to_owned(),
        cpu_node: chaser.cpu_node,
        memory_node: group.memory_node,
        footprint_bytes: how.footprint,
        cache_bytes: chaser.cache_bytes,
        page_kind: held.pages.name().to_owned(),
        page_bytes: Bytes(if huge { HUGE_PAGE_BYTES } else { base_page_bytes() } as u64),
        huge_page_share,
        pages_on_node: seen.map(|seen| seen.pages.into_iter().collect()).unwrap_or_default(),
        summary,
    })
}

/// Goes along the chain once, or for as long as a warm-up may take.
fn warm_up(lines: &[Line], at: &mut u64, stop: Stop<'_>, now: impl Fn() -> Nanos) {
    let start = now();
    let mut left = lines.len() as u64;
    while left > 0 {
        let steps = left.min(STEPS_AT_ONCE);
        *at = chase(lines, *at, steps);
        left -= steps;
        let now = now();
        if now.0 - start.0 > WARM_UP.0 || stop.reason(now).is_some() {
            break;
        }
    }
}

/// Whether the chain comes back after all lines and not before, and nothing else.
fn verify(buffer: &mut Buffer, bytes: Bytes, seed: u64, group: &Group, context: &Context<'_>) -> Result<()> {
    let chain = chain_of(bytes, true, seed);
    if !build(buffer, &chain, &group.builders, group.builders[0], context)? {
        return Ok(());
    }
    let lines = buffer.lines();
    let mut seen = vec![false; chain.lines() as usize];
    let mut at = chain.start();
    let mut distinct = 0;
    for _ in 0..chain.lines() {
        let first = !std::mem::replace(&mut seen[at as usize / 8], true);
        distinct += u64::from(first);
        at = chase(lines, at, 1);
    }
    if distinct == chain.lines() && at == chain.start() {
        return Ok(());
    }
    Err(Error::refused(
        format!("trust a chase through {bytes}"),
        format!("it saw {distinct} of {} lines", chain.lines()),
        "suspect the memory, or report this as a bug",
    ))
}
