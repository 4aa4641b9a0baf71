//! What the bandwidth steps of a record say together: the column, the scaling with threads, what ordinary stores cost, and
//! each node's memory from each node's cores.

use crate::caveat::Caveat;
use crate::plan::stream::{ARRAY_PER_CACHE, COLUMN, Column as Rule, HALVES, MACHINE};
use crate::plan::validate::VALIDATE;
use crate::record::{Line, Record, StreamStep};
use crate::stats;
use crate::units::{Bytes, CpuSet, NodeId, NodeSet};
use std::collections::{BTreeMap, BTreeSet};

/// The bandwidth steps, in order, without those that stand beside another program.
pub fn streams(record: &Record) -> impl Iterator<Item = &StreamStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::Stream(step) if step.scope != VALIDATE => Some(step),
        _ => None,
    })
}

/// Steps of the thread sweep with their best rate (counted bytes per second).
pub fn sweep(record: &Record) -> impl Iterator<Item = (&StreamStep, f64)> {
    streams(record).filter(|step| step.scope == MACHINE).filter_map(|step| Some((step, rate(step)?)))
}

/// The best rate of a step that has one; an edited record may hold anything.
fn rate(step: &StreamStep) -> Option<f64> {
    step.summary.best_bytes_per_s.map(|rate| rate.0).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// The sweep without what the caches may have served.
pub fn memory_sweep(record: &Record) -> impl Iterator<Item = (&StreamStep, f64)> {
    sweep(record).filter(|(step, _)| is_memory(step))
}

/// The bandwidth column: the best copy of the sweep, over arrays that doubling does not change.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Counted bytes per second of its row: the column only where doubling confirmed it.
    pub rate: f64,
    /// The row that gave it.
    pub kernel: String,
    /// The thread count that gave it.
    pub threads: u32,
    /// Bytes of each array.
    pub array_bytes: Bytes,
    /// Sum of the last-level caches in scope.
    pub cache_bytes: Bytes,
    /// Nodes of the CPUs.
    pub cpu_nodes: NodeSet,
    /// What doubling the arrays did to it.
    pub doubling: Doubling,
    /// What taints the steps that it rests on.
    pub caveats: Vec<Caveat>,
}

/// The best copy over arrays twice as large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubling {
    /// The relative change, below the tolerance.
    Confirmed(f64),
    /// The relative change, and it is not: caches are larger than reported, or the machine does not hold still.
    Differs(f64),
    /// Not measured: no memory for it, or the run ended before.
    NotMeasured,
}

impl Column {
    fn new(step: &StreamStep, rate: f64, doubling: Doubling) -> Column {
        Column {
            rate,
            kernel: step.kernel.clone(),
            threads: step.step.threads,
            array_bytes: step.array_bytes,
            cache_bytes: step.cache_bytes,
            cpu_nodes: step.cpu_nodes.clone(),
            doubling,
            caveats: step.step.caveats.clone(),
        }
    }

    /// The column; `None` while nothing confirms that it is memory bandwidth.
    pub fn bytes_per_s(&self) -> Option<f64> {
        matches!(self.doubling, Doubling::Confirmed(_)).then_some(self.rate)
    }
}

/// Whether these numbers are of memory, as far as is known.
fn is_memory(step: &StreamStep) -> bool {
    step.array_bytes.0 / ARRAY_PER_CACHE >= step.cache_bytes.0 && !step.step.caveats.iter().any(Caveat::is_cached)
}

/// The column of a record, confirmed or not, if its sweep has a copy over arrays that count as memory.
pub fn column(record: &Record) -> Option<Column> {
    let cut_short = |step: &StreamStep| step.step.caveats.iter().any(|it| matches!(it, Caveat::CutShort { .. }));
    // Its own steps come in pairs: some size and about twice that.
    let own: Vec<(&StreamStep, f64)> = streams(record)
        .filter(|step| step.scope == COLUMN && is_memory(step))
        .filter_map(|step| Some((step, rate(step)?)))
        .collect();
    let mut last = None;
    for pair in own.windows(2) {
        let [(half, half_rate), (whole, whole_rate)] = pair else { continue };
        let factor = whole.array_bytes.0 as f64 / half.array_bytes.0.max(1) as f64;
        let same_threads = half.kernel == whole.kernel && half.step.cpus == whole.step.cpus;
        if !same_threads || !(1.9..2.1).contains(&factor) || cut_short(half) || cut_short(whole) {
            continue;
        }
        let change = whole_rate / half_rate - 1.0;
        let confirmed = stats::same_level(*half_rate, *whole_rate, Rule::TOLERANCE);
        let doubling = if confirmed { Doubling::Confirmed(change) } else { Doubling::Differs(change) };
        let mut column = Column::new(half, *half_rate, doubling);
        for caveat in &whole.step.caveats {
            if !column.caveats.contains(caveat) {
                column.caveats.push(caveat.clone());
            }
        }
        if confirmed {
            return Some(column);
        }
        last = Some(column);
    }
    last.or_else(|| {
        let copies = sweep(record).filter(|(step, _)| step.operation == "copy" && is_memory(step));
        best(copies).map(|(step, rate)| Column::new(step, rate, Doubling::NotMeasured))
    })
}

/// The fastest of some steps.
pub fn best<'a>(steps: impl Iterator<Item = (&'a StreamStep, f64)>) -> Option<(&'a StreamStep, f64)> {
    steps.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// How one row scales with threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The fastest thread count and its rate.
    pub peak: (u32, f64),
    /// The least thread count that reaches 95 % of the peak.
    pub knee: u32,
    /// The largest thread count and its rate.
    pub most: (u32, f64),
}

impl Scaling {
    /// Share of the peak that makes the knee.
    pub const KNEE: f64 = 0.95;

    /// Of rates by thread count; `None` with fewer than two counts.
    pub fn of(points: &BTreeMap<u32, f64>) -> Option<Scaling> {
        if points.len() < 2 {
            return None;
        }
        let point = |(threads, rate): (&u32, &f64)| (*threads, *rate);
        let peak = points.iter().map(point).reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        let knee = points.iter().map(point).find(|(_, rate)| *rate >= Self::KNEE * peak.1)?.0;
        Some(Scaling { peak, knee, most: points.last_key_value().map(point)? })
    }
}

/// Rates of one row in the sweep by thread count, the best where a count was measured twice.
pub fn by_threads(record: &Record, wanted: impl Fn(&StreamStep) -> bool) -> BTreeMap<u32, f64> {
    let mut points = BTreeMap::new();
    for (step, rate) in memory_sweep(record).filter(|(step, _)| wanted(step)) {
        let point = points.entry(step.step.threads).or_insert(rate);
        *point = point.max(rate);
    }
    points
}

/// What ordinary stores cost against non-temporal ones, for a copy by these threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreRatio {
    /// Threads.
    pub threads: u32,
    /// Non-temporal over ordinary, counted bytes.
    pub ratio: f64,
}

/// The ratio by thread count. Where the bus is the limit and each written line is read before, it is 24 bytes over 16: 1.5.
pub fn store_ratios(record: &Record) -> Vec<StoreRatio> {
    let of = |store: &'static str| {
        by_threads(record, move |step| step.operation == "copy" && step.store.as_deref() == Some(store))
    };
    let ordinary = of("ordinary");
    of("non_temporal")
        .into_iter()
        .filter_map(|(threads, rate)| Some(StoreRatio { threads, ratio: rate / ordinary.get(&threads)? }))
        .collect()
}

/// What both halves of the cores read alone and together, counted bytes per second, best of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halves {
    /// The first half and the second one, each alone.
    pub alone: [f64; 2],
    /// All of these cores at the same time, in the sweep.
    pub together: f64,
}

impl Halves {
    /// Together over the sum: 1 where bandwidths add, ½ where each half alone reads all that there is.
    pub fn ratio(&self) -> f64 {
        self.together / (self.alone[0] + self.alone[1])
    }
}

/// The halves of a record by the row that both were measured with, where all of it is memory.
pub fn halves(record: &Record) -> Option<Halves> {
    let half = |scope: &str| {
        let own = streams(record).filter(|step| step.scope == scope && is_memory(step));
        best(own.filter_map(|step| Some((step, rate(step)?))))
    };
    let ((first, first_rate), (second, second_rate)) = (half(HALVES[0])?, half(HALVES[1])?);
    let both: CpuSet = first.step.cpus.iter().chain(&second.step.cpus).copied().collect();
    let same = |step: &StreamStep| {
        step.step.cpus.len() == both.len()
            && step.step.cpus.iter().all(|cpu| both.contains(*cpu))
            && step.kernel == first.kernel
    };
    let (_, together) = best(memory_sweep(record).filter(|(step, _)| same(step)))?;
    (first.kernel == second.kernel).then_some(Halves { alone: [first_rate, second_rate], together })
}

/// Rates of one operation from each node's cores to each node's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The row of the kernel table.
    pub kernel: String,
    /// Nodes whose cores measured.
    pub from: BTreeSet<NodeId>,
    /// Nodes whose memory was measured.
    pub to: BTreeSet<NodeId>,
    /// Best rate of each pair, counted bytes per second.
    pub cells: BTreeMap<(NodeId, NodeId), f64>,
}

/// The node matrices of a record: read, copy and triad, each with the row that was measured for most pairs. Empty without
/// several nodes.
pub fn matrices(record: &Record) -> Vec<Matrix> {
    let mut rows: Vec<Matrix> = Vec::new();
    for step in streams(record).filter(|step| step.scope.starts_with("node ")) {
        let (mut from, mut to) = (step.cpu_nodes.iter(), step.memory_nodes.iter());
        let (Some(from), None, Some(to), None) = (from.next(), from.next(), to.next(), to.next()) else { continue };
        let Some(rate) = rate(step) else { continue };
        if !matches!(step.operation.as_str(), "read" | "copy" | "triad") {
            continue;
        }
        let index = rows.iter().position(|matrix| matrix.kernel == step.kernel).unwrap_or_else(|| {
            rows.push(Matrix {
                kernel: step.kernel.clone(),
                from: BTreeSet::new(),
                to: BTreeSet::new(),
                cells: BTreeMap::new(),
            });
            rows.len() - 1
        });
        let matrix = &mut rows[index];
        matrix.from.insert(from);
        matrix.to.insert(to);
        matrix.cells.entry((from, to)).and_modify(|best| *best = best.max(rate)).or_insert(rate);
    }
    // A row that only saw local memory is no matrix, and of one operation's rows the fullest counts.
    let operation = |matrix: &Matrix| matrix.kernel.split('_').next().unwrap_or_default().to_owned();
    let mut fullest: BTreeMap<String, usize> = BTreeMap::new();
    for matrix in &rows {
        let most = fullest.entry(operation(matrix)).or_default();
        *most = (*most).max(matrix.cells.len());
    }
    rows.retain(|matrix| {
        let crosses = matrix.cells.keys().any(|(from, to)| from != to);
        crosses && fullest.get(&operation(matrix)) == Some(&matrix.cells.len())
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_comes_before_the_peak_and_the_end_may_lie_below() {
        let points = [(1, 12.0), (8, 90.0), (24, 190.0), (48, 200.0), (64, 194.0)];
        let scaling = Scaling::of(&points.into_iter().collect()).unwrap();
        assert_eq!(scaling, Scaling { peak: (48, 200.0), knee: 24, most: (64, 194.0) });
        // One small Arm board copies 10.2 GB/s with one thread and 6.2 with four.
        let board = Scaling::of(&[(1, 10.2), (4, 6.2)].into_iter().collect()).unwrap();
        assert_eq!((board.peak.0, board.knee, board.most.0), (1, 1, 4));
        assert_eq!(Scaling::of(&[(1, 10.2)].into_iter().collect()), None);
    }
}
