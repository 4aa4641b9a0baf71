//! Barriers: which algorithm on which threads, waiting how, after which work.

mod work;

pub use work::{After, Lateness, Work};

use super::stream::{self, sizes};
use super::{CacheGroups, Class, Domains, Needs, Preset, Scope, Subject, ThreadList, standing_caveats};
use crate::barrier::Wait;
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::machine::{Machine, Topology};
use crate::units::{Bytes, CpuId, CpuSet, Nanos, NodeId, Threads};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose barriers; empty means all that have a fixed name.
    pub algorithms: Vec<Subject>,
    /// Ways of waiting; empty means each algorithm's default.
    pub waits: Vec<Wait>,
    /// Spreads; empty means all that this machine can form.
    pub spreads: Vec<Spread>,
    /// Thread counts, also more than there are CPUs.
    pub threads: Option<ThreadList>,
    /// What else is done between episodes, by every algorithm; `None` means a choice for `central` and for those that are
    /// named.
    pub works: Option<Vec<Work>>,
    /// The kernel that reads memory between episodes; without one nothing is read.
    pub reader: Option<&'static str>,
    /// Samples.
    pub samples: Option<u32>,
    /// How thorough.
    pub preset: Preset,
}

/// How a set of threads is spread over the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// The hardware threads of one core.
    Smt,
    /// Inside one last-level cache.
    L3,
    /// Inside one NUMA node, over its caches.
    Node,
    /// Inside one package, over its nodes.
    Socket,
    /// One last-level cache after another in turn.
    ScatterL3,
    /// One node after another in turn.
    ScatterNode,
    /// One package after another in turn.
    ScatterSocket,
    /// Filling the machine in order, beyond one package.
    All,
    /// The CPUs that were named.
    Given,
}

impl Spread {
    /// All of them.
    pub const ALL: [Spread; 9] = [
        Spread::Smt,
        Spread::L3,
        Spread::Node,
        Spread::Socket,
        Spread::ScatterL3,
        Spread::ScatterNode,
        Spread::ScatterSocket,
        Spread::All,
        Spread::Given,
    ];

    /// Its name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Spread::Smt => "smt",
            Spread::L3 => "l3",
            Spread::Node => "node",
            Spread::Socket => "socket",
            Spread::ScatterL3 => "scatter-l3",
            Spread::ScatterNode => "scatter-node",
            Spread::ScatterSocket => "scatter-socket",
            Spread::All => "all",
            Spread::Given => "given",
        }
    }
}

impl Spread {
    /// What is missing where it cannot be formed.
    fn lacks(self, given: bool, counted: bool) -> String {
        let lacks = match self {
            Spread::Given => return "no CPUs were named: add --cpus".to_owned(),
            _ if given => return "CPUs were named, so the only spread is given: leave --cpus out".to_owned(),
            Spread::Smt => "no core in scope has two hardware threads",
            Spread::L3 => "no last-level cache has so many CPUs in scope",
            Spread::Node => "no node has more than one last-level cache in scope, filled by these thread counts",
            Spread::Socket => "no package has more than one node or cache in scope, filled by these thread counts",
            Spread::ScatterL3 => "there is one last-level cache in scope, or none is reported",
            Spread::ScatterNode => "there is one memory node with CPUs in scope, or none is reported",
            Spread::ScatterSocket => "there is one package in scope, or none is reported",
            Spread::All => "there is one package in scope, or these thread counts do not reach beyond it",
        };
        let counts = if counted { "; other --threads may do" } else { "" };
        format!("{lacks}{counts}")
    }
}

/// Which barriers will be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// In the order they are taken.
    pub steps: Vec<Step>,
    /// Samples of episodes with nothing between them.
    pub samples: u32,
    /// Samples of others, with and without the barrier.
    pub work_samples: u32,
    /// A sample repeats its episodes until it lasts this long.
    pub sample_least_ns: u64,
    /// Algorithms that cannot wait as asked, spreads that this machine cannot form.
    pub left_out: Vec<LeftOut>,
    /// How threads are grouped.
    #[serde(skip)]
    pub caches: CacheGroups,
}

/// One barrier on one set of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Whose barrier.
    pub algorithm: Subject,
    /// How its threads wait.
    pub wait: Wait,
    /// One CPU a thread; repeats mean oversubscription.
    pub cpus: Vec<CpuId>,
    /// How these CPUs are spread.
    pub spread: Spread,
    /// Node of each thread.
    pub nodes: Vec<Option<NodeId>>,
    /// What is done between episodes, in turn; first nothing.
    pub works: Vec<Work>,
    /// What is read between episodes, where something is.
    pub stream: Option<Stream>,
    /// Episodes that are taken one by one, with stamps.
    pub traced_episodes: u32,
    /// What is known to taint the number beforehand.
    pub caveats: Vec<Caveat>,
}

/// Memory that the threads of a step read between episodes, each a part of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Row of the kernel table.
    pub kernel: String,
    /// Of all threads together.
    pub bytes: Bytes,
    /// What taints it.
    pub caveats: Vec<Caveat>,
}

/// Plans the barrier measurement.
///
/// # Errors
/// When the thread counts cannot be used, or nothing is left to measure.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Result<Plan> {
    let topology = &machine.topology;
    let mut left_out = Vec::new();
    let sets = thread_sets(topology, scope, options, &mut left_out)?;
    let asked = if options.algorithms.is_empty() { Subject::all() } else { options.algorithms.clone() };
    let subjects = usable(machine, asked, &mut left_out);

    let mut steps = Vec::new();
    for (spread, cpus) in &sets {
        let alone = cpus.len() < 2 || is_crowded(cpus);
        let stream = if alone { None } else { read_between(machine, scope, cpus, options, &mut left_out) };
        if alone && options.works.iter().flatten().any(|work| *work != Work::Nothing) {
            let what = format!("--late and --after by {} on {}", Threads(cpus.len() as u32), cpus_of(cpus));
            let reason = "several threads on CPUs of their own show what a barrier adds".to_owned();
            left_out.push(LeftOut { what, reason });
        }
        for algorithm in &subjects {
            let can = algorithm.waits();
            // Nobody can tell a barrier how to wait that does not tell how it does.
            let only = options.waits.is_empty() || can == [Wait::Unknown];
            let waits = if only { &can[..1] } else { &options.waits };
            for &wait in waits {
                if algorithm.can_wait(wait) {
                    let works = works(algorithm, *spread, cpus, stream.is_some(), options);
                    let streams = works.iter().any(|work| work.streams());
                    steps.push(Step {
                        algorithm: algorithm.clone(),
                        wait,
                        cpus: cpus.clone(),
                        spread: *spread,
                        nodes: cpus.iter().map(|cpu| topology.pu(*cpu).and_then(|pu| pu.node)).collect(),
                        stream: stream.clone().filter(|_| streams),
                        works,
                        traced_episodes: if cpus.len() > 1 { TRACED } else { 0 },
                        caveats: standing_caveats(machine, cpus),
                    });
                } else {
                    let what = format!("{} waiting by {wait}", algorithm.name());
                    if !left_out.iter().any(|left: &LeftOut| left.what == what) {
                        let can: Vec<String> = can.iter().map(Wait::to_string).collect();
                        left_out.push(LeftOut { what, reason: format!("it waits by {}", can.join(", ")) });
                    }
                }
            }
        }
    }
    // A batch is short against the minutes over which a shared host changes its mood: many of them, in a row.
    let samples = options.samples.unwrap_or(if options.preset == Preset::Quick { 15 } else { 50 });
    if steps.is_empty() {
        let reasons: Vec<String> = left_out.iter().map(|left| format!("{}: {}", left.what, left.reason)).collect();
        return Err(Error::usage(
            "measure any of these barriers",
            reasons.join("; "),
            "see --list for what each can do",
        ));
    }
    let work_samples = samples.min(15);
    let caches = CacheGroups::of(topology);
    Ok(Plan { steps, samples, work_samples, sample_least_ns: 2_000_000, left_out, caches })
}

/// Episodes with stamps: enough for a 99th percentile, and 20 ms of an episode of ten microseconds.
const TRACED: u32 = 2_000;

/// What is done between episodes: as asked, else a choice that shows what a late thread, work, traffic and an exchange cost.
/// Where more threads than CPUs wait for each other, nothing.
fn works(algorithm: &Subject, spread: Spread, cpus: &[CpuId], streams: bool, options: &Options) -> Vec<Work> {
    /// Steps of four up to what a thread reads between two barriers of a large dense model.
    const BYTES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
    /// Activation vectors of small and large models: 1,024 to 16,384 elements of 4 bytes.
    const EXCHANGED: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
    /// Less and more than an episode costs inside a socket, and what a far node may add.
    const NANOS: [u64; 3] = [100, 1_000, 10_000];
    let mut works = vec![Work::Nothing];
    if is_crowded(cpus) || cpus.len() < 2 {
        return works;
    }
    let named = !options.algorithms.is_empty();
    let scattered = matches!(spread, Spread::ScatterL3 | Spread::ScatterNode | Spread::ScatterSocket);
    match &options.works {
        Some(asked) => {
            for work in asked {
                let work = work.whole_lines();
                if !works.contains(&work) {
                    works.push(work);
                }
            }
        }
        None if algorithm.name() != "central" && !named => {}
        None if scattered && !named => {}
        None if options.preset == Preset::Quick => {
            works.extend(BYTES.iter().step_by(2).map(|bytes| Work::Stream(Bytes(*bytes))));
        }
        None => {
            works.extend(NANOS.map(|ns| Work::Late(Nanos(ns))));
            works.extend(NANOS.map(|ns| Work::Compute(Nanos(ns))));
            works.extend(BYTES.map(|bytes| Work::Stream(Bytes(bytes))));
            works.extend(EXCHANGED.map(|bytes| Work::Exchange(Bytes(bytes))));
        }
    }
    works.retain(|work| streams || !work.streams());
    works
}

/// Whether there are more threads than CPUs.
fn is_crowded(cpus: &[CpuId]) -> bool {
    cpus.iter().collect::<BTreeSet<_>>().len() < cpus.len()
}

fn cpus_of(cpus: &[CpuId]) -> String {
    let cpus: CpuSet = cpus.iter().copied().collect();
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") }
}

/// What threads on these CPUs can read that no cache holds.
fn read_between(
    machine: &Machine,
    scope: &Scope,
    cpus: &[CpuId],
    options: &Options,
    left_out: &mut Vec<LeftOut>,
) -> Option<Stream> {
    let kernel = options.reader?.to_owned();
    let set: CpuSet = cpus.iter().copied().collect();
    let place = sizes::Place { cpus: &set, nodes: &scope.nodes, touched_by: Some(cpus) };
    // A thread has at least what it reads at once.
    let longest = options.works.iter().flatten().map(|work| match work {
        Work::Stream(bytes) => bytes.0.saturating_mul(cpus.len() as u64),
        _ => 0,
    });
    let longest = longest.max().map(Bytes).filter(|longest| *longest > sizes::least(machine, &set).0);
    let sizes = stream::Options { size: longest, ..stream::Options::default() };
    match sizes::arrays(machine, "memory between barriers", place, 1, &sizes) {
        Ok(arrays) => Some(Stream { kernel, bytes: arrays.bytes, caveats: arrays.caveats }),
        Err(error) => {
            let what = format!("reading between barriers, {}", Threads(cpus.len() as u32));
            left_out.push(LeftOut { what, reason: error.to_string() });
            None
        }
    }
}

/// The subjects that this machine has; of the others it is noted why not.
fn usable(machine: &Machine, mut subjects: Vec<Subject>, left_out: &mut Vec<LeftOut>) -> Vec<Subject> {
    subjects.retain(|subject| {
        let Subject::OpenMp(runtime) = subject else { return true };
        let installed = machine.environment.openmp.contains_key(runtime.name());
        if !installed {
            let foreign = || "not known whether it is installed there".to_owned();
            let reason = if machine.is_this_system() { runtime.missing() } else { foreign() };
            left_out.push(LeftOut { what: runtime.name().to_owned(), reason });
        }
        installed
    });
    subjects
}

/// Distinct sets of CPUs with the name of their spread.
fn thread_sets(
    topology: &Topology,
    scope: &Scope,
    options: &Options,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<(Spread, Vec<CpuId>)>> {
    /// Eight threads a CPU say all there is to say about oversubscription.
    const OVERSUBSCRIPTION: u32 = 8;
    let cpus = scope.cpus.len() as u32;
    let quick = options.preset == Preset::Quick;
    let counts = match &options.threads {
        Some(list) => list.resolve(cpus, cpus * OVERSUBSCRIPTION)?,
        None => scope.natural_threads(topology, quick),
    };
    let domains = Domains::of(topology);
    let mut sets: Vec<(Spread, Vec<CpuId>)> = Vec::new();
    for &threads in &counts {
        let set = scope.compact(threads);
        sets.push((if scope.given { Spread::Given } else { compact_spread(&domains, &set) }, set));
    }
    if !scope.given {
        if let Some(siblings) = first_siblings(topology, scope) {
            sets.push((Spread::Smt, siblings));
        }
        type Domain = fn(&crate::machine::Pu) -> Option<u32>;
        let domains: [(Spread, Domain); 3] = [
            (Spread::ScatterL3, |pu| pu.last_level_cache),
            (Spread::ScatterNode, |pu| pu.node.map(|node| node.0)),
            (Spread::ScatterSocket, |pu| pu.package),
        ];
        for (spread, domain) in domains {
            let order = scattered(topology, scope, domain);
            let counts = if options.threads.is_some() { counts.clone() } else { vec![2, 4, 8, 16, 32, 64, 128, 256] };
            for threads in counts.into_iter().filter(|threads| (2..=order.len() as u32).contains(threads)) {
                sets.push((spread, order[..threads as usize].to_vec()));
            }
        }
    }
    for spread in &options.spreads {
        if !sets.iter().any(|(formed, _)| formed == spread) {
            let reason = spread.lacks(scope.given, options.threads.is_some());
            left_out.push(LeftOut { what: format!("spread {}", spread.name()), reason });
        }
    }
    sets.retain(|(spread, _)| options.spreads.is_empty() || options.spreads.contains(spread));
    // Two names for one set of CPUs are one measurement; the first name is the tighter one.
    let mut distinct: Vec<(Spread, Vec<CpuId>)> = Vec::new();
    let mut seen: BTreeSet<Vec<CpuId>> = BTreeSet::new();
    for (spread, set) in sets {
        let mut sorted = set.clone();
        sorted.sort_unstable();
        if seen.insert(sorted) {
            distinct.push((spread, set));
        }
    }
    Ok(distinct)
}

/// The tightest domain that holds all these CPUs.
fn compact_spread(domains: &Domains, set: &[CpuId]) -> Spread {
    match domains.shared(set) {
        // One thread, or several on one CPU, are spread over nothing: they count with the caches.
        Class::Smt if set.iter().all(|cpu| *cpu == set[0]) => Spread::L3,
        Class::Smt => Spread::Smt,
        Class::L3 => Spread::L3,
        Class::Node => Spread::Node,
        Class::Socket => Spread::Socket,
        Class::Machine => Spread::All,
    }
}

/// The hardware threads of the first core that has several in scope.
fn first_siblings(topology: &Topology, scope: &Scope) -> Option<Vec<CpuId>> {
    let set = scope.set();
    let members = |core: &crate::machine::Core| -> Vec<CpuId> {
        core.cpus.iter().copied().filter(|cpu| set.contains(*cpu)).collect()
    };
    topology.cores.iter().map(members).find(|cpus| cpus.len() > 1)
}

/// The cores in scope, one domain after another in turn. Empty when there is only one domain.
fn scattered(topology: &Topology, scope: &Scope, domain: fn(&crate::machine::Pu) -> Option<u32>) -> Vec<CpuId> {
    let mut queues: Vec<(u32, Vec<CpuId>)> = Vec::new();
    for cpu in &scope.cpus[..scope.cores] {
        let Some(place) = topology.pu(*cpu).and_then(domain) else { return Vec::new() };
        match queues.iter_mut().find(|(other, _)| *other == place) {
            Some((_, queue)) => queue.push(*cpu),
            None => queues.push((place, vec![*cpu])),
        }
    }
    if queues.len() < 2 {
        return Vec::new();
    }
    let longest = queues.iter().map(|(_, queue)| queue.len()).max().unwrap_or(0);
    (0..longest).flat_map(|turn| queues.iter().filter_map(move |(_, queue)| queue.get(turn).copied())).collect()
}

impl Plan {
    /// Seconds that a step takes, guessed.
    pub fn step_s(&self, step: &Step) -> f64 {
        /// Guess: start, pin and watch one thread.
        const START_S: f64 = 0.000_5;
        /// Seen with 4 to 16 threads on 2 CPUs: half a second of samples and as much before them.
        const OVERSUBSCRIBED_S: f64 = 1.0;
        let sample_s = self.sample_least_ns as f64 * 1.5e-9;
        let oversubscribed = step.caveats.iter().any(|caveat| matches!(caveat, Caveat::Oversubscribed { .. }));
        let idle = if oversubscribed { OVERSUBSCRIBED_S } else { f64::from(self.samples + 1) * sample_s };
        // Two to find the number of episodes.
        let samples = f64::from(2 * self.work_samples.min(self.samples) + 2);
        let works: f64 = step.works.iter().skip(1).map(|work| samples * sample_s.max(work.least_s())).sum();
        let touched = step.stream.as_ref().map_or(0.0, |stream| stream.bytes.0 as f64);
        let threads = step.cpus.len() as f64;
        idle + works + START_S * threads + touched / stream::TOUCH / threads.min(64.0)
    }

    /// What is read and exchanged between episodes; time from the sample length, what starting threads costs and touching
    /// memory.
    pub fn needs(&self) -> Needs {
        let held = self.steps.iter().map(|step| {
            let exchanged = step.works.iter().map(|work| work.exchanged_bytes()).max().unwrap_or(0);
            step.stream.as_ref().map_or(0, |stream| stream.bytes.0) + exchanged
        });
        let estimated_s = self.steps.iter().map(|step| self.step_s(step)).sum();
        Needs { memory_bytes: Bytes(held.max().unwrap_or(0)), estimated_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::barrier::Algorithm;
    use crate::machine::{OpenMp, Source};

    fn sets(description: &str, options: &Options) -> Vec<(Spread, usize)> {
        let machine = Machine::from_source(&format!("synthetic:{description}")).unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let plan = plan(&machine, &scope, options).unwrap();
        plan.steps.iter().map(|step| (step.spread, step.cpus.len())).collect()
    }

    #[test]
    fn spreads_have_the_name_of_the_tightest_domain() {
        let central = || Options { algorithms: vec![Algorithm::Central.into()], ..Options::default() };
        let chiplets = sets("pack:2 [numa] l3:2 core:4 pu:2", &central());
        for expected in [
            (Spread::L3, 4),
            (Spread::Node, 8),
            (Spread::All, 16),
            (Spread::Smt, 2),
            (Spread::ScatterL3, 4),
            (Spread::ScatterNode, 4),
        ] {
            assert!(chiplets.contains(&expected), "{expected:?} in {chiplets:?}");
        }
        // One cache over three nodes.
        let clusters = sets("pack:2 l3:1 group:3 [numa] core:4 pu:1", &central());
        assert!(clusters.contains(&(Spread::Node, 4)) && clusters.contains(&(Spread::L3, 12)), "{clusters:?}");
        // A set with two names is there under the one that was asked for.
        let sockets = Options { spreads: vec![Spread::ScatterSocket], ..central() };
        let asked = sets("pack:2 [numa] l3:1 core:4 pu:1", &sockets);
        assert!(asked.contains(&(Spread::ScatterSocket, 2)), "{asked:?}");
    }

    #[test]
    fn a_runtime_is_planned_where_it_is_installed() {
        let mut machine = Machine::from_source("synthetic:core:2 pu:1").unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let planned = |machine: &Machine, waits: &[Wait]| {
            let options = Options { waits: waits.to_vec(), ..Options::default() };
            let plan = plan(machine, &scope, &options).unwrap();
            let is_runtime = |step: &&Step| matches!(step.algorithm, Subject::OpenMp(_));
            let steps = plan.steps.iter().filter(is_runtime).map(|step| (step.algorithm.name().to_owned(), step.wait));
            (steps.collect::<Vec<_>>(), plan.left_out)
        };
        let (steps, left_out) = planned(&machine, &[]);
        assert!(steps.is_empty() && left_out[0].reason.contains("not known"), "{left_out:?}");
        machine.source = Source::ThisSystem;
        machine.environment.openmp.insert("libomp".into(), "/lib/libomp.so.5".into());
        let (steps, left_out) = planned(&machine, &[]);
        assert_eq!(steps, [("libomp".to_owned(), Wait::HINT), ("libomp".to_owned(), Wait::HINT)]);
        assert!(left_out[0].what == "libgomp" && left_out[0].reason.contains("libgomp1"), "{left_out:?}");
        let (steps, _) = planned(&machine, &[Wait::Sleep]);
        assert_eq!(steps, [("libomp".to_owned(), Wait::Sleep), ("libomp".to_owned(), Wait::Sleep)]);
        let only = Options { algorithms: vec![Subject::OpenMp(OpenMp::Libgomp)], ..Options::default() };
        let error = plan(&machine, &scope, &only).unwrap_err().to_string();
        assert!(error.contains("libgomp.so.1 is not installed") || error.contains("statically"), "{error}");
    }

    #[test]
    fn a_thread_has_all_that_it_reads_at_once() {
        let machine = Machine::from_source("synthetic:[numa(memory=40GB)] l3:1(size=32MiB) core:4 pu:1").unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let with = |bytes: u64| Options {
            algorithms: vec![Algorithm::Central.into()],
            threads: Some("4".parse().unwrap()),
            works: Some(vec![Work::Stream(Bytes(bytes))]),
            reader: Some("read_rust"),
            ..Options::default()
        };
        let held = |bytes: u64| {
            let plan = plan(&machine, &scope, &with(bytes)).unwrap();
            (plan.steps[0].stream.as_ref().map(|stream| stream.bytes), plan.steps[0].works.len(), plan.left_out)
        };
        assert_eq!(held(1 << 20), (Some(Bytes(128 << 20)), 2, Vec::new()), "four times the cache");
        assert_eq!(held(1 << 30), (Some(Bytes(4 << 30)), 2, Vec::new()));
        let (none, works, left_out) = held(1 << 40);
        assert!(none.is_none() && works == 1 && left_out[0].what.contains("reading between barriers"), "{left_out:?}");
        // Two threads on one CPU wait for the scheduler.
        let crowded = Options { threads: Some("8".parse().unwrap()), ..with(1 << 20) };
        let crowded = plan(&machine, &scope, &crowded).unwrap();
        assert_eq!(crowded.steps[0].works, [Work::Nothing]);
        assert!(crowded.steps[0].stream.is_none());
    }

    #[test]
    fn more_threads_than_cpus_are_labelled_and_bounded() {
        let machine = Machine::from_source("synthetic:core:2 pu:1").unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let with = |threads: &str| Options { threads: Some(threads.parse().unwrap()), ..Options::default() };
        let four = plan(&machine, &scope, &with("4")).unwrap();
        assert!(four.steps.iter().all(|step| step.caveats.contains(&Caveat::Oversubscribed { threads: 4, cpus: 2 })));
        assert!(plan(&machine, &scope, &with("17")).unwrap_err().to_string().contains("17 threads"));
    }
}
