//! Hidden memory nodes: one pinned thread visits single pages of a buffer in random order, and each visit is timed.

use super::memory_latency::{BLOCK_LINES, BLOCKS_AT_ONCE, PAGES_SAMPLED, VERIFIED_BYTES};
use super::{Context, Outcome, Stop, spans, stream, team};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::memory::chain::{block_start, chase, sweep, write_block};
use crate::memory::{Buffer, Line, Pages};
use crate::plan::memory_latency::Chase;
use crate::plan::page::{Buffer as Planned, Plan, sample};
use crate::record::{Line as RecordLine, PageLatencyStep, Step};
use crate::stats;
use crate::units::{Bytes, NodeSet};
use std::ops::Range;
use std::sync::Mutex;

/// Pages whose medians are recorded one by one.
const COMPARED: usize = 512;
/// A visit is at least this many steps of the clock, or it is marked: below, one step is wider than two bins.
const VISIT_STEPS: u64 = 20;

/// Measures a page plan.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(plan: &Plan, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    let Some(planned) = &plan.buffer else { return Ok(()) };
    let what = format!("latency of {} pages of {}", plan.pages, planned.footprint_bytes);
    if context.leave_out(&what)? {
        return Ok(());
    }
    (context.outcome)(Outcome::Starting(what.clone()))?;
    let bytes = planned.footprint_bytes;
    let bytes = if context.verify { bytes.min(Bytes(VERIFIED_BYTES)) } else { bytes };
    let buffer = match build(plan, planned, bytes, context) {
        Ok(Some(buffer)) => buffer,
        Ok(None) => return context.leave_out(&what).map(drop),
        Err(error) => return (context.outcome)(Outcome::Failed(error)),
    };
    let pages = sample(bytes, plan.pages, plan.seed);
    for chaser in &planned.chases {
        if context.leave_out(&format!("{what}, from CPU {}", chaser.cpu))? {
            continue;
        }
        match measure(plan, planned, &buffer, &pages, chaser, context) {
            Ok(None) => {}
            Ok(Some(step)) => (context.outcome)(Outcome::Measured(Box::new(RecordLine::PageLatency(step))))?,
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    Ok(())
}

/// A buffer with a cycle in each page, touched by the builders. `None` when it was time to stop.
fn build(plan: &Plan, planned: &Planned, bytes: Bytes, context: &Context<'_>) -> Result<Option<Buffer>> {
    let mut buffer = Buffer::reserve(bytes, Pages::Small)?;
    let threads = planned.builders.len();
    let blocks = buffer.lines().len() / BLOCK_LINES;
    let mut rest = buffer.lines_mut();
    let parts: Vec<Mutex<(usize, &mut [Line])>> = (0..threads)
        .map(|thread| {
            let cut = |thread: usize| blocks * thread / threads;
            let part = rest.split_off_mut(..(cut(thread + 1) - cut(thread)) * BLOCK_LINES).unwrap_or_default();
            Mutex::new((cut(thread), part))
        })
        .collect();
    let (stop, seed) = (context.stop, plan.seed);
    let outcome = team::run(&planned.builders, context.clock, |seat| {
        let mut part = parts[seat.index].lock().unwrap_or_else(|poison| poison.into_inner());
        let (first, lines) = &mut *part;
        for (index, lines) in lines.chunks_mut(BLOCK_LINES).enumerate() {
            if index % BLOCKS_AT_ONCE == 0 && stop.reason(seat.now()).is_some() {
                return false;
            }
            write_block(lines, (*first + index) as u32, seed);
        }
        true
    })?;
    drop(parts);
    Ok(outcome.results.iter().all(|whole| *whole).then_some(buffer))
}

/// What the thread brings back: of each page in turn the time of each visit, the passes that it took, and whether all visits
/// ended where they must.
struct Visits {
    ns: Vec<u64>,
    passes: usize,
    whole: bool,
}

/// Visits every page once a pass, each pass in an order of its own, after all that lies between them has been read.
fn visit(lines: &[Line], pages: &[u32], plan: &Plan, passes: usize, seat: &team::Seat<'_>, stop: Stop<'_>) -> Visits {
    let starts: Vec<u64> = pages.iter().map(|page| block_start(*page, plan.seed)).collect();
    let mut order: Vec<usize> = (0..pages.len()).collect();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut visits = Visits { ns: vec![0; pages.len() * passes], passes: 0, whole: true };
    for pass in 0..passes {
        if pass > 0 && stop.reason(seat.now()).is_some() {
            break;
        }
        random.shuffle(&mut order);
        between(pages, lines.len() / BLOCK_LINES).for_each(|gap| sweep(&lines[gap]));
        for index in &order {
            let first = pages[*index] as usize * BLOCK_LINES;
            let page = &lines[first..first + BLOCK_LINES];
            let start = seat.now();
            let end = chase(page, starts[*index], BLOCK_LINES as u64);
            visits.ns[index * passes + pass] = seat.now().0 - start.0;
            visits.whole &= end == starts[*index];
        }
        visits.passes += 1;
    }
    visits
}

/// The lines before, between and after some pages.
fn between(pages: &[u32], blocks: usize) -> impl Iterator<Item = Range<usize>> {
    let begins = std::iter::once(0).chain(pages.iter().map(|page| *page as usize + 1));
    let ends = pages.iter().map(|page| *page as usize).chain([blocks]);
    begins.zip(ends).map(|(begin, end)| begin * BLOCK_LINES..end * BLOCK_LINES)
}

fn measure(
    plan: &Plan,
    planned: &Planned,
    buffer: &Buffer,
    pages: &[u32],
    chaser: &Chase,
    context: &Context<'_>,
) -> Result<Option<PageLatencyStep>> {
    let lines = buffer.lines();
    let stop = context.stop;
    let passes = if context.verify { 1 } else { plan.passes as usize };
    let outcome = team::run(&[chaser.cpu], context.clock, |seat| visit(lines, pages, plan, passes, &seat, stop))?;
    let visits = &outcome.results[0];
    if !visits.whole {
        return Err(Error::refused(
            format!("trust the latency of pages from CPU {}", chaser.cpu),
            "a visit did not end where it must",
            "suspect the memory, or report this as a bug",
        ));
    }
    if context.verify {
        return Ok(None);
    }
    let of_page = |index: usize| &visits.ns[index * passes..][..visits.passes];
    let medians: Vec<u64> = (0..pages.len())
        .map(|index| {
            let times: Vec<f64> = of_page(index).iter().map(|ns| *ns as f64).collect();
            stats::median(&times).unwrap_or_default().round() as u64
        })
        .collect();
    let mut caveats = planned.caveats.clone();
    caveats.extend(outcome.caveats);
    caveats.extend(context.cut_short(visits.passes as u32, plan.passes, "time budget"));
    let mut step = Step {
        threads: 1,
        cpus: vec![chaser.cpu],
        caveats,
        samples_ns: (0..visits.passes).map(|pass| (0..pages.len()).map(|index| of_page(index)[pass]).sum()).collect(),
        units_per_sample: (pages.len() * BLOCK_LINES) as u64,
        disturbance: outcome.disturbance,
        ..Step::default()
    };
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    let resolution_ns = context.clock_step.0;
    let shortest = medians.iter().copied().min().filter(|ns| *ns < VISIT_STEPS * resolution_ns);
    step.caveats.extend(shortest.map(|sample_ns| Caveat::BelowClockResolution { sample_ns, resolution_ns }));
    let seen = buffer.nodes(0..lines.len(), PAGES_SAMPLED);
    let asked: NodeSet = planned.memory_node.into_iter().collect();
    match &seen {
        Ok(seen) => {
            let there = seen.share(|node| asked.contains(node));
            step.caveats.extend(there.and_then(|share_there| stream::elsewhere(&asked, share_there)));
        }
        Err(error) => step.caveats.push(Caveat::PlacementUnverified { reason: error.to_string() }),
    }
    let compared = pages.len().min(COMPARED);
    let summary = stats::latency(&step);
    Ok(Some(PageLatencyStep {
        step,
        cpu_node: chaser.cpu_node,
        memory_node: planned.memory_node,
        footprint_bytes: planned.footprint_bytes,
        cache_bytes: chaser.cache_bytes,
        page_kind: Pages::Small.name().to_owned(),
        pages_on_node: seen.map(|seen| seen.pages.into_iter().collect()).unwrap_or_default(),
        pages: pages.len() as u32,
        loads_per_page: BLOCK_LINES as u64,
        histogram: stats::log_histogram(&medians),
        compared_ns: (0..compared).map(|index| medians[index * pages.len() / compared]).collect(),
        summary,
    }))
}
