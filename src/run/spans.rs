//! From each thread's start and finish stamps to samples of the team.

use crate::caveat::Caveat;
use crate::record::{Step, ThreadSpan};
use crate::units::Nanos;

/// A sample is at least this many steps of the clock.
pub const CLOCK_STEPS: u64 = 100;

/// The start and finish of every thread in one sample.
pub type Sample = Vec<(Nanos, Nanos)>;

/// Turns "by thread, then sample" into "by sample, then thread". All threads took the same number of samples.
pub fn by_sample<'a>(threads: impl Iterator<Item = &'a Vec<(Nanos, Nanos)>>) -> Vec<Sample> {
    let threads: Vec<&Vec<(Nanos, Nanos)>> = threads.collect();
    let samples = threads.iter().map(|spans| spans.len()).min().unwrap_or(0);
    (0..samples).map(|sample| threads.iter().map(|spans| spans[sample]).collect()).collect()
}

/// From the earliest start to the latest finish: neither the mean time nor the sum of rates.
pub fn elapsed(sample: &Sample) -> u64 {
    let start = sample.iter().map(|(start, _)| start.0).min().unwrap_or(0);
    let finish = sample.iter().map(|(_, finish)| finish.0).max().unwrap_or(0);
    finish.saturating_sub(start)
}

/// A caveat when the shortest counted sample is under a hundred steps of the clock.
pub fn too_short(step: &Step, clock_step: Nanos) -> Option<Caveat> {
    let sample_ns = step.samples_ns.iter().skip(step.warmup_samples as usize).copied().min()?;
    let short = sample_ns < CLOCK_STEPS * clock_step.0;
    short.then_some(Caveat::BelowClockResolution { sample_ns, resolution_ns: clock_step.0 })
}

/// Each thread's span counted from the earliest start.
pub fn relative(sample: &Sample) -> Vec<ThreadSpan> {
    let origin = sample.iter().map(|(start, _)| start.0).min().unwrap_or(0);
    let since = |time: &Nanos| time.0 - origin;
    sample.iter().map(|(start, finish)| ThreadSpan { start_ns: since(start), finish_ns: since(finish) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lasts_from_the_first_start_to_the_last_finish() {
        let threads = [vec![(Nanos(100), Nanos(200)), (Nanos(300), Nanos(310))], vec![(Nanos(90), Nanos(150))]];
        let samples = by_sample(threads.iter());
        assert_eq!(samples.len(), 1);
        assert_eq!(elapsed(&samples[0]), 110);
        let relative = relative(&samples[0]);
        assert_eq!(relative[1], ThreadSpan { start_ns: 0, finish_ns: 60 });
    }
}
