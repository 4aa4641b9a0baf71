//! The lines of a record. Names are the contract that other people's scripts rely on: see docs/method.md.

use crate::barrier::Wait;
use crate::caveat::{Caveat, LeftOut};
use crate::machine::{Counters, Environment, Topology};
use crate::memory::Policy;
use crate::units::{Bytes, BytesPerSecond, CpuId, CpuSet, NodeId, NodeSet};
use crate::workload::Arm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this schema. A change of meaning raises it; a new field does not.
pub const SCHEMA: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// First line: what was run where.
    Run(Box<RunHeader>),
    /// One streaming kernel on one set of threads.
    Stream(StreamStep),
    /// One pair of CPUs, one protocol.
    CoreLatency(CoreLatencyStep),
    /// One pair of CPUs that compute, alone and together.
    Sibling(SiblingStep),
    /// One CPU's chase through memory.
    MemoryLatency(MemoryLatencyStep),
    /// One CPU's visits of single pages.
    PageLatency(PageLatencyStep),
    /// One CPU's chase through memory while others read.
    LoadedLatency(LoadedLatencyStep),
    /// One operation on one line by several threads.
    Atomic(AtomicStep),
    /// What somebody else took of one CPU.
    Detour(DetourStep),
    /// One barrier on one set of threads.
    Barrier(BarrierStep),
    /// A team woken for one job.
    Dispatch(DispatchStep),
    /// One arm of one decode replay in one round.
    Decode(DecodeStep),
    /// A real engine in one round.
    Engine(EngineStep),
    /// A short step, repeated through the run to see drift.
    Reference(ReferenceStep),
    /// What the measuring itself costs.
    Overhead(OverheadStep),
    /// One function of somebody else's STREAM in one round.
    Peer(PeerStep),
    /// Last line. A record without it is incomplete.
    End(End),
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// [`SCHEMA`].
    pub schema: u32,
    /// membar's version.
    pub version: String,
    /// The commit it was built from, where the build knew.
    pub commit: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// Start of the run, RFC 3339.
    pub started_utc: String,
    /// Seed of every random order and choice.
    pub seed: u64,
    /// Host name.
    pub host: String,
    /// The processor.
    pub cpu: CpuFacts,
    /// The machine's shape as reported.
    pub topology: Topology,
    /// The clock that all times are read from.
    pub clock: ClockFacts,
    /// CPUs this process may use.
    pub allowed_cpus: CpuSet,
    /// Memory nodes this process may use.
    pub allowed_nodes: NodeSet,
    /// Limits and settings of the system.
    pub environment: Environment,
    /// The memory's theoretical peak, as `--peak-gb-s` said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes_per_s: Option<f64>,
    /// `--label`, `--vm-size` and `--region`.
    pub labels: BTreeMap<String, String>,
    /// What is wrong or unknown about the machine as a whole.
    pub caveats: Vec<Caveat>,
}

/// The processor, as it names itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuFacts {
    /// Brand string.
    pub model_name: String,
    /// Vendor string.
    pub vendor: String,
    /// Instruction-set levels used, lowest first.
    pub isa: Vec<String>,
    /// The hypervisor, in a guest.
    pub hypervisor: Option<String>,
}

/// The ruler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFacts {
    /// Which clock.
    pub source: String,
    /// Smallest step seen, ns.
    pub step_ns: u64,
}

/// What every step has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of threads.
    pub threads: u32,
    /// The CPU asked for each thread, in thread order.
    pub cpus: Vec<CpuId>,
    /// What taints the numbers.
    pub caveats: Vec<Caveat>,
    /// Time of each sample, from the earliest start to the latest finish, in the order taken.
    pub samples_ns: Vec<u64>,
    /// Passes, episodes, one-way trips or tokens in one sample.
    pub units_per_sample: u64,
    /// Leading samples that summaries leave out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub warmup_samples: u32,
    /// Start and finish of each thread in the last sample, relative to its earliest start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_thread: Vec<ThreadSpan>,
    /// What else happened during the step; absent where many steps shared their threads.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disturbance: Disturbance,
}

/// Whether a value says no more than its absence.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One thread's part in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadSpan {
    /// ns after the earliest start.
    pub start_ns: u64,
    /// ns after the earliest start.
    pub finish_ns: u64,
}

/// What the system did around a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Differences of the kernel's counters.
    pub counters: Counters,
    /// Of all threads together.
    pub involuntary_switches: u64,
    /// Of all threads together; absent where /proc does not tell.
    pub voluntary_switches: Option<u64>,
    /// The most that one thread was off its CPU during the work: wall time less its CPU time.
    #[serde(default)]
    pub off_cpu_ns: u64,
    /// Watched just before the step, by thread. Written as one list a field: `{"window_ns": […], "count": […], …}`.
    #[serde(default, with = "super::columns", skip_serializing_if = "Vec::is_empty")]
    pub detours: Vec<Detours>,
}

/// Gaps in a loop of clock reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detours {
    /// Time watched.
    pub window_ns: u64,
    /// Gaps above 1 µs.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// A streaming kernel's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamStep {
    /// Common fields; a unit is one pass over the arrays.
    #[serde(flatten)]
    pub step: Step,
    /// Row of the kernel table.
    pub kernel: String,
    /// The operation it computes.
    pub operation: String,
    /// The instruction-set level, or `libc`.
    pub isa: String,
    /// `ordinary` or `non_temporal`; absent when nothing is written, and when the C library decides.
    pub store: Option<String>,
    /// Bytes of each array.
    pub array_bytes: Bytes,
    /// Sum of the distinct last-level caches of all CPUs in scope, reported or assumed.
    pub cache_bytes: Bytes,
    /// What part of the machine this is: `machine`, `half 0` and `half 1` (of its cores), `machine interleaved`, `socket N`,
    /// `node N`, `node N to node M` (CPUs of the first, memory of the second), `column`, or `validate` beside another program.
    pub scope: String,
    /// Nodes of the CPUs.
    pub cpu_nodes: NodeSet,
    /// Nodes that pages were asked onto, or may be on.
    pub memory_nodes: NodeSet,
    /// Bytes that one pass asks for.
    pub counted_bytes: Bytes,
    /// Bytes on the bus at least.
    pub bus_bytes_min: Bytes,
    /// Bytes on the bus at most (with a read of every line written).
    pub bus_bytes_max: Bytes,
    /// How pages were placed.
    pub placement: Policy,
    /// Sampled pages by node, after the run.
    pub pages_on_node: Vec<(NodeId, u64)>,
    /// Pages asked for.
    pub page_kind: String,
    /// Share of the arrays in huge pages after the run, where known.
    pub huge_page_share: Option<f64>,
    /// Derived.
    pub summary: StreamSummary,
}

/// Derived from a [`StreamStep`]'s samples; counted bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// Of the fastest sample.
    pub best_bytes_per_s: Option<BytesPerSecond>,
    /// Of the median sample.
    pub median_bytes_per_s: Option<BytesPerSecond>,
}

/// The time a line takes between two cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreLatencyStep {
    /// Common fields; a unit is what `path` says.
    #[serde(flatten)]
    pub step: Step,
    /// First CPU of the pair.
    pub cpu_a: CpuId,
    /// Second CPU of the pair.
    pub cpu_b: CpuId,
    /// `cas`, `flags` or `message`.
    pub protocol: String,
    /// `one_way` or `round_trip`: what a unit is.
    pub path: String,
    /// `modified` or `clean`: how the line is found in the other core's cache. Left out where there are tens of thousands of
    /// lines: modified, as by all protocols so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_state: Option<String>,
    /// Node on which the shared line was seen.
    pub home_node: Option<NodeId>,
    /// Node that it was bound to; absent where the thread on `cpu_a` or, in turn, that on `cpu_b` touched it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_asked: Option<NodeId>,
    /// Of `message`: the part of each sample for which messages were under way from `cpu_b` to `cpu_a`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backward_ns: Vec<u64>,
    /// Of `message`: the round trip by flags that it was held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags_round_trip_ns: Option<f64>,
    /// What the reported topology says the two share: `smt`, `l3`, `node`, `socket`, `machine`.
    pub reported_class: String,
    /// Derived.
    pub summary: LatencySummary,
}

/// The time of a load that waits for the one before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryLatencyStep {
    /// Common fields; a unit is one load.
    #[serde(flatten)]
    pub step: Step,
    /// `memory`, or `ladder` for a footprint below.
    pub scope: String,
    /// Node of the CPU.
    pub cpu_node: Option<NodeId>,
    /// Node that pages were asked onto.
    pub memory_node: Option<NodeId>,
    /// Bytes that the cycle goes through.
    pub footprint_bytes: Bytes,
    /// The CPU's last-level cache, reported or assumed.
    pub cache_bytes: Bytes,
    /// Pages asked for.
    pub page_kind: String,
    /// The size of nearly all pages that were granted.
    pub page_bytes: Bytes,
    /// Share of the buffer in huge pages, where known.
    pub huge_page_share: Option<f64>,
    /// Sampled pages by node, after the samples.
    pub pages_on_node: Vec<(NodeId, u64)>,
    /// Derived.
    pub summary: LatencySummary,
}

/// How much two CPUs slow each other while both only multiply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiblingStep {
    /// Common fields; a sample is both CPUs together, a unit the same multiplications by each of them.
    #[serde(flatten)]
    pub step: Step,
    /// First CPU of the pair.
    pub cpu_a: CpuId,
    /// Second CPU of the pair.
    pub cpu_b: CpuId,
    /// As many units by the first CPU alone, just before each sample.
    pub alone_a_ns: Vec<u64>,
    /// As many units by the second CPU alone, just before each sample.
    pub alone_b_ns: Vec<u64>,
    /// Why this pair: `all` are measured, or it is `reported` as one core, a `candidate` of the group test, or a `control`.
    pub chosen: String,
    /// What the reported topology says the two share: `smt`, `l3`, `node`, `socket`, `machine`.
    pub reported_class: String,
    /// Derived.
    pub summary: SiblingSummary,
}

/// Derived from a [`SiblingStep`]'s samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiblingSummary {
    /// Median over samples of the time together over that of the slower one alone: 1 for two cores, about 2 for one.
    pub slowdown: Option<f64>,
}

/// The latency of single pages, visited in random order while no cache holds them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageLatencyStep {
    /// Common fields; a sample is a pass over all chosen pages (the sum of its visits), a unit one load.
    #[serde(flatten)]
    pub step: Step,
    /// Node of the CPU.
    pub cpu_node: Option<NodeId>,
    /// Node that the buffer lies on, by first touch.
    pub memory_node: Option<NodeId>,
    /// Bytes of the buffer that the pages are chosen from.
    pub footprint_bytes: Bytes,
    /// The CPU's last-level cache, reported or assumed.
    pub cache_bytes: Bytes,
    /// Pages asked for.
    pub page_kind: String,
    /// Sampled pages by node, after the samples.
    pub pages_on_node: Vec<(NodeId, u64)>,
    /// Pages that were chosen.
    pub pages: u32,
    /// Loads of a visit: each waits for the one before. A visit also holds one clock read and one translation.
    pub loads_per_page: u64,
    /// Of each page the median visit over all passes: the largest ns of a bin about 3 % wide, and how many pages are in it.
    pub histogram: Vec<(u64, u64)>,
    /// The same of at most 512 of these pages one by one, ns, in the order of their addresses; every CPU of a run has the same
    /// pages.
    pub compared_ns: Vec<u64>,
    /// Derived: time of a load.
    pub summary: LatencySummary,
}

/// Threads that take numbers from one counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtomicStep {
    /// Common fields; a unit is one number taken, by whichever thread.
    #[serde(flatten)]
    pub step: Step,
    /// `fetch_add` or `compare_and_swap`.
    pub operation: String,
    /// Numbers that each thread took in all samples together, in thread order.
    pub operations_by_thread: Vec<u64>,
    /// Node on which the counter was seen.
    pub home_node: Option<NodeId>,
    /// Derived.
    pub summary: AtomicSummary,
}

/// Derived from an [`AtomicStep`]'s samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtomicSummary {
    /// All threads together, in the median sample.
    pub operations_per_s: Option<f64>,
    /// Of the thread with the fewest, over that of the one with the most: 0 to 1.
    pub fairness: Option<f64>,
}

/// Gaps between clock reads on one CPU, while all others were watched as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetourStep {
    /// Common fields; the only sample is the time watched, a unit is a window.
    #[serde(flatten)]
    pub step: Step,
    /// Gaps above this count.
    pub threshold_ns: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// Gaps in all windows.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The longest gap that began in each window; 0 where there was none.
    pub window_longest_ns: Vec<u64>,
    /// Derived.
    pub summary: DetourSummary,
}

/// Derived from a [`DetourStep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DetourSummary {
    /// Gaps a second.
    pub per_s: Option<f64>,
    /// Share of the time, 0 to 1.
    pub share: Option<f64>,
    /// The longest.
    pub longest_ns: Option<u64>,
}

/// The time of a load that waits for the one before, while other threads read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedLatencyStep {
    /// Common fields; a unit is one load of thread 0. The other threads read. Without `disturbance.detours`.
    #[serde(flatten)]
    pub step: Step,
    /// `machine` or `node N`.
    pub scope: String,
    /// Node of the CPU that chases.
    pub cpu_node: Option<NodeId>,
    /// Node of its chain, by first touch.
    pub memory_node: Option<NodeId>,
    /// Pace of the readers: share of the fastest, 0 to 1, as asked.
    pub pace: f64,
    /// Bytes of the chain.
    pub chain_bytes: Bytes,
    /// Bytes of the readers' array.
    pub array_bytes: Bytes,
    /// What all readers read around each sample.
    pub background_bytes: Vec<u64>,
    /// In which time.
    pub background_ns: Vec<u64>,
    /// Derived.
    pub summary: LoadedSummary,
}

/// Derived from a [`LoadedLatencyStep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadedSummary {
    /// What the readers read a second, in the median sample.
    pub background_bytes_per_s: Option<f64>,
    /// Median time of a load.
    pub median_ns: Option<f64>,
}

/// Derived from samples: time of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Median.
    pub median_ns: Option<f64>,
    /// 5th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p5_ns: Option<f64>,
    /// 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ns: Option<f64>,
}

/// The time of a barrier episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BarrierStep {
    /// Common fields; a unit is an episode.
    #[serde(flatten)]
    pub step: Step,
    /// Row of the barrier table.
    pub algorithm: String,
    /// How threads wait.
    pub wait: Wait,
    /// How the threads are spread: `smt`, `l3`, `node`, `socket`, `scatter-…`, `all`, `given`.
    pub spread: String,
    /// How much longer than the others thread 0 computes before an episode.
    pub late_ns: u64,
    /// How long every thread computes before an episode.
    pub work_ns: u64,
    /// Bytes of its own that each thread reads from memory before an episode.
    pub work_bytes: Bytes,
    /// Bytes of a vector that all threads write in equal parts before an episode, and all read whole after it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exchange_bytes: Bytes,
    /// The same work without the barrier, right after the sample of the same place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_ns: Vec<u64>,
    /// Single episodes, with stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Derived.
    pub summary: BarrierSummary,
}

impl BarrierStep {
    /// Whether nothing is done between episodes.
    pub fn is_idle(&self) -> bool {
        self.late_ns == 0 && self.work_ns == 0 && self.work_bytes.0 == 0 && self.exchange_bytes.0 == 0
    }
}

/// Episodes in which each thread stamped when it came and when it left. Times in bins that are 3 % wide: the largest of each
/// bin in ns, and how many episodes are in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Episodes.
    pub episodes: u64,
    /// Their time together, stamps included.
    pub total_ns: u64,
    /// From the moment when all had left one episode to that when all had left the next.
    pub episode: Vec<(u64, u64)>,
    /// From the last arrival until all had left.
    pub release: Vec<(u64, u64)>,
    /// From the first arrival to the last.
    pub skew: Vec<(u64, u64)>,
}

/// Derived from batch samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BarrierSummary {
    /// Median over the samples of the mean episode of a sample, work included.
    pub median_ns: Option<f64>,
    /// Where there is work: the median over the samples of what an episode takes longer than the same work without a barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed_ns: Option<f64>,
    /// Of the traced episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced: Option<TracedSummary>,
}

/// Derived from a [`Trace`]: stamps included, to the width of a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedSummary {
    /// 5th percentile of an episode.
    pub p5_ns: u64,
    /// 95th percentile of an episode.
    pub p95_ns: u64,
    /// 99th percentile of an episode.
    pub p99_ns: u64,
    /// The longest episode.
    pub max_ns: u64,
    /// Median time from the last arrival until all had left.
    pub release_ns: u64,
    /// Median time from the first arrival to the last.
    pub skew_ns: u64,
    /// What the stamps cost: the mean traced episode less the median of the others.
    pub overhead_ns: f64,
}

/// A team woken for one job, again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchStep {
    /// Common fields; a sample is from handing out the job to its end on all threads, a unit is a job that does nothing.
    #[serde(flatten)]
    pub step: Step,
    /// How the threads are spread.
    pub spread: String,
    /// How long a thread polls for a job before it sleeps: llama.cpp's level, 0 to 100, times 131,072 spin hints.
    pub poll: u32,
    /// Time without a job before each.
    pub idle_ns: u64,
    /// From handing out the job until the last thread had begun, one for one with `samples_ns`.
    pub started_ns: Vec<u64>,
    /// Derived.
    pub summary: DispatchSummary,
}

/// Derived from a [`DispatchStep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DispatchSummary {
    /// Median time of a job.
    pub median_ns: Option<f64>,
    /// Median time until the last thread had begun.
    pub started_ns: Option<f64>,
}

/// One arm of a replay in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecodeStep {
    /// Common fields; a unit is a token.
    #[serde(flatten)]
    pub step: Step,
    /// Model of the catalogue.
    pub model: String,
    /// Its quantisation.
    pub quantization: String,
    /// Whose phases and barrier points.
    pub engine: String,
    /// How matrices are cut.
    pub slicing: String,
    /// Barrier algorithm.
    pub barrier: String,
    /// How its threads wait.
    pub wait: Wait,
    /// How the weights' pages were placed.
    pub placement: Policy,
    /// Which arm.
    pub arm: Arm,
    /// Which round, from 0.
    pub round: u32,
    /// Arms with the same number belong together: one thread count, one barrier, and the roof they are compared with.
    pub configuration: u32,
    /// Whether this is the configuration that an engine would take by default; the others are changes that were tried.
    pub baseline: bool,
    /// Weight bytes of one token.
    pub bytes_per_token: Bytes,
    /// Barrier points of one token.
    pub barriers_per_token: u64,
    /// Memory that holds the weights: fewer layers than the model has, read in turn.
    pub resident_bytes: Bytes,
    /// Of the arm `traced`, where clocks of CPUs agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<DecodeTrace>,
    /// Derived.
    pub summary: DecodeSummary,
}

/// What stamps at every barrier of a sample say, over all its tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecodeTrace {
    /// Along the critical path, from the last arrival at a barrier to the release of the thread that comes last to the next.
    pub barrier_ns: u64,
    /// Time that thread 0 works in phases that are its own.
    pub serial_ns: u64,
    /// Time between barriers of each thread.
    pub busy_ns: Vec<u64>,
}

/// Derived from a [`DecodeStep`]'s samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecodeSummary {
    /// Time of a token.
    pub median_ns: Option<f64>,
    /// Its inverse.
    pub tokens_per_s: Option<f64>,
}

/// A real engine's tokens, in one round beside the replay of the same file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineStep {
    /// Common fields; the only sample is the time of all tokens as the engine says it, a unit is a token.
    #[serde(flatten)]
    pub step: Step,
    /// The program as it was named.
    pub program: String,
    /// The model's file.
    pub file: String,
    /// What the program was told, besides the number of threads.
    pub arguments: Vec<String>,
    /// What it says it was built from.
    pub build: Option<String>,
    /// As the replay's lines name the model.
    pub model: String,
    /// As the replay's lines name the quantisation.
    pub quantization: String,
    /// Which round, from 0: that of the replay's lines beside it.
    pub round: u32,
    /// The replay's configuration with the same threads.
    pub configuration: u32,
    /// Derived.
    pub summary: DecodeSummary,
}

/// A step that is repeated through a run: what differs from one time to the next is the machine's doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceStep {
    /// Common fields; a unit is a pass over the array or a round trip. Without `disturbance.detours`: the steps between have
    /// them.
    #[serde(flatten)]
    pub step: Step,
    /// What is repeated.
    pub what: Repeated,
    /// When it was taken, by the run's clock.
    pub at_ns: u64,
    /// Row of the kernel table; of `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Bytes of the array; of `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_bytes: Option<Bytes>,
    /// Bytes that one pass asks for; of `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_bytes: Option<Bytes>,
    /// `flags`; of `pair_latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// `round_trip`: what a unit is; of `pair_latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Derived.
    pub summary: ReferenceSummary,
}

/// What a reference step measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeated {
    /// One core of each in scope reads its part of an array.
    Read,
    /// Two CPUs hand flags to each other.
    PairLatency,
}

impl Repeated {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Repeated::Read => "read",
            Repeated::PairLatency => "pair_latency",
        }
    }
}

/// Derived from a [`ReferenceStep`]'s samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceSummary {
    /// Median time of a unit.
    pub median_ns: Option<f64>,
    /// Counted bytes over that time; of `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<BytesPerSecond>,
}

/// What the harness costs, as a measurement of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverheadStep {
    /// Common fields; a unit is one turn of what `what` names.
    #[serde(flatten)]
    pub step: Step,
    /// `clock_read` or `empty_episode`.
    pub what: String,
    /// Derived.
    pub summary: LatencySummary,
}

/// What another STREAM program printed of one function, in one round beside our own rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStep {
    /// Common fields; the only sample is the program's Min time, a unit is one pass over its arrays.
    #[serde(flatten)]
    pub step: Step,
    /// The program as it was named.
    pub program: String,
    /// `copy`, `scale`, `add` or `triad`.
    pub function: String,
    /// Which round, from 0. Our own rows of a round follow the program's lines.
    pub round: u32,
    /// Bytes of each of its arrays.
    pub array_bytes: Bytes,
    /// Its Avg time.
    pub avg_ns: u64,
    /// Its Max time.
    pub max_ns: u64,
    /// Bytes that one pass asks for.
    pub counted_bytes: Bytes,
    /// As printed.
    pub summary: PeerSummary,
}

/// The rate that a [`PeerStep`]'s program printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerSummary {
    /// Its Best Rate.
    pub best_bytes_per_s: Option<BytesPerSecond>,
}

/// The last line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// End of the run, RFC 3339.
    pub finished_utc: String,
    /// Wall time of the run.
    pub elapsed_ns: u64,
    /// `complete`, `interrupted` or `time budget`.
    pub outcome: String,
    /// Steps that were planned and not measured, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Steps that failed, with the error's text.
    pub failures: Vec<String>,
}

impl Line {
    /// The common part, of a line that is a step.
    pub fn step(&self) -> Option<&Step> {
        match self {
            Line::Run(_) | Line::End(_) => None,
            Line::Stream(line) => Some(&line.step),
            Line::CoreLatency(line) => Some(&line.step),
            Line::Sibling(line) => Some(&line.step),
            Line::MemoryLatency(line) => Some(&line.step),
            Line::PageLatency(line) => Some(&line.step),
            Line::LoadedLatency(line) => Some(&line.step),
            Line::Atomic(line) => Some(&line.step),
            Line::Detour(line) => Some(&line.step),
            Line::Barrier(line) => Some(&line.step),
            Line::Dispatch(line) => Some(&line.step),
            Line::Decode(line) => Some(&line.step),
            Line::Engine(line) => Some(&line.step),
            Line::Reference(line) => Some(&line.step),
            Line::Overhead(line) => Some(&line.step),
            Line::Peer(line) => Some(&line.step),
        }
    }
}
