//! What barriers cost by threads, after work, and between reads: fits, the half-rate granularity, and which to take.

use crate::barrier::Wait;
use crate::caveat::Caveat;
use crate::record::{BarrierStep, Line, Record};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond};
use std::collections::BTreeMap;

/// How a barrier's cost grows with its threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Row of the barrier table.
    pub algorithm: String,
    /// How threads wait.
    pub wait: String,
    /// `compact` for sets that fill one domain after another, else the name of the spread.
    pub family: String,
    /// c₀, ns.
    pub base_ns: f64,
    /// c₁, ns.
    pub slope_ns: f64,
    /// What c₁ is multiplied with.
    pub law: Law,
    /// Root of the mean square of the relative residuals.
    pub error: f64,
    /// Thread counts that it rests on.
    pub points: usize,
}

/// What a cost is proportional to, beyond a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// The number of threads.
    Linear,
    /// Its logarithm to base 2.
    Logarithmic,
}

impl Law {
    fn of(self, threads: f64) -> f64 {
        match self {
            Law::Linear => threads,
            Law::Logarithmic => threads.log2(),
        }
    }
}

/// The barrier steps of a record.
pub fn steps(record: &Record) -> impl Iterator<Item = &BarrierStep> {
    record.lines.iter().filter_map(|line| match line {
        Line::Barrier(step) => Some(step),
        _ => None,
    })
}

/// Whether more threads waited than there were CPUs: the scheduler's time and not the barrier's.
pub fn is_oversubscribed(step: &BarrierStep) -> bool {
    step.step.caveats.iter().any(|caveat| matches!(caveat, Caveat::Oversubscribed { .. }))
}

/// Episodes of several threads with nothing between them, with their median.
fn alone(record: &Record) -> impl Iterator<Item = (&BarrierStep, f64)> {
    steps(record)
        .filter(|step| step.is_idle() && step.step.threads > 1)
        .filter_map(|step| Some((step, step.summary.median_ns.filter(|ns| *ns > 0.0)?)))
}

/// Sets that fill one domain after another are one family, whatever the tightest domain is called that holds them.
fn family(spread: &str) -> &str {
    match spread {
        "l3" | "node" | "socket" | "all" => "compact",
        other => other,
    }
}

/// For each algorithm, way of waiting and family with at least three thread counts: c₀ + c₁·n or c₀ + c₁·log₂ n by least squares
/// of the relative residuals, whichever leaves less.
pub fn fits(record: &Record) -> Vec<Fit> {
    let mut families: BTreeMap<(String, String, String), BTreeMap<u32, f64>> = BTreeMap::new();
    for (step, ns) in alone(record).filter(|(step, _)| !is_oversubscribed(step)) {
        let key = (step.algorithm.clone(), step.wait.to_string(), family(&step.spread).to_owned());
        families.entry(key).or_default().insert(step.step.threads, ns);
    }
    let fit = |((algorithm, wait, family), points): ((String, String, String), BTreeMap<u32, f64>)| {
        let points: Vec<(f64, f64)> = points.into_iter().map(|(threads, ns)| (f64::from(threads), ns)).collect();
        let tried =
            [Law::Linear, Law::Logarithmic].into_iter().filter_map(|law| Some((law, least_squares(&points, law)?)));
        let (law, (base_ns, slope_ns, error)) = tried.min_by(|a, b| a.1.2.total_cmp(&b.1.2))?;
        Some(Fit { algorithm, wait, family, base_ns, slope_ns, law, error, points: points.len() })
    };
    families.into_iter().filter_map(fit).collect()
}

/// c₀, c₁ and the relative error of c₀ + c₁·law(n), each point weighted by the inverse square of its value.
fn least_squares(points: &[(f64, f64)], law: Law) -> Option<(f64, f64, f64)> {
    if points.len() < 3 {
        return None;
    }
    // Dividing each equation by its value makes residuals relative: u·c₀ + v·c₁ = 1.
    let rows: Vec<(f64, f64)> = points.iter().map(|(n, ns)| (1.0 / ns, law.of(*n) / ns)).collect();
    let sum = |f: fn(&(f64, f64)) -> f64| rows.iter().map(f).sum::<f64>();
    let (uu, uv, vv) = (sum(|(u, _)| u * u), sum(|(u, v)| u * v), sum(|(_, v)| v * v));
    let (u1, v1) = (sum(|(u, _)| *u), sum(|(_, v)| *v));
    let determinant = uu * vv - uv * uv;
    if determinant.abs() <= 1e-12 * uu * vv {
        return None;
    }
    let base = (u1 * vv - v1 * uv) / determinant;
    let slope = (v1 * uu - u1 * uv) / determinant;
    let square = rows.iter().map(|(u, v)| (u * base + v * slope - 1.0).powi(2)).sum::<f64>();
    Some((base, slope, (square / points.len() as f64).sqrt()))
}

/// The machine in two numbers for one set of threads: how fast it reads, and how much it must read between two barriers to reach
/// half of that (Hockney's n½ for barriers).
#[derive(Clone, Debug, PartialEq)]
pub struct Granularity {
    /// Row of the barrier table.
    pub algorithm: String,
    /// How threads wait.
    pub wait: String,
    /// Number of threads.
    pub threads: u32,
    /// How they are spread.
    pub spread: String,
    /// R: the most that these threads read without a barrier, in slices as long as any that were tried.
    pub roof: BytesPerSecond,
    /// b½ in bytes of all threads together.
    pub half: Half,
    /// Share of R by bytes of all threads between two barriers, ascending.
    pub shares: Vec<(Bytes, f64)>,
}

/// Where half of the roof is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Half {
    /// Between two sizes, by interpolation over the logarithm of bytes.
    At(Bytes),
    /// Already with the smallest size.
    Below(Bytes),
    /// Not with the largest.
    Above(Bytes),
    /// Somewhere between these: a share below a half follows one above, so something else moved.
    Between(Bytes, Bytes),
}

/// One for each set of threads and barrier that was measured between reads of at least two sizes.
pub fn granularities(record: &Record) -> Vec<Granularity> {
    type Key<'a> = (u32, &'a str, &'a str, String);
    let mut sets: BTreeMap<Key<'_>, Vec<&BarrierStep>> = BTreeMap::new();
    for step in steps(record).filter(|step| step.work_bytes.0 > 0 && !is_oversubscribed(step)) {
        let key = (step.step.threads, step.spread.as_str(), step.algorithm.as_str(), step.wait.to_string());
        sets.entry(key).or_default().push(step);
    }
    let one = |((threads, spread, algorithm, wait), steps): (Key<'_>, Vec<&BarrierStep>)| {
        let mut rates: Vec<(Bytes, f64, f64)> = steps.iter().filter_map(|step| rates(step)).collect();
        rates.sort_by_key(|(bytes, ..)| *bytes);
        rates.dedup_by_key(|(bytes, ..)| *bytes);
        let roof = rates.iter().map(|(_, _, without)| *without).fold(0.0, f64::max);
        if rates.len() < 2 || roof <= 0.0 {
            return None;
        }
        let shares: Vec<(Bytes, f64)> = rates.iter().map(|(bytes, with, _)| (*bytes, with / roof)).collect();
        Some(Granularity {
            algorithm: algorithm.to_owned(),
            wait,
            threads,
            spread: spread.to_owned(),
            roof: BytesPerSecond(roof),
            half: half(&shares),
            shares,
        })
    };
    sets.into_iter().filter_map(one).collect()
}

/// Bytes of all threads between two barriers, and what they read a second with and without them.
fn rates(step: &BarrierStep) -> Option<(Bytes, f64, f64)> {
    let bytes = Bytes(step.work_bytes.0.saturating_mul(u64::from(step.step.threads)));
    let with = step.summary.median_ns?;
    let episodes = step.step.units_per_sample.max(1) as f64;
    let without: Vec<f64> = step.without_ns.iter().map(|ns| *ns as f64 / episodes).collect();
    let rate = |ns: f64| (ns > 0.0).then(|| bytes.0 as f64 / ns * 1e9);
    Some((bytes, rate(with)?, rate(stats::median(&without)?)?))
}

/// Where shares pass a half, by the line between the sizes below and above.
fn half(shares: &[(Bytes, f64)]) -> Half {
    let Some(below) = shares.iter().rposition(|(_, share)| *share < 0.5) else {
        return Half::Below(shares.first().map_or(Bytes(0), |(bytes, _)| *bytes));
    };
    if let Some((low, _)) = shares[..below].iter().find(|(_, share)| *share >= 0.5) {
        return Half::Between(*low, shares[below].0);
    }
    let Some(((low, under), (high, over))) = shares.get(below).copied().zip(shares.get(below + 1).copied()) else {
        return Half::Above(shares.last().map_or(Bytes(0), |(bytes, _)| *bytes));
    };
    let part = (0.5 - under) / (over - under);
    let log = |bytes: Bytes| (bytes.0.max(1) as f64).ln();
    Half::At(Bytes((log(low) + part * (log(high) - log(low))).exp().round() as u64))
}

/// With fewer samples the outermost ones do not say how far the others reach.
const SAMPLES_LEAST: usize = 7;

/// Which barrier to take for one set of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Number of threads.
    pub threads: u32,
    /// How they are spread.
    pub spread: String,
    /// The least median, with its way of waiting.
    pub best: (String, String, f64),
    /// Others whose samples overlap with the best one's between the 5th and the 95th percentile: not distinguished.
    pub same: Vec<(String, String)>,
    /// The central counter's median over the best one's.
    pub central_over_best: Option<f64>,
    /// Whether there are more threads than CPUs: then it is about who gives its CPU away.
    pub oversubscribed: bool,
}

/// A choice for each set of at least two threads for which at least two barriers were measured.
pub fn choices(record: &Record) -> Vec<Choice> {
    type Set<'a> = (u32, &'a str);
    let mut sets: BTreeMap<Set<'_>, Vec<(&BarrierStep, f64)>> = BTreeMap::new();
    for (step, ns) in alone(record).filter(|(step, _)| step.step.samples_ns.len() >= SAMPLES_LEAST) {
        sets.entry((step.step.threads, step.spread.as_str())).or_default().push((step, ns));
    }
    let one = |((threads, spread), mut rows): (Set<'_>, Vec<(&BarrierStep, f64)>)| {
        rows.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, ns) = *rows.first().filter(|_| rows.len() > 1)?;
        let range = |step: &BarrierStep| {
            let times = stats::unit_times(&step.step);
            Some((stats::quantile(&times, 0.05)?, stats::quantile(&times, 0.95)?))
        };
        let (_, high) = range(best)?;
        let overlaps = |step: &BarrierStep| range(step).is_some_and(|(low, _)| low <= high);
        let named = |step: &BarrierStep| (step.algorithm.clone(), step.wait.to_string());
        let same = rows[1..].iter().filter(|(step, _)| overlaps(step)).map(|(step, _)| named(step)).collect();
        // As llama.cpp waits there.
        let central =
            rows.iter().find(|(step, _)| step.algorithm == "central" && matches!(step.wait, Wait::Pause | Wait::Isb));
        let (algorithm, wait) = named(best);
        Some(Choice {
            threads,
            spread: spread.to_owned(),
            best: (algorithm, wait, ns),
            same,
            central_over_best: central.map(|(_, central)| central / ns),
            oversubscribed: is_oversubscribed(best),
        })
    };
    sets.into_iter().filter_map(one).collect()
}
