//! What stamps at barriers say of one token: what the barriers themselves took, and who was busy how long.

use crate::record::DecodeTrace;
use crate::units::Nanos;

/// When a thread came to a barrier and when it left.
pub type Stamp = (Nanos, Nanos);

/// The trace of a sample from each thread's stamps and the barriers that end a phase of thread 0 alone (over all tokens of
/// the sample, in order).
///
/// # Errors
/// How far a thread was seen to leave before the last one came, if clocks of CPUs differ by more than `clock_step`: then
/// single times mean nothing.
pub fn trace(
    threads: &[&[Stamp]],
    serial: impl Iterator<Item = bool>,
    clock_step: Nanos,
) -> Result<Option<DecodeTrace>, u64> {
    let meets = threads.iter().map(|stamps| stamps.len()).min().unwrap_or(0);
    if meets < 2 {
        return Ok(None);
    }
    let mut wrong = 0u64;
    // The thread that came last to a barrier, and when.
    let last = |meet: usize| threads.iter().enumerate().map(|(thread, stamps)| (stamps[meet].0.0, thread)).max();
    let mut barrier_ns = 0;
    for meet in 0..meets - 1 {
        let (Some((latest, _)), Some((_, next))) = (last(meet), last(meet + 1)) else { continue };
        barrier_ns += threads[next][meet].1.0.saturating_sub(latest);
        let earliest_left = threads.iter().map(|stamps| stamps[meet].1.0).min().unwrap_or(latest);
        wrong = wrong.max(latest.saturating_sub(earliest_left));
    }
    if wrong > 2 * clock_step.0.max(1) {
        return Err(wrong);
    }
    let between = |stamps: &[Stamp], meet: usize| stamps[meet].0.0.saturating_sub(stamps[meet - 1].1.0);
    let busy = |stamps: &&[Stamp]| (1..meets).map(|meet| between(stamps, meet)).sum();
    let serial_ns = serial.take(meets).enumerate().skip(1).filter(|(_, serial)| *serial);
    Ok(Some(DecodeTrace {
        barrier_ns,
        serial_ns: serial_ns.map(|(meet, _)| between(threads[0], meet)).sum(),
        busy_ns: threads.iter().map(busy).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(times: &[(u64, u64)]) -> Vec<Stamp> {
        times.iter().map(|(came, left)| (Nanos(*came), Nanos(*left))).collect()
    }

    #[test]
    fn the_barrier_is_what_the_critical_path_spends_in_it() {
        // Thread 1 comes last to the first barrier at 400; thread 0 comes last to the second, having left at 450.
        let one = stamps(&[(100, 450), (900, 930), (1000, 1100)]);
        let two = stamps(&[(400, 470), (700, 990), (1050, 1090)]);
        let trace = trace(&[&one, &two], [false, true, false].into_iter(), Nanos(20)).unwrap().unwrap();
        // 450 − 400 in the first. Thread 1 comes last to the third and left the second at 990: 990 − 900.
        assert_eq!(trace.barrier_ns, 50 + 90);
        assert_eq!(trace.serial_ns, 450);
        assert_eq!(trace.busy_ns, [450 + 70, 230 + 60]);
    }

    #[test]
    fn a_free_barrier_costs_nothing_though_one_thread_waits() {
        let late = stamps(&[(1000, 1000), (2000, 2000), (3000, 3000)]);
        let early = stamps(&[(200, 1000), (1200, 2000), (2200, 3000)]);
        let trace = trace(&[&late, &early], std::iter::repeat(false), Nanos(20)).unwrap().unwrap();
        assert_eq!((trace.barrier_ns, trace.serial_ns), (0, 0));
        assert_eq!(trace.busy_ns, [2000, 400]);
    }

    #[test]
    fn clocks_that_disagree_give_no_trace() {
        let one = stamps(&[(100, 500), (600, 900)]);
        let two = stamps(&[(400, 800), (900, 1200)]);
        assert!(trace(&[&one, &two], std::iter::repeat(false), Nanos(20)).is_ok());
        let ahead = stamps(&[(700, 1100), (1200, 1500)]);
        assert_eq!(trace(&[&one, &ahead], std::iter::repeat(false), Nanos(20)), Err(200));
        assert_eq!(trace(&[&one[..1]], std::iter::repeat(false), Nanos(20)), Ok(None));
    }
}
