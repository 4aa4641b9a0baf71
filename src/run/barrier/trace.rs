//! Single episodes: who came when, and who left when.

use crate::record::Trace;
use crate::stats;
use crate::units::Nanos;

/// When a thread came to an episode and when it left.
pub type Stamp = (Nanos, Nanos);

/// The trace of some episodes from each thread's stamps; how far a thread was seen to leave before the last one came, if
/// clocks of CPUs differ by more than `clock_step`.
///
/// # Errors
/// That distance in ns: then single times mean nothing.
pub fn trace(threads: &[&[Stamp]], clock_step: Nanos) -> Result<Option<Trace>, u64> {
    let episodes = threads.iter().map(|stamps| stamps.len()).min().unwrap_or(0);
    let mut wrong = 0u64;
    let (mut whole, mut release, mut skew) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: Option<u64> = None;
    let mut first = None;
    for episode in 0..episodes {
        let stamps = || threads.iter().map(|stamps| stamps[episode]);
        let came = || stamps().map(|(came, _)| came.0);
        let left = || stamps().map(|(_, left)| left.0);
        let (Some(earliest), Some(latest)) = (came().min(), came().max()) else { continue };
        let (Some(earliest_left), Some(end)) = (left().min(), left().max()) else { continue };
        wrong = wrong.max(latest.saturating_sub(earliest_left));
        skew.push(latest - earliest);
        release.push(end.saturating_sub(latest));
        if let Some(before) = before {
            whole.push(end.saturating_sub(before));
        }
        before = Some(end);
        first = first.or(Some(end));
    }
    if wrong > 2 * clock_step.0.max(1) {
        return Err(wrong);
    }
    let (Some(first), Some(last), false) = (first, before, whole.is_empty()) else { return Ok(None) };
    Ok(Some(Trace {
        episodes: whole.len() as u64,
        total_ns: last - first,
        episode: stats::log_histogram(&whole),
        release: stats::log_histogram(&release),
        skew: stats::log_histogram(&skew),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stamps of a thread that comes `late` after each multiple of 1,000 ns and leaves at 500 after it.
    fn stamps(late: u64, shift: i64) -> Vec<Stamp> {
        let at = |ns: u64| Nanos(ns.saturating_add_signed(shift));
        (1..=100).map(|episode| (at(episode * 1000 + late), at(episode * 1000 + 500))).collect()
    }

    #[test]
    fn planted_skew_and_release_come_back() {
        let (one, two) = (stamps(100, 0), stamps(400, 0));
        let trace = trace(&[&one, &two], Nanos(20)).unwrap().unwrap();
        assert_eq!((trace.episodes, trace.total_ns), (99, 99_000));
        let near = |bins: &[(u64, u64)], ns: u64, count: u64| {
            assert_eq!(bins.len(), 1, "{bins:?}");
            assert!(bins[0].1 == count && (ns..=ns * 104 / 100).contains(&bins[0].0), "{bins:?}");
        };
        near(&trace.episode, 1000, 99);
        near(&trace.skew, 300, 100);
        near(&trace.release, 100, 100);
    }

    #[test]
    fn clocks_that_disagree_give_no_trace() {
        let (one, two) = (stamps(100, 0), stamps(400, 250));
        assert_eq!(trace(&[&one, &two], Nanos(20)), Err(150));
        assert_eq!(trace(&[&[], &[]], Nanos(20)), Ok(None));
        assert_eq!(trace(&[], Nanos(20)), Ok(None));
    }
}
