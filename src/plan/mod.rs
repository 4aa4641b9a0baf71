//! What will be measured, and by which rules: pure functions of the machine and the options. A plan can be printed.

pub mod atomic;
pub mod barrier;
pub mod detour;
pub mod dispatch;
mod domain;
pub mod engine;
pub mod experts;
pub mod latency;
pub mod loaded;
pub mod memory_latency;
pub mod page;
pub mod reference;
mod scope;
pub mod sibling;
pub mod stream;
mod subject;
mod threads;
pub mod validate;

pub use domain::{CacheGroups, Class, Domains};
pub use scope::Scope;
pub use subject::Subject;
pub use threads::ThreadList;

use crate::caveat::{Caveat, LeftOut};
use crate::machine::{Machine, Topology};
use crate::units::{Bytes, CpuId, CpuSet};
use serde::Serialize;

/// How thorough to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Under a minute on a small machine.
    Quick,
    /// Between the two.
    #[default]
    Default,
    /// As long as it takes.
    Full,
}

/// All that a command measures, in order. A part is absent when the command does not measure it.
#[derive(Debug, Default, Serialize)]
pub struct Suite {
    /// Seed of every random order and choice.
    pub seed: u64,
    /// CPUs in scope.
    pub cpus: Vec<CpuId>,
    /// Measurements that cannot be planned here, though others can.
    pub left_out: Vec<LeftOut>,
    /// Bandwidth.
    pub stream: Option<stream::Plan>,
    /// Core-to-core latency.
    pub latency: Option<latency::Plan>,
    /// Hidden hardware threads.
    pub sibling: Option<sibling::Plan>,
    /// Memory latency.
    pub memory_latency: Option<memory_latency::Plan>,
    /// Hidden memory nodes.
    pub page: Option<page::Plan>,
    /// Loaded latency.
    pub loaded: Option<loaded::Plan>,
    /// Contended atomics.
    pub atomic: Option<atomic::Plan>,
    /// Detours.
    pub detour: Option<detour::Plan>,
    /// Barriers.
    pub barrier: Option<barrier::Plan>,
    /// Fork and join.
    pub dispatch: Option<dispatch::Plan>,
    /// Decode replay.
    pub experts: Option<experts::Plan>,
    /// What is repeated between the others.
    pub reference: Option<reference::Plan>,
}

/// A part of what `membar latency` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyPart {
    /// A line between two cores.
    Core,
    /// Which CPUs slow each other as the threads of a core do.
    Siblings,
    /// A load from memory, and from caches.
    Memory,
    /// A load from single pages of memory.
    Pages,
    /// A load from memory while others read.
    Loaded,
    /// Counting on one line by many.
    Atomic,
    /// What somebody else takes of CPUs.
    Detours,
}

impl LatencyPart {
    /// All of them, in the order they are taken.
    pub const ALL: [LatencyPart; 7] = [
        LatencyPart::Core,
        LatencyPart::Siblings,
        LatencyPart::Memory,
        LatencyPart::Pages,
        LatencyPart::Loaded,
        LatencyPart::Atomic,
        LatencyPart::Detours,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LatencyPart::Core => "core",
            LatencyPart::Siblings => "siblings",
            LatencyPart::Memory => "memory",
            LatencyPart::Pages => "pages",
            LatencyPart::Loaded => "loaded",
            LatencyPart::Atomic => "atomic",
            LatencyPart::Detours => "detours",
        }
    }
}

/// Memory and time that a plan will take. Times are guesses from assumed rates, good enough to decide whether to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Needs {
    /// Memory held at the same time.
    pub memory_bytes: Bytes,
    /// Time, guessed.
    pub estimated_s: f64,
}

/// What the process holds besides arrays and weights: code, hwloc's topology, stacks, samples. A guess on the large side;
/// about 20 MiB were seen on two CPUs.
const PROCESS_BYTES: u64 = 64 << 20;

impl Suite {
    /// Adds reference steps to parts that are planned; `size` is that of the bandwidth arrays where the user gave one.
    pub fn add_reference(&mut self, machine: &Machine, scope: &Scope, size: Option<Bytes>) {
        let plan = reference::plan(machine, scope, size, self);
        // The column may grow into all memory there is: two arrays of it share what the reference leaves.
        let held = plan.needs().memory_bytes.0.div_ceil(2);
        let groups = self.stream.iter_mut().flat_map(|stream| &mut stream.groups);
        for most in groups.filter_map(|group| group.most_bytes.as_mut()) {
            most.0 = most.0.saturating_sub(held);
        }
        self.reference = Some(plan);
    }

    /// The parts run one after another and give their memory back, so memory is the largest part's, and that of the
    /// reference steps, who keep theirs.
    pub fn needs(&self) -> Needs {
        let parts = [
            self.stream.as_ref().map(stream::Plan::needs),
            self.latency.as_ref().map(latency::Plan::needs),
            self.sibling.as_ref().map(sibling::Plan::needs),
            self.memory_latency.as_ref().map(memory_latency::Plan::needs),
            self.page.as_ref().map(page::Plan::needs),
            self.loaded.as_ref().map(loaded::Plan::needs),
            self.atomic.as_ref().map(atomic::Plan::needs),
            self.detour.as_ref().map(detour::Plan::needs),
            self.barrier.as_ref().map(barrier::Plan::needs),
            self.dispatch.as_ref().map(dispatch::Plan::needs),
            self.experts.as_ref().map(experts::Plan::needs),
        ];
        let process = Needs { memory_bytes: Bytes(0), estimated_s: 0.5 };
        let sum = parts.into_iter().flatten().fold(process, |sum, part| Needs {
            memory_bytes: sum.memory_bytes.max(part.memory_bytes),
            estimated_s: sum.estimated_s + part.estimated_s,
        });
        let kept = self.reference.as_ref().map(reference::Plan::needs).unwrap_or_default();
        Needs {
            memory_bytes: Bytes(sum.memory_bytes.0 + kept.memory_bytes.0 + PROCESS_BYTES),
            estimated_s: sum.estimated_s + kept.estimated_s,
        }
    }
}

/// Last-level cache assumed for a core whose caches the system does not report. A guess on the large side: server cores
/// of 2017 to 2026 have 1.4 to 16 MiB each, and a guess too small would measure caches.
const ASSUMED_CACHE_PER_CORE: u64 = 4 << 20;
/// And at least this much in all.
const ASSUMED_CACHE_LEAST: u64 = 32 << 20;

/// The sum of the distinct last-level caches of these CPUs, and a caveat when it had to be assumed.
pub fn cache_sum(topology: &Topology, cpus: &CpuSet) -> (Bytes, Option<Caveat>) {
    match topology.last_level_bytes(cpus) {
        Some(bytes) => (bytes, None),
        None => {
            let cores = topology.cores.iter().filter(|core| core.cpus.iter().any(|cpu| cpus.contains(*cpu))).count();
            let assumed_bytes = Bytes((cores as u64 * ASSUMED_CACHE_PER_CORE).max(ASSUMED_CACHE_LEAST));
            (assumed_bytes, Some(Caveat::CacheSizeUnknown { assumed_bytes }))
        }
    }
}

/// Caveats that hold for every step with this many threads, whatever happens while it runs.
pub fn standing_caveats(machine: &Machine, cpus: &[CpuId]) -> Vec<Caveat> {
    let threads = cpus.len() as u32;
    let distinct = cpus.iter().copied().collect::<CpuSet>().len() as u32;
    let oversubscribed = (distinct < threads).then_some(Caveat::Oversubscribed { threads, cpus: distinct });
    let quota = machine.environment.cpu_quota.filter(|quota| *quota < f64::from(threads));
    oversubscribed.into_iter().chain(quota.map(|quota| Caveat::QuotaBelowThreads { quota, threads })).collect()
}
