//! Who else was here: detours of a thread while it does nothing but read the clock, and kernel counters around a step.

use super::clock::Clock;
use crate::caveat::Caveat;
use crate::record::{Detours, Disturbance};
use crate::units::{CpuId, CpuSet, Nanos};

/// How long each thread watches before a step.
const WINDOW: Nanos = Nanos(1_000_000);
/// A gap between two clock reads that no clock read explains.
pub(super) const DETOUR: Nanos = Nanos(1_000);
/// Ticks of /proc/stat in a second: USER_HZ, 100 on every architecture that Rust supports on Linux.
const TICK_NS: f64 = 1e7;

/// Shares above which a step is marked. Guesses: what they leave unmarked is well inside the spread of samples on a quiet guest.
const DETOUR_SHARE: f64 = 0.1;
const STEAL_SHARE: f64 = 0.02;
const OFF_CPU_SHARE: f64 = 0.02;
/// Small pages that the kernel may move, join or merge during a step without a mark: 4 MiB of 4 KiB pages, below a hundredth
/// of the arrays of any step beyond the caches of a server. A guess.
const PAGES_MOVED: u64 = 1024;
/// Small pages in a huge one, with 4 KiB and 2 MiB.
const PAGES_IN_HUGE: u64 = 512;

/// Reads the clock for a while and collects the gaps.
pub fn detours(clock: Clock) -> Detours {
    let start = clock.now();
    let mut seen = Detours { window_ns: 0, count: 0, total_ns: 0, longest_ns: 0 };
    let mut last = start;
    while last.0 - start.0 < WINDOW.0 {
        let now = clock.now();
        let gap = now.0 - last.0;
        if gap > DETOUR.0 {
            seen.count += 1;
            seen.total_ns += gap;
            seen.longest_ns = seen.longest_ns.max(gap);
        }
        last = now;
    }
    seen.window_ns = last.0 - start.0;
    seen
}

/// What a disturbance means for the numbers of a step that ran on `cpus` for `elapsed`.
pub fn caveats(disturbance: &Disturbance, cpus: &[CpuId], elapsed: Nanos) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let counters = &disturbance.counters;
    if let Some(throttled_ns) = counters.throttled_ns.filter(|ns| *ns > 0) {
        caveats.push(Caveat::Throttled { throttled_ns });
    }
    let distinct = cpus.iter().copied().collect::<CpuSet>().len();
    if let Some(steal) = counters.steal_ticks {
        // One tick is the counter's own grain.
        let share = steal.saturating_sub(1) as f64 * TICK_NS / (elapsed.0.max(1) as f64 * distinct.max(1) as f64);
        if share > STEAL_SHARE {
            caveats.push(Caveat::Stolen { share });
        }
    }
    let oversubscribed = distinct < cpus.len();
    let watched: u64 = disturbance.detours.iter().map(|detours| detours.window_ns).sum();
    let away: u64 = disturbance.detours.iter().map(|detours| detours.total_ns).sum();
    let share = away as f64 / watched.max(1) as f64;
    if share > DETOUR_SHARE && !oversubscribed {
        let longest_ns = disturbance.detours.iter().map(|detours| detours.longest_ns).max().unwrap_or(0);
        caveats.push(Caveat::Detours { share, longest_ns });
    }
    let migrated = counters.numa_pages_migrated.unwrap_or(0);
    let collapsed = counters.thp_collapsed.unwrap_or(0);
    let merged = counters.ksm_pages_sharing.unwrap_or(0).saturating_add(counters.ksm_copied.unwrap_or(0));
    let moved = collapsed.saturating_mul(PAGES_IN_HUGE).saturating_add(migrated).saturating_add(merged);
    if moved > PAGES_MOVED {
        caveats.push(Caveat::PagesMoved { migrated, collapsed, merged });
    }
    // A thread that sleeps by itself is off its CPU without being disturbed.
    let slept = disturbance.voluntary_switches.is_none_or(|switches| switches > 2 * cpus.len() as u64);
    let share = disturbance.off_cpu_ns as f64 / elapsed.0.max(1) as f64;
    if share > OFF_CPU_SHARE && !slept && !oversubscribed {
        caveats.push(Caveat::Preempted { switches: disturbance.involuntary_switches, share });
    }
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Counters;

    fn calm() -> Disturbance {
        let quiet = Detours { window_ns: 1_000_000, count: 1, total_ns: 2_000, longest_ns: 2_000 };
        Disturbance { detours: vec![quiet; 2], voluntary_switches: Some(2), ..Disturbance::default() }
    }

    #[test]
    fn calm_is_silent_and_each_disturbance_is_named() {
        let cpus = [CpuId(0), CpuId(1)];
        let second = Nanos(1_000_000_000);
        assert_eq!(caveats(&calm(), &cpus, second), []);

        let throttled = Counters { throttled_ns: Some(5), ..Counters::default() };
        let noisy = Disturbance { counters: throttled, ..calm() };
        assert!(matches!(caveats(&noisy, &cpus, second)[..], [Caveat::Throttled { throttled_ns: 5 }]));

        let stolen = Counters { steal_ticks: Some(21), ..Counters::default() };
        let noisy = Disturbance { counters: stolen, ..calm() };
        assert!(matches!(caveats(&noisy, &cpus, second)[..], [Caveat::Stolen { share }] if (share - 0.1).abs() < 1e-9));

        let some = |pages, huge, merged| {
            let counters = Counters {
                numa_pages_migrated: Some(pages),
                thp_collapsed: Some(huge),
                ksm_pages_sharing: Some(merged),
                ..Counters::default()
            };
            caveats(&Disturbance { counters, ..calm() }, &cpus, second)
        };
        assert_eq!(some(500, 1, 12), []);
        assert_eq!(some(0, 3, 0), [Caveat::PagesMoved { migrated: 0, collapsed: 3, merged: 0 }]);
        assert_eq!(some(1000, 0, 25), [Caveat::PagesMoved { migrated: 1000, collapsed: 0, merged: 25 }]);

        let noisy = Disturbance { involuntary_switches: 100, off_cpu_ns: 30_000_000, ..calm() };
        assert!(matches!(caveats(&noisy, &cpus, second)[..], [Caveat::Preempted { switches: 100, .. }]));
        // Many short preemptions that cost nothing are the kernel's own housekeeping.
        let harmless = Disturbance { involuntary_switches: 100, off_cpu_ns: 3_000_000, ..calm() };
        assert_eq!(caveats(&harmless, &cpus, second), []);
        let asleep = Disturbance { voluntary_switches: Some(100), off_cpu_ns: 900_000_000, ..calm() };
        assert_eq!(caveats(&asleep, &cpus, second), []);

        let away = Detours { window_ns: 1_000_000, count: 1, total_ns: 500_000, longest_ns: 500_000 };
        let noisy = Disturbance { detours: vec![away; 2], ..calm() };
        assert!(matches!(caveats(&noisy, &cpus, second)[..], [Caveat::Detours { longest_ns: 500_000, .. }]));
        // With more threads than CPUs, detours and preemption are what was asked for.
        assert_eq!(caveats(&noisy, &[CpuId(0), CpuId(0)], second), []);
    }

    #[test]
    fn the_window_is_watched() {
        let seen = detours(Clock::start());
        assert!(seen.window_ns >= WINDOW.0);
        assert!(seen.total_ns <= seen.window_ns && seen.longest_ns <= seen.total_ns);
    }
}
