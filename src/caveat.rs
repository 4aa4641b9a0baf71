//! What taints a number, and what was not measured. Stored in records as data, worded here once, shown beside the number.

use crate::units::{Bytes, CpuId, CpuSet, Nanos, NodeSet, Threads};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that was not measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// A reason to trust a number less, with the data behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "caveat", rename_all = "snake_case")]
pub enum Caveat {
    /// A thread was asked onto one CPU and the system says otherwise.
    PinNotHonoured {
        /// The CPU asked for.
        asked: CpuId,
        /// Where it may run instead, or where it was seen.
        got: CpuSet,
    },
    /// Some pages are not on the nodes that were asked for.
    PagesElsewhere {
        /// Nodes asked for.
        asked: NodeSet,
        /// Share of the sampled pages that lie there, 0 to 1.
        share_there: f64,
    },
    /// The kernel moved, joined or merged pages while it was measured, anybody's on this machine.
    PagesMoved {
        /// Pages moved to another node by NUMA balancing.
        migrated: u64,
        /// Huge pages made of small ones by khugepaged.
        collapsed: u64,
        /// Pages merged by KSM, or parted again.
        merged: u64,
    },
    /// The placement of pages could not be set or checked.
    PlacementUnverified {
        /// What the system said.
        reason: String,
    },
    /// The cgroup was stopped for lack of quota.
    Throttled {
        /// For how long, ns.
        throttled_ns: u64,
    },
    /// The hypervisor gave the CPU to somebody else.
    Stolen {
        /// Share of the step's CPU time, 0 to 1.
        share: f64,
    },
    /// Threads lost their CPU to other tasks.
    Preempted {
        /// Involuntary context switches of all threads.
        switches: u64,
        /// Share of the step for which the unluckiest thread was off its CPU, 0 to 1.
        share: f64,
    },
    /// The clock stopped seeing this thread for more than it should: somebody else ran there.
    Detours {
        /// Share of the watched time spent elsewhere, 0 to 1.
        share: f64,
        /// The longest, ns.
        longest_ns: u64,
    },
    /// Other work ran on this machine.
    Busy {
        /// Load average over one minute when the run started.
        load_1m: f64,
    },
    /// A sample is too short for the clock.
    BelowClockResolution {
        /// The sample, ns.
        sample_ns: u64,
        /// The clock's step, ns.
        resolution_ns: u64,
    },
    /// Stamps of different CPUs cannot be compared, so single episodes were not traced.
    ClocksDisagree {
        /// How long before the last arrival a thread was seen to leave, ns.
        by_ns: u64,
    },
    /// A guest: topology, caches and clock are what the hypervisor says.
    Virtualised {
        /// Which one, where it tells.
        hypervisor: String,
    },
    /// More threads than CPUs.
    Oversubscribed {
        /// Threads.
        threads: u32,
        /// CPUs.
        cpus: u32,
    },
    /// The cache sizes are unknown, so the array size rests on a guess.
    CacheSizeUnknown {
        /// The sum that was assumed.
        assumed_bytes: Bytes,
    },
    /// The memory size is unknown.
    MemorySizeUnknown,
    /// A cache may hold the data, so this is not memory bandwidth.
    CacheResident {
        /// Bytes read before anything is read again.
        reuse_bytes: Bytes,
        /// The last-level caches in scope.
        cache_bytes: Bytes,
    },
    /// There is not enough memory for arrays that the caches cannot hold.
    CannotBeDram {
        /// The arrays that fit.
        array_bytes: Bytes,
        /// The least that would be memory.
        least_bytes: Bytes,
        /// Memory that can be used.
        usable_bytes: Bytes,
    },
    /// The samples sit on two levels, or moved from one to the other.
    Bimodal {
        /// Lower level, ns.
        low_ns: f64,
        /// Upper level, ns.
        high_ns: f64,
    },
    /// The cache line is longer than the padding between shared words.
    LineLongerThanPadding {
        /// The line, bytes.
        line_bytes: u32,
    },
    /// The CPU quota is smaller than the number of threads.
    QuotaBelowThreads {
        /// CPUs' worth of time.
        quota: f64,
        /// Threads.
        threads: u32,
    },
    /// Fewer samples than planned, and why.
    CutShort {
        /// Samples taken.
        samples: u32,
        /// Samples planned.
        planned: u32,
        /// `time budget`, `interrupted` …
        reason: String,
    },
    /// Other processes were not locked out.
    NotLocked {
        /// Why.
        reason: String,
    },
    /// The model's graph is not known, so its phases are one for each tensor.
    GraphUnknown {
        /// Its architecture.
        architecture: String,
    },
    /// hwloc and /sys disagree, or one of them lacks something.
    TopologyIncomplete {
        /// What.
        detail: String,
    },
}

impl Caveat {
    /// Whether somebody else's work shows in the times: then they say nothing about levels of the machine.
    pub fn is_disturbance(&self) -> bool {
        matches!(
            self,
            Caveat::Throttled { .. } | Caveat::Stolen { .. } | Caveat::Preempted { .. } | Caveat::PinNotHonoured { .. }
        )
    }

    /// Whether it says that a cache may have served the data.
    pub fn is_cached(&self) -> bool {
        matches!(self, Caveat::CacheResident { .. } | Caveat::CannotBeDram { .. })
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::PinNotHonoured { asked, got } => write!(f, "a thread asked onto CPU {asked} ran on {got}"),
            Caveat::PagesElsewhere { asked, share_there } => {
                write!(f, "only {:.0} % of the pages lie on node {asked}", share_there * 100.0)
            }
            Caveat::PagesMoved { migrated, collapsed, merged } => {
                let parts = [
                    (*migrated, "pages moved to another node"),
                    (*collapsed, "huge pages made of small ones"),
                    (*merged, "pages merged or parted by KSM"),
                ];
                let seen = parts.iter().filter(|(count, _)| *count > 0);
                let seen: Vec<String> = seen.map(|(count, what)| format!("{count} {what}")).collect();
                write!(f, "the kernel worked on memory meanwhile: {}", seen.join(", "))
            }
            Caveat::PlacementUnverified { reason } => write!(f, "placement unverified: {reason}"),
            Caveat::Throttled { throttled_ns } => {
                write!(f, "throttled by the cgroup for {}", Nanos(*throttled_ns))
            }
            Caveat::Stolen { share } => {
                write!(f, "{:.1} % of the CPU time was stolen by the hypervisor", share * 100.0)
            }
            Caveat::Preempted { switches, share } => {
                write!(
                    f,
                    "a thread was off its CPU for {:.1} % of the time ({switches} preemptions in all)",
                    share * 100.0
                )
            }
            Caveat::Detours { share, longest_ns } => write!(
                f,
                "just before it, somebody else ran on these CPUs for {:.0} % of the time, at most {} at once",
                share * 100.0,
                Nanos(*longest_ns)
            ),
            Caveat::Busy { load_1m } => write!(f, "other work on this machine when it started: load {load_1m:.2}"),
            Caveat::BelowClockResolution { sample_ns, resolution_ns } => {
                write!(f, "a sample of {sample_ns} ns is too short for a clock that steps by {resolution_ns} ns")
            }
            Caveat::ClocksDisagree { by_ns } => {
                write!(f, "not traced: a thread was seen to leave {} before the last one came", Nanos(*by_ns))
            }
            Caveat::Virtualised { hypervisor } => {
                write!(f, "a guest of {hypervisor}: topology and caches are what the hypervisor reports")
            }
            Caveat::Oversubscribed { threads, cpus } => {
                write!(f, "oversubscribed: {} on {cpus} CPUs", Threads(*threads))
            }
            Caveat::CacheSizeUnknown { assumed_bytes } => {
                write!(f, "cache sizes unknown: {assumed_bytes} of last-level cache assumed")
            }
            Caveat::MemorySizeUnknown => write!(f, "memory size unknown"),
            Caveat::CacheResident { reuse_bytes, cache_bytes } => {
                write!(f, "may be served from cache: reread after {reuse_bytes}, caches hold {cache_bytes}")
            }
            Caveat::CannotBeDram { array_bytes, least_bytes, usable_bytes } => write!(
                f,
                "cannot be DRAM: arrays of {array_bytes} are all that fits into the {usable_bytes} of memory that can be \
                 used, and beyond the caches it takes {least_bytes}"
            ),
            Caveat::Bimodal { low_ns, high_ns } => {
                let level = |ns: &f64| if *ns < 1e4 { format!("{ns:.1} ns") } else { Nanos(*ns as u64).to_string() };
                write!(f, "two levels: {} and {}", level(low_ns), level(high_ns))
            }
            Caveat::LineLongerThanPadding { line_bytes } => {
                write!(f, "cache lines of {line_bytes} bytes exceed the padding between shared words")
            }
            Caveat::QuotaBelowThreads { quota, threads } => {
                write!(f, "{} on a quota of {quota:.2} CPUs", Threads(*threads))
            }
            Caveat::CutShort { samples, planned, reason } => write!(f, "{samples} of {planned} samples: {reason}"),
            Caveat::NotLocked { reason } => write!(f, "other runs were not locked out: {reason}"),
            Caveat::GraphUnknown { architecture } => {
                write!(
                    f,
                    "no graph known for this model of architecture {architecture}: one phase for each tensor assumed"
                )
            }
            Caveat::TopologyIncomplete { detail } => write!(f, "topology incomplete: {detail}"),
        }
    }
}
