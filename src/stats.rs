//! Pure summaries of samples. Each formula names its source.

use crate::record::{
    AtomicStep, AtomicSummary, BarrierSummary, DecodeSummary, DetourStep, DetourSummary, DispatchSummary,
    LatencySummary, Line, LoadedLatencyStep, LoadedSummary, ReferenceStep, ReferenceSummary, SiblingStep,
    SiblingSummary, Step, StreamStep, StreamSummary, Trace, TracedSummary,
};
use crate::units::{Bytes, BytesPerSecond, Nanos};
use std::collections::BTreeMap;

/// The `q`-quantile (0 to 1) of the values: linear interpolation between order statistics at q·(n − 1), the definition
/// numbered 7 in Hyndman and Fan 1996 and the default of R and NumPy. `None` without values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor();
    let low = sorted[below as usize];
    let high = sorted[(below as usize + 1).min(last)];
    Some(low + (high - low) * (position - below))
}

/// The median.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Half the distance between quartiles over the median: a spread that single outliers do not move.
pub fn relative_spread(values: &[f64]) -> Option<f64> {
    let (low, middle, high) = (quantile(values, 0.25)?, median(values)?, quantile(values, 0.75)?);
    (middle > 0.0).then(|| (high - low) / 2.0 / middle)
}

/// A two-sided 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether both hold some value.
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether `value` lies inside.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Percentile bootstrap (Efron 1979): resamples whole rounds with replacement, applies `statistic` to each resample and
/// takes the 2.5 % and 97.5 % quantiles. A round stays whole, so what its arms share (the machine's mood) stays shared.
/// `None` below 5 rounds, where the resamples hardly differ.
pub fn bootstrap<R: Clone>(rounds: &[R], seed: u64, statistic: impl Fn(&[R]) -> Option<f64>) -> Option<Interval> {
    const RESAMPLES: usize = 1000;
    if rounds.len() < 5 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut resample = rounds.to_vec();
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for slot in &mut resample {
            slot.clone_from(&rounds[random.usize(..rounds.len())]);
        }
        values.push(statistic(&resample)?);
    }
    Some(Interval { low: quantile(&values, 0.025)?, high: quantile(&values, 0.975)? })
}

/// Whether two values are the same within a relative tolerance of the smaller one.
pub fn same_level(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() < tolerance * a.min(b)
}

/// Two levels among samples, if there are two: Otsu's threshold (1979) splits the sorted values where the variance
/// between the halves is largest; they count as levels when each holds at least a fifth of the samples, they are at least
/// 15 % apart, and that gap is at least four times the spread inside each. Returns the medians of both.
///
/// Otsu's variance goes with the square of a distance, so one sample far out would draw the split to itself. For the split
/// alone, the outermost twentieth at either end (at least one sample) therefore counts as its inner neighbour
/// (winsorised, Dixon 1960); by itself it could be no level.
pub fn two_levels(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    let least = n.div_ceil(5).max(2);
    if n < 2 * least {
        return None;
    }
    let outermost = n.div_ceil(20);
    let inner = |index: usize| sorted[index.clamp(outermost, n - 1 - outermost)];
    let total: f64 = (0..n).map(inner).sum();
    let mut best = (0.0, 0);
    let mut below = 0.0;
    for split in 1..n {
        below += inner(split - 1);
        let (weight_low, weight_high) = (split as f64, (n - split) as f64);
        let distance = (total - below) / weight_high - below / weight_low;
        let between = weight_low * weight_high * distance * distance;
        if between > best.0 {
            best = (between, split);
        }
    }
    let (low, high) = sorted.split_at(best.1);
    if low.len() < least || high.len() < least {
        return None;
    }
    let (low_middle, high_middle) = (median(low)?, median(high)?);
    let spread = |part: &[f64]| Some(quantile(part, 0.75)? - quantile(part, 0.25)?);
    let gap = high_middle - low_middle;
    (gap > 0.15 * low_middle && gap > 4.0 * spread(low)?.max(spread(high)?)).then_some((low_middle, high_middle))
}

/// Time of one unit in each counted sample, ns.
pub fn unit_times(step: &Step) -> Vec<f64> {
    let units = step.units_per_sample.max(1) as f64;
    step.samples_ns.iter().skip(step.warmup_samples as usize).map(|ns| *ns as f64 / units).collect()
}

/// Rates by counted bytes. Best of the repeats and without the first one: STREAM's rule (McCalpin).
pub fn stream(step: &Step, counted: Bytes) -> StreamSummary {
    let times = unit_times(step);
    let rate = |ns: Option<f64>| ns.filter(|ns| *ns > 0.0).map(|ns| BytesPerSecond(counted.0 as f64 * 1e9 / ns));
    StreamSummary { best_bytes_per_s: rate(quantile(&times, 0.0)), median_bytes_per_s: rate(median(&times)) }
}

/// Time of one unit.
pub fn latency(step: &Step) -> LatencySummary {
    let times = unit_times(step);
    let at = |q| quantile(&times, q);
    LatencySummary { median_ns: at(0.5), p5_ns: at(0.05), p95_ns: at(0.95) }
}

/// Time of one unit to a hundredth of a nanosecond: there may be tens of thousands of lines, and more digits would be noise.
/// So would be percentiles of fewer than seven samples: the outermost samples, which are there.
pub fn core_latency(step: &Step) -> LatencySummary {
    let all = latency(step);
    let rounded = |ns: Option<f64>| ns.map(|ns| (ns * 100.0).round() / 100.0);
    let tail = |ns| rounded(ns).filter(|_| step.samples_ns.len() >= 7);
    LatencySummary { median_ns: rounded(all.median_ns), p5_ns: tail(all.p5_ns), p95_ns: tail(all.p95_ns) }
}

/// How much longer two CPUs take together than the slower one of them alone: the median over samples of that ratio inside a
/// sample.
pub fn sibling(step: &Step, alone_a_ns: &[u64], alone_b_ns: &[u64]) -> SiblingSummary {
    let alone = alone_a_ns.iter().zip(alone_b_ns).map(|(a, b)| *a.max(b));
    let pairs = step.samples_ns.iter().zip(alone).skip(step.warmup_samples as usize).filter(|(_, alone)| *alone > 0);
    let ratios: Vec<f64> = pairs.map(|(together, alone)| *together as f64 / alone as f64).collect();
    SiblingSummary { slowdown: median(&ratios) }
}

/// Whole numbers counted in bins that are [`BIN`] wide: the largest number of each bin that is not empty, ascending, and how
/// many are in it.
pub fn log_histogram(values: &[u64]) -> Vec<(u64, u64)> {
    let largest = |value: u64| {
        let first = ((value.max(1) as f64).ln() / BIN.ln()).floor() as i32;
        (first..).map(|bin| BIN.powi(bin) as u64).find(|largest| *largest >= value)
    };
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    values.iter().filter_map(|value| largest(*value)).for_each(|largest| *bins.entry(largest).or_default() += 1);
    bins.into_iter().collect()
}

/// Where a bin of [`log_histogram`] ends, over where it begins.
pub const BIN: f64 = 1.03;

/// Spearman's rank correlation (1904): Pearson's over the ranks, equal values sharing the mean of theirs. −1 to 1; `None`
/// when one side holds a single value or less, or the lengths differ.
pub fn rank_correlation(a: &[u64], b: &[u64]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let ranks = |values: &[u64]| -> Vec<f64> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let rank = |value: &u64| {
            let (below, upto) =
                (sorted.partition_point(|other| other < value), sorted.partition_point(|other| other <= value));
            (below + upto) as f64 / 2.0
        };
        values.iter().map(rank).collect()
    };
    let middle = a.len() as f64 / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>();
    let (a, b) = (ranks(a), ranks(b));
    let both = (product(&a, &a) * product(&b, &b)).sqrt();
    (both > 0.0).then(|| product(&a, &b) / both)
}

/// Time of one episode; what it takes longer than the same work without a barrier, sample by sample; percentiles of a trace.
pub fn barrier(step: &Step, without_ns: &[u64], trace: Option<&Trace>) -> BarrierSummary {
    let episodes = step.units_per_sample.max(1) as f64;
    let pairs = step.samples_ns.iter().zip(without_ns);
    let exposed: Vec<f64> = pairs.map(|(with, without)| (*with as f64 - *without as f64) / episodes).collect();
    let median_ns = median(&unit_times(step));
    let traced = trace.zip(median_ns).and_then(|(trace, median_ns)| {
        let at = |q| bin_at(&trace.episode, q);
        Some(TracedSummary {
            p5_ns: at(0.05)?,
            p95_ns: at(0.95)?,
            p99_ns: at(0.99)?,
            max_ns: at(1.0)?,
            release_ns: bin_at(&trace.release, 0.5)?,
            skew_ns: bin_at(&trace.skew, 0.5)?,
            overhead_ns: trace.total_ns as f64 / trace.episodes.max(1) as f64 - median_ns,
        })
    });
    BarrierSummary { median_ns, exposed_ns: median(&exposed), traced }
}

/// Time of a job, and until all had begun it.
pub fn dispatch(step: &Step, started_ns: &[u64]) -> DispatchSummary {
    let started: Vec<f64> = started_ns.iter().map(|ns| *ns as f64).collect();
    DispatchSummary { median_ns: median(&unit_times(step)), started_ns: median(&started) }
}

/// The largest number of the bin that holds quantile `q` of a histogram: the least that at least that share does not exceed.
fn bin_at(histogram: &[(u64, u64)], q: f64) -> Option<u64> {
    let all = histogram.iter().fold(0u64, |all, (_, count)| all.saturating_add(*count));
    let needed = (q * all as f64).ceil() as u64;
    let mut seen = 0u64;
    histogram.iter().find_map(|(largest, count)| {
        seen = seen.saturating_add(*count);
        (seen >= needed.max(1)).then_some(*largest)
    })
}

/// Numbers a second of all threads together, and the smallest share of a thread over the largest.
pub fn atomic(step: &Step, by_thread: &[u64]) -> AtomicSummary {
    let operations_per_s = median(&unit_times(step)).filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns);
    let (least, most) = (by_thread.iter().min(), by_thread.iter().max());
    let fairness = least.zip(most).filter(|(_, most)| **most > 0).map(|(least, most)| *least as f64 / *most as f64);
    AtomicSummary { operations_per_s, fairness }
}

/// Rate, share and longest of gaps: how many there were, how long together, and the longest of each window.
pub fn detour(step: &Step, (count, total_ns): (u64, u64), longest: &[u64]) -> DetourSummary {
    let watched = step.samples_ns.first().copied().filter(|ns| *ns > 0).map(|ns| ns as f64);
    DetourSummary {
        per_s: watched.map(|ns| count as f64 * 1e9 / ns),
        share: watched.map(|ns| total_ns as f64 / ns),
        longest_ns: longest.iter().max().copied(),
    }
}

/// The expected largest of `draws` (1 or more, or a fraction of one) independent draws from the values: their maximum is at most x
/// with probability F(x)^draws (the distribution of block maxima: Gumbel, Statistics of Extremes, 1958), where F is the empirical
/// distribution of the values, so it is the sum over sorted values of x_i · ((i/n)^draws − ((i − 1)/n)^draws). Never above
/// the largest value: an estimate from below where `draws` exceeds n. `None` without values.
pub fn expected_maximum(values: &[f64], draws: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let below = |rank: usize| (rank as f64 / n).powf(draws);
    let sum = sorted.iter().enumerate().map(|(index, value)| value * (below(index + 1) - below(index))).sum();
    (!values.is_empty() && draws > 0.0).then_some(sum)
}

/// Time of a load, and the rate of those who read meanwhile: medians over samples.
pub fn loaded(step: &Step, background_bytes: &[u64], background_ns: &[u64]) -> LoadedSummary {
    let rates = background_bytes.iter().zip(background_ns).filter(|(_, ns)| **ns > 0);
    let rates: Vec<f64> = rates.map(|(bytes, ns)| *bytes as f64 * 1e9 / *ns as f64).collect();
    LoadedSummary { background_bytes_per_s: median(&rates), median_ns: median(&unit_times(step)) }
}

/// Time of one token and its inverse.
pub fn decode(step: &Step) -> DecodeSummary {
    let median_ns = median(&unit_times(step));
    DecodeSummary { median_ns, tokens_per_s: median_ns.filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns) }
}

/// Whether a rate that another program printed is what its bytes and its shortest time give. STREAM prints times to the
/// microsecond; beyond their rounding 1 % is allowed.
pub fn is_rate_of(rate: BytesPerSecond, counted: Bytes, shortest: Nanos) -> bool {
    let rounding = 500.0 / shortest.0.max(1) as f64;
    counted.per(shortest).is_some_and(|expected| (rate.0 / expected.0 - 1.0).abs() <= 0.01 + rounding)
}

/// Time of one unit and, where bytes count, its rate.
pub fn reference(step: &Step, counted: Option<Bytes>) -> ReferenceSummary {
    let median_ns = median(&unit_times(step));
    let time = median_ns.filter(|ns| *ns > 0.0);
    let bytes_per_s = counted.zip(time).map(|(bytes, ns)| BytesPerSecond(bytes.0 as f64 * 1e9 / ns));
    ReferenceSummary { median_ns, bytes_per_s }
}

/// Says of each step whose summary is not what its samples give, that it is so: somebody edited the record, or another
/// version summed up differently.
pub fn disagreements(lines: &[Line]) -> Vec<String> {
    let wrong = lines.iter().enumerate().filter(|(_, line)| !agrees(line));
    wrong.map(|(index, _)| format!("step {}: its summary is not what its samples give", index + 1)).collect()
}

/// Whether a line's summary is what its samples give, within the digits that JSON keeps.
pub fn agrees(line: &Line) -> bool {
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        (None, None) => true,
        _ => false,
    };
    let rate = |rate: Option<BytesPerSecond>| rate.map(|rate| rate.0);
    match line {
        Line::Run(_) | Line::End(_) => true,
        Line::Stream(StreamStep { step, counted_bytes, summary, .. }) => {
            let again = stream(step, *counted_bytes);
            near(rate(again.best_bytes_per_s), rate(summary.best_bytes_per_s))
                && near(rate(again.median_bytes_per_s), rate(summary.median_bytes_per_s))
        }
        Line::CoreLatency(line) => match (latency(&line.step).median_ns, line.summary.median_ns) {
            // Rounded to a hundredth, and not at all by the first versions.
            (Some(again), Some(ns)) => (again - ns).abs() <= 0.005_001,
            (again, ns) => near(again, ns),
        },
        Line::Sibling(SiblingStep { step, alone_a_ns, alone_b_ns, summary, .. }) => {
            near(sibling(step, alone_a_ns, alone_b_ns).slowdown, summary.slowdown)
        }
        Line::MemoryLatency(line) => near(latency(&line.step).median_ns, line.summary.median_ns),
        Line::PageLatency(line) => near(latency(&line.step).median_ns, line.summary.median_ns),
        Line::LoadedLatency(LoadedLatencyStep { step, background_bytes, background_ns, summary, .. }) => {
            let again = loaded(step, background_bytes, background_ns);
            near(again.background_bytes_per_s, summary.background_bytes_per_s)
                && near(again.median_ns, summary.median_ns)
        }
        Line::Atomic(AtomicStep { step, operations_by_thread, summary, .. }) => {
            let again = atomic(step, operations_by_thread);
            near(again.operations_per_s, summary.operations_per_s) && near(again.fairness, summary.fairness)
        }
        Line::Detour(DetourStep { step, count, total_ns, window_longest_ns, summary, .. }) => {
            let again = detour(step, (*count, *total_ns), window_longest_ns);
            near(again.per_s, summary.per_s)
                && near(again.share, summary.share)
                && again.longest_ns == summary.longest_ns
        }
        Line::Reference(ReferenceStep { step, counted_bytes, summary, .. }) => {
            let again = reference(step, *counted_bytes);
            near(again.median_ns, summary.median_ns) && near(rate(again.bytes_per_s), rate(summary.bytes_per_s))
        }
        Line::Overhead(line) => near(latency(&line.step).median_ns, line.summary.median_ns),
        Line::Barrier(line) => {
            let again = barrier(&line.step, &line.without_ns, line.trace.as_ref());
            let overhead = |summary: &BarrierSummary| summary.traced.map(|traced| traced.overhead_ns);
            // To the digits of the difference of two long times.
            let same = |a: f64, b: f64| (a - b).abs() < 1e-3 + 1e-9 * a.abs();
            let exact =
                |summary: &BarrierSummary| summary.traced.map(|traced| TracedSummary { overhead_ns: 0.0, ..traced });
            near(again.median_ns, line.summary.median_ns)
                && again.exposed_ns.zip(line.summary.exposed_ns).is_none_or(|(a, b)| same(a, b))
                && again.exposed_ns.is_some() == line.summary.exposed_ns.is_some()
                && exact(&again) == exact(&line.summary)
                && overhead(&again).zip(overhead(&line.summary)).is_none_or(|(a, b)| same(a, b))
        }
        Line::Dispatch(line) => {
            let again = dispatch(&line.step, &line.started_ns);
            near(again.median_ns, line.summary.median_ns) && near(again.started_ns, line.summary.started_ns)
        }
        Line::Peer(line) => {
            let shortest = line.step.samples_ns.first().copied().unwrap_or_default();
            line.summary.best_bytes_per_s.is_some_and(|rate| is_rate_of(rate, line.counted_bytes, Nanos(shortest)))
        }
        Line::Decode(line) => near(decode(&line.step).median_ns, line.summary.median_ns),
        Line::Engine(line) => near(decode(&line.step).median_ns, line.summary.median_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_follow_definition_7() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), Some(2.5));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert!((quantile(&values, 0.05).unwrap() - 1.15).abs() < 1e-12);
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_first_repeat_is_dropped_and_the_best_counts() {
        let step =
            Step { samples_ns: vec![50, 200, 100, 400], units_per_sample: 2, warmup_samples: 1, ..Step::default() };
        let summary = stream(&step, Bytes(1000));
        assert_eq!(summary.best_bytes_per_s, Some(BytesPerSecond(20e9)));
        assert_eq!(summary.median_bytes_per_s, Some(BytesPerSecond(10e9)));
        assert_eq!(stream(&Step::default(), Bytes(8)), StreamSummary::default());
    }

    #[test]
    fn the_bootstrap_covers_a_known_median_and_keeps_rounds_whole() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut covered = 0;
        for seed in 0..200 {
            let rounds: Vec<(f64, f64)> = (0..25)
                .map(|_| {
                    let mood = random.f64() * 1000.0;
                    (mood, mood + 10.0 + random.f64() - 0.5)
                })
                .collect();
            let difference = |rounds: &[(f64, f64)]| median(&rounds.iter().map(|(a, b)| b - a).collect::<Vec<_>>());
            let interval = bootstrap(&rounds, seed, difference).unwrap();
            // The moods differ by hundreds; paired inside a round they cancel.
            assert!(interval.high - interval.low < 1.0);
            covered += usize::from(interval.contains(10.0));
        }
        assert!(covered >= 180, "{covered} of 200");
        assert_eq!(bootstrap(&[1.0; 4], 0, |_| Some(1.0)), None);
    }

    #[test]
    fn atomics_are_summed_over_threads_and_compared_between_them() {
        let step = Step { samples_ns: vec![1000, 3000, 2000], units_per_sample: 100, ..Step::default() };
        let summary = atomic(&step, &[100, 150, 50]);
        assert_eq!(summary, AtomicSummary { operations_per_s: Some(5e7), fairness: Some(50.0 / 150.0) });
        assert_eq!(atomic(&Step::default(), &[0, 0]), AtomicSummary::default());
    }

    #[test]
    fn together_is_held_against_the_slower_one_alone_in_the_same_sample() {
        let step = Step { samples_ns: vec![200, 330, 1000], ..Step::default() };
        assert_eq!(sibling(&step, &[100, 110, 100], &[90, 165, 90]).slowdown, Some(2.0));
        assert_eq!(sibling(&step, &[0, 0, 0], &[0, 0, 0]), SiblingSummary::default());
    }

    #[test]
    fn bins_of_a_histogram_are_a_thirtieth_wide_and_hold_everything() {
        let values: Vec<u64> = (1..20_000).collect();
        let histogram = log_histogram(&values);
        assert_eq!(histogram.iter().map(|(_, count)| count).sum::<u64>(), 19_999);
        assert!(histogram.is_sorted() && histogram.len() < 300, "{}", histogram.len());
        let mut below = 0;
        for (largest, count) in &histogram {
            assert!(*largest >= 20_000 || *count == largest - below, "{below} to {largest}: {count}");
            assert!(below < 100 || (*largest as f64) < 1.041 * below as f64, "{below} to {largest}");
            below = *largest;
        }
        assert!(log_histogram(&[]).is_empty());
    }

    #[test]
    fn ranks_correlate_whatever_the_scale() {
        let rising: Vec<u64> = (1..100).collect();
        let squares: Vec<u64> = rising.iter().map(|value| value * value).collect();
        let falling: Vec<u64> = rising.iter().rev().copied().collect();
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
        assert!(near(rank_correlation(&rising, &squares), 1.0) && near(rank_correlation(&falling, &squares), -1.0));
        // Two groups and ties.
        assert!(near(rank_correlation(&[1, 1, 9, 9], &[7, 7, 3, 3]), -1.0));
        assert!(near(rank_correlation(&[1, 1, 9, 9], &[3, 7, 3, 7]), 0.0));
        assert_eq!(rank_correlation(&[1, 1], &[3, 7]), None);
        assert_eq!(rank_correlation(&[1, 2], &[3]), None);
    }

    #[test]
    fn the_expected_maximum_is_that_of_many_draws() {
        let values: Vec<f64> = (0..200).map(|i| if i % 50 == 0 { 90_000.0 + f64::from(i) } else { 2_000.0 }).collect();
        assert!((expected_maximum(&values, 1.0).unwrap() - values.iter().sum::<f64>() / 200.0).abs() < 1e-6);
        let mut random = fastrand::Rng::with_seed(5);
        for draws in [2usize, 20, 500] {
            let largest = |random: &mut fastrand::Rng| {
                (0..draws).map(|_| values[random.usize(..values.len())]).fold(0.0, f64::max)
            };
            let mean = (0..4000).map(|_| largest(&mut random)).sum::<f64>() / 4000.0;
            let expected = expected_maximum(&values, draws as f64).unwrap();
            assert!((expected / mean - 1.0).abs() < 0.15, "{draws}: {expected} and {mean}");
        }
        assert_eq!(expected_maximum(&[], 3.0), None);
        let step = Step { samples_ns: vec![500_000_000], units_per_sample: 500, ..Step::default() };
        let summary = detour(&step, (100, 5_000_000), &[0, 3000, 70_000]);
        let expected = DetourSummary { per_s: Some(200.0), share: Some(0.01), longest_ns: Some(70_000) };
        assert_eq!(summary, expected);
    }

    #[test]
    fn two_levels_are_seen_and_one_is_not_split() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut near = |middle: f64| middle * (1.0 + 0.02 * (random.f64() - 0.5));
        let two: Vec<f64> = (0..40).map(|i| near(if i % 3 == 0 { 77.0 } else { 43.0 })).collect();
        let (low, high) = two_levels(&two).unwrap();
        assert!((low - 43.0).abs() < 1.0 && (high - 77.0).abs() < 2.0);
        let one: Vec<f64> = (0..40).map(|_| near(43.0)).collect();
        assert_eq!(two_levels(&one), None);
        let outlier: Vec<f64> = (0..40).map(|i| near(if i == 5 { 200.0 } else { 43.0 })).collect();
        assert_eq!(two_levels(&outlier), None);
        // One sample far out hides neither level.
        let hidden: Vec<f64> = two.iter().copied().chain([2000.0]).collect();
        let (low, high) = two_levels(&hidden).unwrap();
        assert!((low - 43.0).abs() < 1.0 && (high - 77.0).abs() < 2.0);
        assert_eq!(two_levels(&[1.0, 2.0]), None);
        // 15 % apart make two levels, 12 % do not.
        let apart = |gap: f64| -> Vec<f64> { (0..40).map(|i| if i % 2 == 0 { 100.0 } else { 100.0 * gap }).collect() };
        assert_eq!((two_levels(&apart(1.12)), two_levels(&apart(1.18)).is_some()), (None, true));
    }
}
