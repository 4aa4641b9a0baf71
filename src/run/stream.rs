//! Bandwidth: all kernels of a group in turn, sample by sample, on each thread set; then the column.

use super::clock::Clock;
use super::reference::Reference;
use super::spans::{self, Sample};
use super::team::{self, Seat, TeamOutcome};
use super::{Context, Outcome, Stop, calibrate};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel, Operands, Operation, Row};
use crate::machine::IsaSet;
use crate::memory::{Buffer, Line, Pages, PagesByNode, Policy, fill_words};
use crate::plan::stream::{COLUMN, Column, Group, MACHINE, Plan};
use crate::record::{Line as RecordLine, Step, StreamStep};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, Nanos, NodeId, NodeSet, Threads};
use std::ops::Range;
use std::sync::Mutex;

/// Sampled pages of each thread's part of each array.
const PAGES_SAMPLED: usize = 16;
/// Share of the sampled pages that must lie where asked (METHOD: a caveat under 99 %).
const PAGES_THERE: f64 = 0.99;
/// A pass of this many bytes by one thread lasts a sample on any core: no core of 2026 moves 500 GB/s.
const SURELY_LONG: u64 = 500_000_000;

/// Measures a bandwidth plan, and now and then a reference step.
///
/// # Errors
/// Only when an outcome cannot be handed over; what fails inside is an [`Outcome::Failed`].
pub fn run(plan: &Plan, isa: &IsaSet, reference: &mut Reference<'_>, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    let checked = checked(plan, isa, context)?;
    let mut held = None;
    // The best copy of the sweep, for the column.
    let mut best: Option<(BytesPerSecond, &Group, Kernel)> = None;
    for group in &plan.groups {
        let what = format!("bandwidth of {}, {}", group.scope, Threads(group.cpus.len() as u32));
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what))?;
        for outcome in whole(&mut held, plan, group, &checked, context) {
            if let Outcome::Measured(line) = &outcome
                && let RecordLine::Stream(step) = &**line
                && let (MACHINE, "copy", Some(rate)) =
                    (step.scope.as_str(), step.operation.as_str(), step.summary.best_bytes_per_s)
                && !group.is_cached()
                && best.is_none_or(|(other, _, _)| other < rate)
                && let Some(kernel) = checked.iter().find(|kernel| kernel.row().name == step.kernel)
            {
                best = Some((rate, group, *kernel));
            }
            (context.outcome)(outcome)?;
        }
        reference.take_if_due(context)?;
    }
    drop(held);
    match (&plan.column, best) {
        (Some(rule), Some((_, group, kernel))) => column(plan, rule, group, kernel, context),
        (Some(_), None) if !context.verify => {
            let reason = context.stop_reason().unwrap_or("no copy was measured over arrays that are memory").to_owned();
            (context.outcome)(Outcome::LeftOut(LeftOut { what: "bandwidth column".to_owned(), reason }))
        }
        _ => Ok(()),
    }
}

/// The plan's rows that may be measured (with `--verify` all that this machine can run): no number without a check in this process.
pub(super) fn checked(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<Vec<Kernel>> {
    let mut rows: Vec<&'static Row> = Vec::new();
    let mut kernels = Vec::new();
    let planned = plan.groups.iter().flat_map(|group| group.kernels.iter().copied());
    // Where nothing else is asked for, all that can run here.
    let others = Kernel::table().iter().filter(|row| context.verify && Kernel::new(row, isa).is_ok());
    for row in planned.chain(others) {
        if rows.iter().any(|known| known.name == row.name) {
            continue;
        }
        rows.push(row);
        let kernel = Kernel::new(row, isa)
            .map_err(|reason| Error::refused(format!("run {}", row.name), reason, "see --list"))
            .and_then(|kernel| kernel::check(kernel).map(|()| kernel));
        match kernel {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => (context.outcome)(Outcome::Failed(error))?,
        }
    }
    Ok(kernels)
}

/// The group's rows among `checked`, each over all of the group's arrays.
pub(super) fn whole(
    held: &mut Option<Arrays>,
    plan: &Plan,
    group: &Group,
    checked: &[Kernel],
    context: &Context<'_>,
) -> Vec<Outcome> {
    let find = |row: &&'static Row| checked.iter().find(|kernel| kernel.row().name == row.name);
    let entries: Vec<Entry> =
        group.kernels.iter().filter_map(find).map(|kernel| Entry { kernel: *kernel, share: 1 }).collect();
    let work = Work { entries: &entries, samples: group.samples, batches: 1, enough: &|_| true };
    measure(held, plan, group, &work, context)
}

/// The column: the sweep's best copy again, over its arrays and over twice as large ones in turn, and over larger ones still
/// while the two differ.
fn column(plan: &Plan, rule: &Column, group: &Group, kernel: Kernel, context: &mut Context<'_>) -> Result<()> {
    let mut array_bytes = group.array_bytes;
    while !context.verify {
        let doubled = Bytes(array_bytes.0.saturating_mul(2));
        if group.most_bytes.is_some_and(|most| doubled > most) {
            let what = format!("bandwidth column over arrays of {doubled}");
            let reason = "no memory for two of them".to_owned();
            return (context.outcome)(Outcome::LeftOut(LeftOut { what, reason }));
        }
        let what = format!("bandwidth column: {} over arrays of {array_bytes} and twice that", kernel.row().name);
        if context.leave_out(&what)? {
            break;
        }
        (context.outcome)(Outcome::Starting(what))?;
        let entries = [2, 1].map(|share| Entry { kernel, share });
        let same = |samples: &[Vec<Sample>]| {
            let best = |entry: usize| Some(samples.get(entry)?.iter().skip(1).map(spans::elapsed).min()? as f64);
            match (best(0), best(1)) {
                (Some(half), Some(whole)) => stats::same_level(2.0 * half, whole, rule.tolerance),
                _ => true,
            }
        };
        let largest = Group { scope: COLUMN.to_owned(), array_bytes: doubled, samples: rule.samples, ..group.clone() };
        let work = Work { entries: &entries, samples: rule.samples, batches: rule.batches, enough: &same };
        let mut rates = Vec::new();
        for outcome in measure(&mut None, plan, &largest, &work, context) {
            if let Outcome::Measured(line) = &outcome
                && let RecordLine::Stream(step) = &**line
            {
                rates.extend(step.summary.best_bytes_per_s);
            }
            (context.outcome)(outcome)?;
        }
        match rates[..] {
            [small, large] if !stats::same_level(small.0, large.0, rule.tolerance) => array_bytes = doubled,
            _ => break,
        }
    }
    Ok(())
}

/// A kernel over each thread's whole part of the arrays, or over the first half of it.
#[derive(Clone, Copy)]
struct Entry {
    kernel: Kernel,
    /// 1 for the whole part, 2 for the first half.
    share: usize,
}

/// What a team measures, and when it has enough.
struct Work<'a> {
    entries: &'a [Entry],
    /// Samples of each entry in a batch.
    samples: u32,
    batches: u32,
    /// Looks at all samples so far (by entry, warm-up first) after each batch.
    enough: &'a (dyn Fn(&[Vec<Sample>]) -> bool + Sync),
}

/// One thread's part of the arrays.
struct Part<'a> {
    dst: &'a mut [Line],
    a: &'a mut [Line],
    b: &'a mut [Line],
    first_line: u64,
}

impl Part<'_> {
    /// Lines of the arrays in use.
    fn lines(&self) -> usize {
        self.dst.len().max(self.a.len()).max(self.b.len())
    }

    /// These lines of all three arrays. One that no kernel uses is empty.
    fn operands(&mut self, lines: Range<usize>) -> Operands<'_> {
        let of = |length: usize| if length < lines.end { 0..0 } else { lines.clone() };
        let (dst, a, b) = (of(self.dst.len()), of(self.a.len()), of(self.b.len()));
        Operands { dst: &mut self.dst[dst], a: &self.a[a], b: &self.b[b] }
    }
}

/// One thread's samples: by entry, then in the order taken, start and finish.
type Spans = Vec<Vec<(Nanos, Nanos)>>;

/// What one thread brings back, by entry.
struct Samples {
    spans: Spans,
    passes: Vec<u64>,
    wrong: Vec<Option<String>>,
}

/// The arrays of a group. The next one takes them over where their pages would lie on the same node anyway: touching them
/// is much of the time on a guest.
pub(super) struct Arrays {
    bytes: Bytes,
    memory_nodes: NodeSet,
    /// How many source arrays there are, and whether there is one to write.
    uses: (u64, bool),
    dst: Buffer,
    a: Buffer,
    b: Buffer,
    bind_caveat: Option<Caveat>,
}

impl Arrays {
    /// Makes `held` fit for this group.
    fn ready<'a>(held: &'a mut Option<Arrays>, plan: &Plan, group: &Group, work: &Work<'_>) -> Result<&'a mut Arrays> {
        let operations = || work.entries.iter().map(|entry| entry.kernel.row().operation);
        let sources = operations().map(Operation::sources).max().unwrap_or(0);
        let writes = operations().any(|operation| operation.arrays_written() > 0);
        let fits = |held: &Arrays| {
            let one_node = group.memory_nodes.len() <= 1 && held.memory_nodes == group.memory_nodes;
            one_node && held.bytes == group.array_bytes && held.uses.0 >= sources && (held.uses.1 || !writes)
        };
        if !held.as_ref().is_some_and(fits) {
            // The old ones go first: both may not fit.
            *held = None;
        }
        if let Some(arrays) = held {
            return Ok(arrays);
        }
        let mut bind_caveat = None;
        let mut reserve = |used: bool| -> Result<Buffer> {
            // What no kernel uses is a placeholder and takes no pages of a special kind.
            let (bytes, pages) =
                if used { (group.array_bytes, plan.pages) } else { (Bytes(Line::BYTES), Pages::Default) };
            let buffer = Buffer::reserve(bytes, pages)?;
            if group.placement != Policy::FirstTouch
                && let Err(error) = buffer.bind(&group.placement)
            {
                bind_caveat = Some(Caveat::PlacementUnverified { reason: error.to_string() });
            }
            Ok(buffer)
        };
        let (dst, a, b) = (reserve(writes)?, reserve(sources > 0)?, reserve(sources > 1)?);
        let memory_nodes = group.memory_nodes.clone();
        Ok(held.insert(Arrays {
            bytes: group.array_bytes,
            memory_nodes,
            uses: (sources, writes),
            dst,
            a,
            b,
            bind_caveat,
        }))
    }
}

/// Measures one group; what goes wrong is an outcome too.
fn measure(
    held: &mut Option<Arrays>,
    plan: &Plan,
    group: &Group,
    work: &Work<'_>,
    context: &Context<'_>,
) -> Vec<Outcome> {
    try_measure(held, plan, group, work, context).unwrap_or_else(|error| vec![Outcome::Failed(error)])
}

fn try_measure(
    held: &mut Option<Arrays>,
    plan: &Plan,
    group: &Group,
    work: &Work<'_>,
    context: &Context<'_>,
) -> Result<Vec<Outcome>> {
    let Arrays { dst, a, b, bind_caveat, uses, .. } = Arrays::ready(held, plan, group, work)?;
    let threads = group.cpus.len();
    let lines = (group.array_bytes.0 / Line::BYTES) as usize;
    let cut = |thread: usize| lines * thread / threads;
    let parts: Vec<Mutex<Option<Part<'_>>>> = {
        let mut rest = [dst.lines_mut(), a.lines_mut(), b.lines_mut()];
        (0..threads)
            .map(|thread| {
                let mut used = [uses.1, uses.0 > 0, uses.0 > 1].into_iter();
                let [dst, a, b] = rest.each_mut().map(|array| {
                    // Every part of an array that no kernel uses is empty.
                    let length = if used.next() == Some(true) { cut(thread + 1) - cut(thread) } else { 0 };
                    array.split_off_mut(..length).unwrap_or_default()
                });
                Mutex::new(Some(Part { dst, a, b, first_line: cut(thread) as u64 }))
            })
            .collect()
    };

    let samples = if context.verify { 0 } else { work.samples };
    let rules = Rules {
        samples,
        sample_least: Nanos(plan.sample_least_ns),
        refill_lines: (2 * group.cache_bytes.0 / Line::BYTES) as usize / threads,
        stop: context.stop,
        published: (0..threads).map(|_| Mutex::default()).collect(),
    };
    let outcome = team::run(&group.cpus, context.clock, |mut seat| {
        let taken = parts[seat.index].lock().unwrap_or_else(|poison| poison.into_inner()).take();
        taken.map(|part| thread(&mut seat, part, work, &rules))
    })?;
    drop(parts);
    let taken_with = TeamOutcome {
        results: outcome.results.into_iter().flatten().collect::<Vec<Samples>>(),
        disturbance: outcome.disturbance,
        caveats: bind_caveat.iter().cloned().chain(outcome.caveats).collect(),
    };

    let placement = verify_placement(group, [dst, a, b], cut);
    let step = |(index, entry): (usize, &Entry)| {
        if let Some(wrong) = taken_with.results.iter().find_map(|result| result.wrong[index].as_ref()) {
            return Some(Outcome::Failed(Error::refused(
                format!("trust {} on {}", entry.kernel.row().name, Threads(threads as u32)),
                wrong,
                "its numbers were dropped; run --verify, and suspect the hardware if that passes",
            )));
        }
        let lines: usize = (0..threads).map(|thread| (cut(thread + 1) - cut(thread)) / entry.share).sum();
        let array_bytes = Bytes(lines as u64 * Line::BYTES);
        let line = || stream_step(plan, group, (index, entry.kernel), array_bytes, &taken_with, &placement, context);
        (!context.verify).then(|| Outcome::Measured(Box::new(RecordLine::Stream(line()))))
    };
    Ok(work.entries.iter().enumerate().filter_map(step).collect())
}

/// The record's line of one entry.
fn stream_step(
    plan: &Plan,
    group: &Group,
    (index, kernel): (usize, Kernel),
    array_bytes: Bytes,
    outcome: &TeamOutcome<Samples>,
    placement: &Placement,
    context: &Context<'_>,
) -> StreamStep {
    let row = kernel.row();
    let per_sample = spans::by_sample(outcome.results.iter().map(|result| &result.spans[index]));
    let caveats = group.caveats.iter().chain(&outcome.caveats).chain(&placement.caveats);
    let mut step = Step {
        threads: group.cpus.len() as u32,
        cpus: group.cpus.clone(),
        caveats: caveats.cloned().collect(),
        samples_ns: per_sample.iter().map(spans::elapsed).collect(),
        units_per_sample: outcome.results.first().map_or(1, |first| first.passes[index]),
        // STREAM's rule: the first repeat does not count.
        warmup_samples: u32::from(per_sample.len() > 1),
        per_thread: per_sample.last().map(spans::relative).unwrap_or_default(),
        disturbance: outcome.disturbance.clone(),
    };
    let planned = group.samples + 1;
    step.caveats.extend(context.cut_short(per_sample.len() as u32, planned, "stopped"));
    step.caveats.extend(spans::too_short(&step, context.clock_step));
    if let Some((low_ns, high_ns)) = stats::two_levels(&stats::unit_times(&step)) {
        step.caveats.push(Caveat::Bimodal { low_ns, high_ns });
    }
    let counted_bytes = row.operation.counted_bytes(array_bytes);
    let (bus_bytes_min, bus_bytes_max) = row.operation.bus_bytes(array_bytes, row.store);
    let summary = stats::stream(&step, counted_bytes);
    StreamStep {
        step,
        kernel: row.name.to_owned(),
        operation: row.operation.name().to_owned(),
        isa: row.isa.name().to_owned(),
        store: row.store.map(|store| store.name().to_owned()),
        array_bytes,
        cache_bytes: group.cache_bytes,
        scope: group.scope.clone(),
        cpu_nodes: group.cpu_nodes.clone(),
        memory_nodes: group.memory_nodes.clone(),
        counted_bytes,
        bus_bytes_min,
        bus_bytes_max,
        placement: group.placement.clone(),
        pages_on_node: placement.pages_on_node.clone(),
        page_kind: plan.pages.name().to_owned(),
        huge_page_share: placement.huge_page_share,
        summary,
    }
}

/// What all threads of a team are told.
struct Rules<'a> {
    samples: u32,
    sample_least: Nanos,
    /// Lines of one thread's traffic that fill its share of the caches twice.
    refill_lines: usize,
    stop: Stop<'a>,
    /// Each thread's spans by entry, shown after each batch.
    published: Vec<Mutex<Spans>>,
}

impl Rules<'_> {
    fn may_go_on(&self, clock: Clock) -> bool {
        self.stop.reason(clock.now()).is_none()
    }

    /// All threads' samples so far, by entry.
    fn so_far(&self, entries: usize) -> Vec<Vec<Sample>> {
        let all: Vec<_> = self.published.iter().map(|spans| spans.lock().map(|spans| spans.clone())).collect();
        let threads: Vec<_> = all.into_iter().map(|spans| spans.unwrap_or_default()).collect();
        (0..entries).map(|entry| spans::by_sample(threads.iter().filter_map(|thread| thread.get(entry)))).collect()
    }
}

/// What one thread does: touch its part first, find how many passes make a sample, then sample all entries in turn, so
/// that a machine that changes its mood changes it for all of them.
fn thread(seat: &mut Seat<'_>, mut part: Part<'_>, work: &Work<'_>, rules: &Rules<'_>) -> Samples {
    fill_words(part.dst, part.first_line, 1);
    fill_words(part.a, part.first_line, 2);
    fill_words(part.b, part.first_line, 3);

    let (clock, lines) = (seat.clock, part.lines());
    let mut passes = Vec::with_capacity(work.entries.len());
    let mut wrong = Vec::with_capacity(work.entries.len());
    for entry in work.entries {
        let window = 0..lines / entry.share;
        let before = sampled(&part.operands(window.clone()));
        seat.meet();
        wrong.push(match entry.kernel.run(&mut part.operands(window.clone()), 1) {
            Ok(checksum) => check(entry.kernel, &before, &part.operands(window.clone()), checksum),
            Err(error) => Some(error.to_string()),
        });
        let traffic = entry.kernel.row().operation.counted_bytes(Bytes(window.len() as u64 * Line::BYTES));
        // The shares of a team differ by a line at most, and all of its threads must come to the same answer.
        let surely_long = seat.agree(|| u64::from(traffic.0 >= SURELY_LONG)) == 1;
        passes.push(if surely_long || rules.samples == 0 {
            1
        } else {
            calibrate::units(
                seat,
                rules.sample_least,
                |_| !rules.may_go_on(clock),
                |seat, passes| {
                    let mut operands = part.operands(window.clone());
                    seat.meet();
                    let start = seat.now();
                    // Lengths were just seen to be right.
                    let _ = entry.kernel.run(&mut operands, passes);
                    Nanos(seat.now().0 - start.0)
                },
            )
        });
    }

    let total = (rules.samples * work.batches) as usize + 1;
    let mut spans: Spans = work.entries.iter().map(|_| Vec::with_capacity(total)).collect();
    let mut batch = 0;
    while rules.samples > 0 && batch < work.batches {
        // The first sample of all is dropped later.
        for _ in 0..rules.samples + u32::from(batch == 0) {
            if !seat.go_on(|| rules.may_go_on(clock)) {
                return Samples { spans, passes, wrong };
            }
            for (index, entry) in work.entries.iter().enumerate() {
                let window = lines / entry.share;
                let operation = entry.kernel.row().operation;
                // What ordinary stores leave dirty in the caches is written back in the time of whoever comes next. So each
                // kernel first fills the caches with its own lines, untimed: the last of the window, long gone from the
                // caches when the timed pass comes to them.
                let _ = entry.kernel.run(&mut part.operands(refill(window, rules.refill_lines, operation)), 1);
                let mut operands = part.operands(0..window);
                seat.meet();
                let start = seat.now();
                let outcome = entry.kernel.run(&mut operands, passes[index]);
                let finish = seat.now();
                spans[index].push((start, finish));
                if let Err(error) = outcome {
                    wrong[index] = Some(error.to_string());
                }
            }
        }
        batch += 1;
        if batch < work.batches {
            if let Ok(mut published) = rules.published[seat.index].lock() {
                published.clone_from(&spans);
            }
            seat.meet();
            if !seat.go_on(|| !(work.enough)(&rules.so_far(work.entries.len()))) {
                break;
            }
        }
    }
    Samples { spans, passes, wrong }
}

/// The last lines of a window over which this operation touches `lines` in all, if there are so many.
fn refill(window: usize, lines: usize, operation: Operation) -> Range<usize> {
    let streams = (operation.sources() + operation.arrays_written()) as usize;
    window.saturating_sub(lines / streams.max(1))..window
}

/// The lines of a destination that are compared, with their numbers: one of each 64 KiB, the first and the last.
fn sampled(operands: &Operands<'_>) -> Vec<(usize, Line)> {
    const STRIDE: usize = 1024;
    let lines = operands.dst.len();
    (0..lines).step_by(STRIDE).chain(lines.checked_sub(1)).map(|index| (index, operands.dst[index])).collect()
}

/// Compares what a pass left behind with the definition of its operation: the sum of every line of a read, and sampled
/// lines of a write, which held `before`. (Every byte is compared once a process, by `kernel::check`.)
fn check(kernel: Kernel, before: &[(usize, Line)], operands: &Operands<'_>, checksum: u64) -> Option<String> {
    let operation = kernel.row().operation;
    if operation == Operation::Read {
        let expected = kernel::expected_sum(operands.a);
        return (expected != checksum).then(|| format!("its checksum is {checksum:#x} and should be {expected:#x}"));
    }
    let unused = Line([0; 64]);
    before.iter().find_map(|(index, before)| {
        let source = |array: &[Line]| *array.get(*index).unwrap_or(&unused);
        let expected = kernel::expected_line(operation, before, &source(operands.a), &source(operands.b));
        (expected != operands.dst[*index]).then(|| format!("line {index} of its output is wrong"))
    })
}

/// Where the pages of a group's arrays were found.
struct Placement {
    pages_on_node: Vec<(NodeId, u64)>,
    huge_page_share: Option<f64>,
    caveats: Vec<Caveat>,
}

/// Asks where a sample of each thread's pages lies.
fn verify_placement(group: &Group, arrays: [&Buffer; 3], cut: impl Fn(usize) -> usize) -> Placement {
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
                    let caveats = vec![Caveat::PlacementUnverified { reason: error.to_string() }];
                    return Placement { pages_on_node: Vec::new(), huge_page_share: None, caveats };
                }
            }
        }
    }
    let caveat = (placed > 0.0).then(|| elsewhere(&group.memory_nodes, there / placed)).flatten();
    Placement {
        pages_on_node: all.pages.into_iter().collect(),
        huge_page_share: stats::median(&huge),
        caveats: caveat.into_iter().collect(),
    }
}

/// A caveat when too few of the sampled pages lie where they should.
pub(super) fn elsewhere(asked: &NodeSet, share_there: f64) -> Option<Caveat> {
    // Without nodes there is no place to be wrong about.
    let wrong = share_there < PAGES_THERE && !asked.is_empty();
    wrong.then(|| Caveat::PagesElsewhere { asked: asked.clone(), share_there })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_99_percent_of_the_pages_in_place_is_a_caveat() {
        let node = NodeSet::from_iter([NodeId(1)]);
        assert_eq!(elsewhere(&node, 0.99), None);
        assert_eq!(elsewhere(&node, 0.985), Some(Caveat::PagesElsewhere { asked: node.clone(), share_there: 0.985 }));
        assert_eq!(elsewhere(&NodeSet::default(), 0.0), None);
    }

    #[test]
    fn what_fills_the_caches_is_the_end_of_the_window_and_enough() {
        // 960 lines of traffic: 960 of one array, 480 of two, 320 of three.
        assert_eq!(refill(10_000, 960, Operation::Read), 9_040..10_000);
        assert_eq!(refill(10_000, 960, Operation::Copy), 9_520..10_000);
        assert_eq!(refill(10_000, 960, Operation::Triad), 9_680..10_000);
        assert_eq!(refill(100, 960, Operation::Fill), 0..100);
    }
}
