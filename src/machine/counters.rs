//! Kernel counters that are read before and after a step, so that a disturbance is seen where it happened.

use super::cgroup::Cgroup;
use super::environment::{load_1m, steal_ticks};
use super::sysfs::text;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// System-wide counters. `None` (null) where the kernel does not offer one; those at 0 are left out of a record, where hundreds
/// of lines would repeat them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Stolen time of all CPUs (/proc/stat), in clock ticks.
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub steal_ticks: Option<u64>,
    /// Periods in which the cgroup was throttled (cpu.stat).
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub throttled_periods: Option<u64>,
    /// Time for which the cgroup was throttled, ns.
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub throttled_ns: Option<u64>,
    /// NUMA balancing: pages migrated (/proc/vmstat).
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub numa_pages_migrated: Option<u64>,
    /// Huge pages collapsed by khugepaged (/proc/vmstat).
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub thp_collapsed: Option<u64>,
    /// Pages that KSM had merged and a write parted again (/proc/vmstat: cow_ksm and ksm_swpin_copy).
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub ksm_copied: Option<u64>,
    /// Pages that are merged away by KSM (/sys/kernel/mm/ksm/pages_sharing, a level); in a difference, how many more.
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub ksm_pages_sharing: Option<u64>,
    /// Time in which some task waited for a CPU (/proc/pressure/cpu), ns.
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub cpu_pressure_ns: Option<u64>,
    /// Load average over one minute (a level, not a counter).
    pub load_1m: Option<f64>,
}

fn zero() -> Option<u64> {
    Some(0)
}

fn is_zero(value: &Option<u64>) -> bool {
    *value == Some(0)
}

impl Counters {
    /// Reads them now.
    pub fn now() -> Counters {
        Counters::read(Path::new("/"))
    }

    /// Reads them below `root`.
    fn read(root: &Path) -> Counters {
        let proc = |name: &str| text(root.join("proc").join(name));
        let vmstat = proc("vmstat").unwrap_or_default();
        let (throttled_periods, throttled_ns) = throttled(root);
        Counters {
            steal_ticks: proc("stat").and_then(|text| steal_ticks(&text)),
            throttled_periods,
            throttled_ns,
            numa_pages_migrated: value(&vmstat, "numa_pages_migrated"),
            thp_collapsed: value(&vmstat, "thp_collapse_alloc"),
            ksm_copied: value(&vmstat, "cow_ksm")
                .into_iter()
                .chain(value(&vmstat, "ksm_swpin_copy"))
                .reduce(u64::saturating_add),
            ksm_pages_sharing: text(root.join("sys/kernel/mm/ksm/pages_sharing"))
                .and_then(|text| text.trim().parse().ok()),
            cpu_pressure_ns: proc("pressure/cpu").and_then(|text| pressure_ns(&text)),
            load_1m: proc("loadavg").and_then(|text| load_1m(&text)),
        }
    }

    /// What was added between `self` and `later`; the load is that of `later`.
    pub fn delta(&self, later: &Counters) -> Counters {
        let added = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        Counters {
            steal_ticks: added(self.steal_ticks, later.steal_ticks),
            throttled_periods: added(self.throttled_periods, later.throttled_periods),
            throttled_ns: added(self.throttled_ns, later.throttled_ns),
            numa_pages_migrated: added(self.numa_pages_migrated, later.numa_pages_migrated),
            thp_collapsed: added(self.thp_collapsed, later.thp_collapsed),
            ksm_copied: added(self.ksm_copied, later.ksm_copied),
            ksm_pages_sharing: added(self.ksm_pages_sharing, later.ksm_pages_sharing),
            cpu_pressure_ns: added(self.cpu_pressure_ns, later.cpu_pressure_ns),
            load_1m: later.load_1m,
        }
    }
}

/// The value of a line `name 123`.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':'])?.trim().parse().ok())
}

/// Periods and time for which this process's group, or one above it, had to wait for quota. A group counts only what
/// its own quota stops, so the groups on the way up are added.
fn throttled(root: &Path) -> (Option<u64>, Option<u64>) {
    let (dirs, name, ns) = match Cgroup::find(root, "cpu") {
        Some(Cgroup::V1(dirs)) => (dirs, "throttled_time", 1),
        Some(Cgroup::V2(dirs)) => (dirs, "throttled_usec", 1000),
        None => return (None, None),
    };
    let files: Vec<String> = dirs.iter().filter_map(|dir| text(dir.join("cpu.stat"))).collect();
    let sum = |name: &str| files.iter().filter_map(|text| value(text, name)).reduce(u64::saturating_add);
    (sum("nr_throttled"), sum(name).map(|time| time.saturating_mul(ns)))
}

/// The total of the line `some` of a pressure file, which is in microseconds.
fn pressure_ns(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_whitespace().find_map(|field| field.strip_prefix("total="))?;
    total.parse::<u64>().ok()?.checked_mul(1000)
}

/// Counters of the calling thread (/proc/thread-self/status).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCounters {
    /// Times it was made to give up the CPU.
    pub involuntary_switches: u64,
    /// Times it gave up the CPU by itself.
    pub voluntary_switches: u64,
}

impl ThreadCounters {
    /// Reads them now for the calling thread; `None` where /proc is missing.
    pub fn now() -> Option<ThreadCounters> {
        text("/proc/thread-self/status").and_then(|status| ThreadCounters::parse(&status))
    }

    fn parse(status: &str) -> Option<ThreadCounters> {
        Some(ThreadCounters {
            involuntary_switches: value(status, "nonvoluntary_ctxt_switches")?,
            voluntary_switches: value(status, "voluntary_ctxt_switches")?,
        })
    }

    /// What was added between `self` and `later`.
    pub fn delta(&self, later: &ThreadCounters) -> ThreadCounters {
        ThreadCounters {
            involuntary_switches: later.involuntary_switches.saturating_sub(self.involuntary_switches),
            voluntary_switches: later.voluntary_switches.saturating_sub(self.voluntary_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::environment::tests::Tree;

    #[test]
    fn counters_are_read_and_subtracted() {
        let tree = Tree::new("counters");
        assert_eq!(Counters::read(&tree.root), Counters::default());
        tree.write("proc/self/cgroup", "0::/a");
        tree.write("proc/stat", "cpu  1 2 3 4 5 6 7 80 9 10");
        tree.write(
            "proc/vmstat",
            "numa_pages_migrated 12\nthp_collapse_alloc_failed 3\nthp_collapse_alloc 4\nksm_swpin_copy 2\ncow_ksm 5",
        );
        tree.write("sys/kernel/mm/ksm/pages_sharing", "90\n");
        tree.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=5");
        tree.write("proc/loadavg", "1.50 0.1 0.0 1/2 3");
        tree.write("sys/fs/cgroup/cpu.stat", "usage_usec 9");
        tree.write("sys/fs/cgroup/a/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_usec 30");
        let first = Counters::read(&tree.root);
        assert_eq!((first.steal_ticks, first.numa_pages_migrated, first.thp_collapsed), (Some(80), Some(12), Some(4)));
        assert_eq!((first.throttled_periods, first.throttled_ns), (Some(2), Some(30_000)));
        assert_eq!((first.ksm_copied, first.ksm_pages_sharing), (Some(7), Some(90)));
        assert_eq!((first.cpu_pressure_ns, first.load_1m), (Some(77_000), Some(1.5)));

        let later =
            Counters { steal_ticks: Some(100), thp_collapsed: None, numa_pages_migrated: Some(1), ..first.clone() };
        let delta = first.delta(&later);
        assert_eq!((delta.steal_ticks, delta.thp_collapsed, delta.numa_pages_migrated), (Some(20), None, Some(0)));

        tree.write("proc/self/cgroup", "3:cpu,cpuacct:/\n0::/a");
        tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 31");
        assert_eq!(Counters::read(&tree.root).throttled_ns, Some(31));
    }

    #[test]
    fn switches_of_a_thread_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9";
        let counters = ThreadCounters::parse(status).unwrap();
        assert_eq!((counters.voluntary_switches, counters.involuntary_switches), (7, 9));
        assert_eq!(ThreadCounters::parse("Name:\tx"), None);
    }
}
