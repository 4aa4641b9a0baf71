//! Levels of latency: where the density of log latency has valleys.

use crate::stats;

/// A valley counts when it is at most this share of the lower of the two peaks beside it. Two normal densities of equal
/// spread, a third and two thirds of the values, have such a valley from 3.2 standard deviations on. Lenient: groups are
/// what decides.
const DEPTH: f64 = 0.8;

/// A place between two levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Valley {
    /// Where it is, in log latency.
    pub(super) at: f64,
    /// Median of the level below it.
    pub(super) low: f64,
    /// Median of the level above it.
    pub(super) high: f64,
    /// The larger of the two levels' distances between quartiles.
    spread: f64,
    /// From the highest value below to the lowest one above.
    gap: f64,
    /// The larger of the two levels' ranges.
    range: f64,
    /// Share of all values below it.
    share_below: f64,
}

impl Valley {
    /// The one numbered `index`, among sorted values.
    pub(super) fn at(index: usize, breaks: &[f64], sorted: &[f64]) -> Valley {
        let at = breaks[index];
        let position = |value: Option<f64>, otherwise| {
            value.map_or(otherwise, |value| sorted.partition_point(|other| *other < value))
        };
        let from = position(index.checked_sub(1).map(|before| breaks[before]), 0);
        let middle = position(Some(at), 0);
        let to = position(breaks.get(index + 1).copied(), sorted.len());
        let (below, above) = (&sorted[from..middle], &sorted[middle..to]);
        let quantile = |values: &[f64], q| stats::quantile(values, q).unwrap_or(at);
        let spread = |values: &[f64]| quantile(values, 0.75) - quantile(values, 0.25);
        let range = |values: &[f64]| quantile(values, 1.0) - quantile(values, 0.0);
        Valley {
            at,
            low: quantile(below, 0.5),
            high: quantile(above, 0.5),
            spread: spread(below).max(spread(above)),
            gap: quantile(above, 0.0) - quantile(below, 1.0),
            range: range(below).max(range(above)),
            share_below: middle as f64 / sorted.len().max(1) as f64,
        }
    }

    /// How far a value is on the fast side: 1 at the median of the level below and beyond, −1 on the other side.
    pub(super) fn vote(&self, ln: f64) -> f64 {
        let width = (self.at - self.low).min(self.high - self.at).max(f64::EPSILON);
        ((self.at - ln) / width).clamp(-1.0, 1.0)
    }

    /// Whether nobody would take the levels for one: 35 % apart, and by three times the spread inside.
    pub(super) fn is_wide(&self) -> bool {
        let gap = self.high - self.low;
        gap >= 1.35f64.ln() && gap >= 3.0 * self.spread
    }

    /// Whether no value is near it: the gap is 70 %, and wider than the values spread on either side.
    pub(super) fn is_empty(&self) -> bool {
        self.gap > self.range.max(1.7f64.ln())
    }

    /// Whether both sides are more than outliers.
    pub(super) fn is_plain(&self) -> bool {
        self.is_wide() && (0.03..=0.95).contains(&self.share_below)
    }
}

/// Valleys between the levels of sorted values, ascending. The kernel's width falls with the number of values, from 15 % to
/// 4 %; a level has at least an eighth as many pairs as there are CPUs.
pub(super) fn breaks(sorted: &[f64], cpus: usize) -> Vec<f64> {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let width = (0.3 * (sorted.len() as f64).powf(-0.25)).clamp(0.04, 0.15);
    let step = width / 4.0;
    /// Three widths, beyond which a Gaussian is nothing.
    const REACH: usize = 12;
    let origin = first - REACH as f64 * step;
    let bins = ((last - first) / step) as usize + 2 * REACH + 2;
    let kernel: Vec<f64> = (0..=REACH).map(|bin| (-0.5 * (bin as f64 / 4.0).powi(2)).exp()).collect();
    let mut counts = vec![0.0; bins];
    sorted.iter().for_each(|value| counts[((value - origin) / step) as usize] += 1.0);
    let mut density = vec![0.0; bins];
    for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        for other in bin.saturating_sub(REACH)..=(bin + REACH).min(bins - 1) {
            density[other] += count * kernel[bin.abs_diff(other)];
        }
    }

    let mut peaks: Vec<usize> = Vec::new();
    let mut rising = true;
    for bin in 1..bins {
        if rising && density[bin] < density[bin - 1] {
            peaks.push(bin - 1);
            rising = false;
        } else if density[bin] > density[bin - 1] {
            rising = true;
        }
    }
    let lowest = |from: usize, to: usize| {
        let least = density[from..=to].iter().copied().fold(f64::INFINITY, f64::min);
        let mut at = (from..=to).filter(|bin| density[*bin] <= least);
        let first = at.next().unwrap_or(from);
        first.midpoint(at.next_back().unwrap_or(first))
    };
    let least = (cpus / 8).max(2);
    let edge = |bin: usize| origin + (bin as f64 + 0.5) * step;
    let held = |from: f64, to: f64| {
        sorted.partition_point(|value| *value < to) - sorted.partition_point(|value| *value < from)
    };
    loop {
        let valleys: Vec<usize> = peaks.windows(2).map(|two| lowest(two[0], two[1])).collect();
        let depth = |index: usize| {
            density[valleys[index]] / density[peaks[index]].min(density[peaks[index + 1]]).max(f64::MIN_POSITIVE)
        };
        let shallow = (0..valleys.len()).max_by(|a, b| depth(*a).total_cmp(&depth(*b)));
        if let Some(index) = shallow.filter(|index| depth(*index) > DEPTH) {
            peaks.remove(if density[peaks[index]] < density[peaks[index + 1]] { index } else { index + 1 });
            continue;
        }
        // A few values by themselves are outliers, no level.
        let range = |index: usize| {
            let from = index.checked_sub(1).map_or(f64::NEG_INFINITY, |before| edge(valleys[before]));
            (from, valleys.get(index).map_or(f64::INFINITY, |after| edge(*after)))
        };
        let small = (0..peaks.len()).filter(|index| {
            let (from, to) = range(*index);
            held(from, to) < least
        });
        match small.min_by(|a, b| density[peaks[*a]].total_cmp(&density[peaks[*b]])) {
            Some(index) if peaks.len() > 1 => drop(peaks.remove(index)),
            _ => return valleys.into_iter().map(edge).collect(),
        }
    }
}

/// Takes a slow drift out of log latencies that stand in the order taken: residuals against the level that each value is
/// on, their median in each of up to 40 stretches of at least 100 values, straight lines between. Pairs come in random
/// order, so that what is left of the levels is the same in every stretch.
pub(super) fn steady(logs: &mut [f64], cpus: usize) {
    const STRETCH: usize = 100;
    let stretches = (logs.len() / STRETCH).min(40);
    if stretches < 2 {
        return;
    }
    // Levels that a drift had smeared come apart after the first time.
    for _ in 0..2 {
        let mut sorted = logs.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let breaks = breaks(&sorted, cpus);
        let ends = breaks.iter().map(|at| sorted.partition_point(|value| value < at)).chain([sorted.len()]);
        let mut from = 0;
        let mut middles = Vec::new();
        for end in ends {
            middles.push(stats::median(&sorted[from..end]).unwrap_or_default());
            from = end;
        }
        let residuals: Vec<f64> =
            logs.iter().map(|value| value - middles[breaks.partition_point(|at| at <= value)]).collect();
        let length = logs.len() as f64 / stretches as f64;
        let start = |stretch: usize| (stretch as f64 * length) as usize;
        let moods: Vec<f64> = (0..stretches)
            .map(|stretch| stats::median(&residuals[start(stretch)..start(stretch + 1)]).unwrap_or_default())
            .collect();
        for (index, value) in logs.iter_mut().enumerate() {
            let position = (index as f64 / length - 0.5).clamp(0.0, (stretches - 1) as f64);
            let before = position as usize;
            let after = (before + 1).min(stretches - 1);
            *value -= moods[before] + (moods[after] - moods[before]) * (position - before as f64);
        }
    }
}
