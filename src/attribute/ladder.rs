//! Levels of the memory hierarchy in latencies over footprints.

use crate::record::{Line, MemoryLatencyStep, Record};
use crate::stats;
use crate::units::Bytes;

/// A stretch of footprints with about the same latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Median over its footprints.
    pub latency_ns: f64,
    /// The smallest footprint on it.
    pub from_bytes: Bytes,
    /// The largest footprint on it: what it holds at least.
    pub to_bytes: Bytes,
    /// The next larger footprint, which it no longer holds; `None` when there is none.
    pub below_bytes: Option<Bytes>,
}

/// Latencies on one level differ by less than this factor: larger footprints of the same cache cost a few more misses of
/// translations and slices farther away. A guess.
const SAME: f64 = 1.25;
/// Neighbouring stretches closer than this are one level that creeps: each level of the caches of 2010 to 2026 takes at least
/// twice as long as the one before.
const CREEPING: f64 = 1.5;
/// A level lasts from a footprint to at least this many times it; shorter stretches are the way from one level to the next.
const LEAST_RATIO: f64 = 1.9;

/// The levels among points of footprint and latency in any order.
///
/// Larger footprints cannot be faster, and what disturbs a chase slows it: so a footprint's latency is taken as the smallest at
/// it or above, which takes out single disturbed points. Then, from the smallest footprint on, the longest stretch within
/// 25 % of its first point, or of its median, is a level if it spans an octave (the last one: three points).
pub fn levels(points: &[(Bytes, f64)]) -> Vec<Level> {
    let mut points: Vec<(Bytes, f64)> = points.iter().copied().filter(|(_, ns)| ns.is_finite() && *ns > 0.0).collect();
    points.sort_by_key(|(bytes, _)| *bytes);
    let smooth = lower_envelope(&points.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    let mut start = 0;
    while start < points.len() {
        let within = |ns: f64| smooth.partition_point(|other| *other < ns * SAME);
        let mut end = within(smooth[start]).max(start + 1);
        // The first points may still be on the way: the median says how far the level reaches.
        while let Some(further) = stats::median(&smooth[start..end]).map(within).filter(|further| *further > end) {
            end = further;
        }
        let octave = points[end - 1].0.0 as f64 >= points[start].0.0 as f64 * LEAST_RATIO;
        // What comes after the last footprint is not known: there three points will do.
        if octave || (end == points.len() && end - start >= 3) {
            stretches.push((start, end));
            start = end;
        } else {
            start += 1;
        }
    }
    let middle = |(start, end): (usize, usize)| stats::median(&smooth[start..end]).unwrap_or_default();
    let mut merged: Vec<(usize, usize)> = Vec::new();
    let mut before = 0.0;
    for stretch in stretches {
        match merged.last_mut() {
            Some(last) if last.1 == stretch.0 && middle(stretch) < CREEPING * before => last.1 = stretch.1,
            _ => merged.push(stretch),
        }
        before = middle(stretch);
    }
    merged
        .into_iter()
        .map(|(start, end)| Level {
            latency_ns: middle((start, end)),
            from_bytes: points[start].0,
            to_bytes: points[end - 1].0,
            below_bytes: points.get(end).map(|(bytes, _)| *bytes),
        })
        .collect()
}

/// For each value the smallest of it and those after it.
fn lower_envelope(values: &[f64]) -> Vec<f64> {
    let mut least = f64::INFINITY;
    let mut envelope: Vec<f64> = values
        .iter()
        .rev()
        .map(|value| {
            least = least.min(*value);
            least
        })
        .collect();
    envelope.reverse();
    envelope
}

/// The steps of a record's ladder with their medians.
pub fn ladder(record: &Record) -> Vec<(&MemoryLatencyStep, f64)> {
    let steps = record.lines.iter().filter_map(|line| match line {
        Line::MemoryLatency(step) => Some(step),
        _ => None,
    });
    let steps: Vec<&MemoryLatencyStep> = steps.collect();
    let Some(first) = steps.iter().find(|step| step.scope == "ladder") else { return Vec::new() };
    // Its top is the chase over all of the buffer, by the same CPU in pages of the same kind.
    let same = |step: &&&MemoryLatencyStep| {
        step.step.cpus == first.step.cpus && step.page_kind == first.page_kind && step.memory_node == first.memory_node
    };
    steps.iter().filter(same).filter_map(|step| Some((*step, step.summary.median_ns?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of a machine with these caches: what fits a level takes its time, between them the share that does not fit
    /// takes the next one's.
    fn machine(caches: &[(u64, f64)], memory: f64, noise: f64, seed: u64) -> Vec<(Bytes, f64)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let sizes = (0..76).map(|quarter| 4096.0 * (f64::from(quarter) / 4.0).exp2());
        sizes
            .map(|bytes| {
                let mut ns = memory;
                for (capacity, own) in caches.iter().rev() {
                    let missing = (1.0 - *capacity as f64 / bytes).max(0.0);
                    ns = own + (ns - own) * missing.powf(0.5);
                }
                (Bytes(bytes as u64), ns * (1.0 + noise * (random.f64() - 0.5)))
            })
            .collect()
    }

    #[test]
    fn levels_are_those_that_were_put_in() {
        let caches = [(48 << 10, 1.2), (2 << 20, 4.5), (64 << 20, 25.0)];
        for seed in 0..20 {
            let mut points = machine(&caches, 110.0, 0.1, seed);
            // One disturbed point.
            points[3].1 *= 4.0;
            let found = levels(&points);
            assert_eq!(found.len(), 4, "{seed}: {found:?}");
            for (level, (capacity, ns)) in found.iter().zip(caches) {
                let (to, below) = (level.to_bytes.0, level.below_bytes.unwrap().0);
                assert!(to <= capacity * 5 / 4 && below >= capacity * 3 / 4, "{seed}: {level:?}");
                assert!((level.latency_ns / ns - 1.0).abs() < 0.2, "{level:?}");
            }
            assert_eq!(found[3].below_bytes, None);
        }
    }

    #[test]
    fn a_creeping_level_is_one_and_nothing_is_none() {
        let creeping: Vec<_> = (0..12).map(|octave| (Bytes(4096 << octave), 10.0 * 1.05f64.powi(octave))).collect();
        assert_eq!(levels(&creeping).len(), 1);
        assert_eq!(levels(&[]), []);
        assert_eq!(levels(&[(Bytes(4096), 1.0)]), []);
        assert_eq!(levels(&[(Bytes(4096), f64::NAN), (Bytes(8192), 0.0)]), []);
        assert_eq!(lower_envelope(&[1.0, 3.0, 2.0, 4.0]), [1.0, 2.0, 2.0, 4.0]);
    }
}
