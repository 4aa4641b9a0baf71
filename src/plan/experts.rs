//! Decode replay: which models, on which threads, with which barriers, how much of them in memory, and for how long.

pub mod layout;

use super::{CacheGroups, Needs, Preset, Subject, cache_sum, standing_caveats};
use crate::barrier::{Algorithm, Wait};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::memory::{Pages, Policy};
use crate::units::{Bytes, CpuId, CpuSet, Nanos, NodeSet};
use crate::workload::Arm;
use crate::workload::decode::Token;
use crate::workload::gguf::ModelFile;
use crate::workload::{Engine, Model, Slicing};
use layout::Layout;
use serde::Serialize;
use std::collections::BTreeSet;

/// Weights in memory are at least this many times the last-level caches in scope: a guess that leaves at most an eighth
/// of them in cache.
const CACHES_HELD: u64 = 8;
/// What is read before anything is read again must be this many times those caches, or the numbers carry a caveat.
const CACHES_READ: u64 = 2;
/// Most thread counts in the default sweep.
const SWEEP_MOST: usize = 8;
/// Assumed for estimates only, both guesses: one thread touching new memory, and a machine reading it.
const ASSUMED_TOUCH_BYTES_PER_S: f64 = 0.5e9;
const ASSUMED_READ_BYTES_PER_S: f64 = 20e9;
/// Starting and watching a team, a guess from what it takes on two CPUs.
const ASSUMED_TEAM_S: f64 = 0.003;

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Models; empty means one with experts and one without.
    pub models: Vec<ModelChoice>,
    /// Whose graph is replayed.
    pub engine: Engine,
    /// CPUs in scope, one hardware thread of each core first. n threads take the first n.
    pub cpus: Vec<CpuId>,
    /// Memory nodes to use; none means those of the CPUs.
    pub nodes: Option<NodeSet>,
    /// How to place pages; none means first touch on one node, interleaved over several.
    pub placement: Option<Policy>,
    /// Thread counts; none means the default sweep.
    pub threads: Option<Vec<u32>>,
    /// The barrier of the baseline.
    pub barrier: Subject,
    /// How its threads wait; none means the algorithm's default.
    pub wait: Option<Wait>,
    /// How rows are split over threads.
    pub slicing: Slicing,
    /// How thorough.
    pub preset: Preset,
    /// Memory for the weights of a model.
    pub resident_limit: Option<Bytes>,
    /// Rounds at most.
    pub rounds: Option<u32>,
    /// Time for a model.
    pub time_per_model: Option<Nanos>,
    /// Seed of every order and choice.
    pub seed: u64,
}

/// A model by name, or in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelChoice {
    /// As [`Model::find`] takes it; of a file, what to call it.
    pub model: String,
    /// As [`Model::quantization`] takes it; none means MXFP4 where the model has it, else Q4_K_M. A file has its own.
    pub quantization: Option<String>,
    /// The file, instead of a model of the catalogue.
    pub file: Option<ModelFile>,
}

impl Options {
    /// The defaults on these CPUs.
    pub fn new(cpus: Vec<CpuId>) -> Options {
        Options {
            models: Vec::new(),
            engine: Engine::LlamaCpp,
            cpus,
            nodes: None,
            placement: None,
            threads: None,
            barrier: Algorithm::Central.into(),
            wait: None,
            slicing: Slicing::Chunks,
            preset: Preset::Default,
            resident_limit: None,
            rounds: None,
            time_per_model: None,
            seed: 0,
        }
    }
}

/// What will be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Memory for the weights; all models use it one after another.
    pub arena_bytes: Bytes,
    /// Pages to ask for.
    pub pages: Pages,
    /// Where to put them.
    pub placement: Policy,
    /// Nodes on which pages may lie.
    pub memory_nodes: NodeSet,
    /// How rows are split over threads.
    pub slicing: Slicing,
    /// Seed of every order and choice.
    pub seed: u64,
    /// The models in order.
    pub models: Vec<ModelPlan>,
    /// Thread sets and barriers, the same for every model.
    pub configurations: Vec<Configuration>,
    /// How the fastest reader is found.
    pub roof: RoofRule,
    /// When to stop.
    pub rounds: RoundRule,
    /// Models that do not fit.
    pub left_out: Vec<LeftOut>,
    /// Guessed, for printing.
    pub estimated_s: f64,
    /// How threads are grouped at barriers.
    #[serde(skip)]
    pub caches: CacheGroups,
}

/// One model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelPlan {
    /// Its name.
    pub model: &'static str,
    /// Its quantisation.
    pub quantization: &'static str,
    /// Whose graph.
    pub engine: Engine,
    /// Weight bytes of one token.
    pub bytes_per_token: Bytes,
    /// Barrier points of one token.
    pub barriers_per_token: u64,
    /// Where its weights lie.
    pub layout: Layout,
    /// What taints all numbers of this model.
    pub caveats: Vec<Caveat>,
    /// The phases themselves.
    #[serde(skip)]
    pub token: Token,
}

/// One set of threads with one barrier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Configuration {
    /// The CPU of each thread.
    pub cpus: Vec<CpuId>,
    /// The barrier. An OpenMP runtime's is entered by threads that the runtime starts, in this process: they wait as the
    /// environment says, as an engine's would.
    pub barrier: Subject,
    /// How its threads wait.
    pub wait: Wait,
    /// What to run in every round.
    pub arms: Vec<Arm>,
    /// Whether an engine would take it by default: a thread for each physical core.
    pub baseline: bool,
    /// What taints all numbers of these threads.
    pub caveats: Vec<Caveat>,
}

/// The roof is read by the candidate that reads a token fastest, best of `trials` each; the run decides once a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoofRule {
    /// Thread sets.
    pub candidates: Vec<Vec<CpuId>>,
    /// Tokens read by each.
    pub trials: u32,
}

/// Every round runs every arm of every configuration once, in shuffled order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundRule {
    /// Always, if the run's deadline allows.
    pub least: u32,
    /// Never more.
    pub most: u32,
    /// Between the two: no new round after this time for one model.
    pub time_per_model: Nanos,
    /// A sample holds as many tokens as it takes to last this long.
    pub sample_at_least: Nanos,
}

impl Plan {
    /// Plans a replay.
    ///
    /// # Errors
    /// A usage error for names and thread counts that do not exist; refused when no model fits into memory.
    pub fn new(machine: &Machine, options: &Options) -> Result<Plan> {
        if options.cpus.is_empty() {
            return Err(Error::usage("replay a token", "no CPUs are in scope", "name some with --cpus"));
        }
        let scope: CpuSet = options.cpus.iter().copied().collect();
        let memory_nodes = memory_nodes(machine, options, &scope);
        let placement = options.placement.clone().unwrap_or_else(|| match (memory_nodes.len(), &options.nodes) {
            (2.., _) => Policy::Interleave(memory_nodes.clone()),
            (1, Some(_)) => Policy::Bind(memory_nodes.clone()),
            _ => Policy::FirstTouch,
        });
        let (cache_bytes, cache_caveat) = cache_sum(&machine.topology, &scope);
        let mut models = Vec::new();
        let mut left_out = Vec::new();
        let mut refusal = None;
        for choice in chosen(&options.models) {
            match model_plan(machine, options, &choice, &memory_nodes, cache_bytes, &cache_caveat) {
                Ok(plan) => models.push(plan),
                Err(error) if error.kind() == crate::error::Kind::Refused => {
                    left_out.push(LeftOut { what: format!("decode {}", choice.model), reason: error.to_string() });
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (models.is_empty(), refusal) {
            return Err(error);
        }
        let configurations = configurations(machine, options)?;
        let mut candidates: Vec<Vec<CpuId>> =
            configurations.iter().map(|configuration| configuration.cpus.clone()).collect();
        candidates.push(options.cpus.clone());
        candidates.sort_by_key(Vec::len);
        candidates.dedup();
        let (most, seconds) = match options.preset {
            Preset::Quick => (9, 10),
            Preset::Default => (25, 40),
            Preset::Full => (100, 300),
        };
        let most = options.rounds.unwrap_or(most).max(1);
        let rounds = RoundRule {
            least: most.min(7),
            most,
            time_per_model: options.time_per_model.unwrap_or(Nanos(seconds * 1_000_000_000)),
            sample_at_least: Nanos(20_000_000),
        };
        let arena_bytes = models.iter().map(|model| model.layout.resident_bytes).max().unwrap_or_default();
        let mut plan = Plan {
            arena_bytes,
            pages: Pages::Default,
            placement,
            memory_nodes,
            slicing: options.slicing,
            seed: options.seed,
            models,
            configurations,
            roof: RoofRule { candidates, trials: 3 },
            rounds,
            left_out,
            estimated_s: 0.0,
            caches: CacheGroups::of(&machine.topology),
        };
        plan.estimated_s = plan.estimate();
        Ok(plan)
    }

    /// Memory and time that it takes; the time is a guess from assumed rates.
    pub fn needs(&self) -> Needs {
        Needs { memory_bytes: self.arena_bytes, estimated_s: self.estimated_s }
    }

    fn estimate(&self) -> f64 {
        let runs = 1 + self.configurations.iter().map(|configuration| configuration.arms.len()).sum::<usize>();
        let trials = self.roof.candidates.len() * self.roof.trials as usize;
        let models = self.models.iter().map(|model| {
            let token = model.bytes_per_token.0 as f64 / ASSUMED_READ_BYTES_PER_S;
            let run = token.max(self.rounds.sample_at_least.0 as f64 / 1e9) + ASSUMED_TEAM_S;
            let round = runs as f64 * run;
            let share = self.rounds.time_per_model.0 as f64 / 1e9;
            // One round more: the untimed one that checks sums and finds how many tokens a sample takes.
            let measured = (share / round).clamp(f64::from(self.rounds.least), f64::from(self.rounds.most)) * round;
            measured + (runs + trials) as f64 * (token + ASSUMED_TEAM_S)
        });
        self.arena_bytes.0 as f64 / ASSUMED_TOUCH_BYTES_PER_S + models.sum::<f64>()
    }
}

/// The models asked for, else the two defaults.
fn chosen(models: &[ModelChoice]) -> Vec<ModelChoice> {
    if !models.is_empty() {
        return models.to_vec();
    }
    [("Qwen3-30B-A3B", "MXFP4"), ("Llama-2-7B", "Q4_K_M")]
        .map(|(model, quantization)| ModelChoice {
            model: model.into(),
            quantization: Some(quantization.into()),
            file: None,
        })
        .to_vec()
}

fn model_plan(
    machine: &Machine,
    options: &Options,
    choice: &ModelChoice,
    memory_nodes: &NodeSet,
    cache_bytes: Bytes,
    cache_caveat: &Option<Caveat>,
) -> Result<ModelPlan> {
    let token = match &choice.file {
        Some(file) => file.token(options.engine)?,
        None => {
            let model = Model::find(&choice.model)?;
            let quantization = match &choice.quantization {
                Some(name) => model.quantization(name)?,
                None => model.quantization("MXFP4").or_else(|_| model.quantization("Q4_K_M"))?,
            };
            Token::new(model, quantization, options.engine)?
        }
    };
    let at_least = Bytes(cache_bytes.0 * CACHES_HELD);
    let limit = options.resident_limit.unwrap_or(match options.preset {
        Preset::Quick => Bytes(1 << 30),
        Preset::Default | Preset::Full => Bytes(4 << 30),
    });
    let least = Layout::new(&token, at_least, Bytes(0));
    let usable = machine.usable_memory_on(memory_nodes);
    if let Some(usable) = usable.filter(|usable| *usable < least.resident_bytes) {
        return Err(Error::refused(
            format!("hold the weights of {} {} in memory", token.model, token.quantization),
            format!(
                "{limit} were asked for, {usable} are available, and the least that works is {}: one layer of each of {} \
                 kinds, the output head, and {CACHES_HELD} times the {cache_bytes} of last-level cache where the model \
                 is that large",
                least.resident_bytes,
                least.kinds.len()
            ),
            "free memory, raise the cgroup's limit, name fewer --cpus or a smaller --model",
        ));
    }
    let at_most = usable.map_or(limit, |usable| usable.min(limit));
    let layout = Layout::new(&token, at_least, at_most);
    let mut caveats: Vec<Caveat> = cache_caveat.iter().cloned().collect();
    if usable.is_none() {
        caveats.push(Caveat::MemorySizeUnknown);
    }
    if let Some(file) = choice.file.as_ref().filter(|file| !file.has_graph()) {
        caveats.push(Caveat::GraphUnknown { architecture: file.architecture.clone() });
    }
    if layout.reuse_bytes.0 < CACHES_READ * cache_bytes.0 {
        caveats.push(Caveat::CacheResident { reuse_bytes: layout.reuse_bytes, cache_bytes });
    }
    Ok(ModelPlan {
        model: token.model,
        quantization: token.quantization,
        engine: options.engine,
        bytes_per_token: Bytes(token.bytes()),
        barriers_per_token: token.barriers(),
        layout,
        caveats,
        token,
    })
}

/// Nodes that pages may lie on: those named, else those of the CPUs in scope that have memory.
fn memory_nodes(machine: &Machine, options: &Options, scope: &CpuSet) -> NodeSet {
    let allowed = machine.topology.memory_nodes().intersection(&machine.allowed_nodes);
    if let Some(nodes) = &options.nodes {
        return nodes.intersection(&allowed);
    }
    let of_cpus: NodeSet = scope.iter().filter_map(|cpu| machine.topology.pu(cpu)?.node).collect();
    let near = of_cpus.intersection(&allowed);
    if near.is_empty() { allowed } else { near }
}

/// The thread sweep with the baseline's barrier, then the changes to try on the baseline's threads.
fn configurations(machine: &Machine, options: &Options) -> Result<Vec<Configuration>> {
    let barrier = &options.barrier;
    let wait = match (options.wait, barrier.waits()) {
        (Some(wait), _) if barrier.can_wait(wait) => wait,
        (None, [first, ..]) => *first,
        (Some(wait), waits) => {
            let known: Vec<String> = waits.iter().map(Wait::to_string).collect();
            return Err(Error::usage(
                format!("wait by '{wait}' at the barrier {}", barrier.name()),
                "this algorithm cannot wait like that",
                format!("name one of {}", known.join(", ")),
            ));
        }
        (None, []) => Wait::HINT,
    };
    let all = options.cpus.len();
    let cores: BTreeSet<u32> =
        options.cpus.iter().filter_map(|cpu| machine.topology.pu(*cpu)).map(|pu| pu.core).collect();
    let cores = if cores.is_empty() { all } else { cores.len() };
    let counts = match &options.threads {
        None => sweep(cores, all),
        Some(counts) => {
            if let Some(wrong) = counts.iter().find(|count| **count == 0 || **count as usize > all) {
                return Err(Error::usage(
                    format!("replay a token with {wrong} threads"),
                    format!("{all} CPUs are in scope, and a token with more threads than CPUs measures the scheduler"),
                    format!("name thread counts from 1 to {all}"),
                ));
            }
            counts.iter().map(|count| *count as usize).collect::<BTreeSet<_>>().into_iter().collect()
        }
    };
    // An engine takes a thread for each physical core; of counts that were named, the nearest below, else the least.
    let baseline = counts.iter().copied().filter(|count| *count <= cores).max().or(counts.first().copied());
    let Some(baseline) = baseline else {
        return Err(Error::usage(
            "replay a token",
            "no thread count is given",
            "name some with --threads, or leave it out",
        ));
    };
    let with = |count: usize, barrier: Subject, wait, arms: &[Arm], baseline| {
        let cpus = options.cpus[..count].to_vec();
        let caveats = standing_caveats(machine, &cpus);
        Configuration { cpus, barrier, wait, arms: arms.to_vec(), baseline, caveats }
    };
    let arms = [Arm::Read, Arm::Dot, Arm::Sync, Arm::Full, Arm::Traced, Arm::Barrier];
    let mut list: Vec<Configuration> =
        counts.iter().map(|count| with(*count, barrier.clone(), wait, &arms, *count == baseline)).collect();
    if baseline > 1 {
        // One of each kind that scales: `membar barrier` compares all.
        const OTHERS: [Algorithm; 3] = [Algorithm::Dissemination, Algorithm::TwoLevel, Algorithm::McsTree];
        let most = if options.preset == Preset::Quick { 1 } else { OTHERS.len() };
        let others = OTHERS.iter().filter(|algorithm| Subject::Row(**algorithm) != *barrier).take(most);
        list.extend(others.filter_map(|algorithm| {
            let wait = algorithm.row().waits.first().filter(|wait| wait.keeps_cpu())?;
            Some(with(baseline, (*algorithm).into(), *wait, &[Arm::Full], false))
        }));
    }
    Ok(list)
}

/// 1, powers of two, half the cores, all cores, and all hardware threads; the low ones between go first when it is many.
fn sweep(cores: usize, all: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|count| *count < cores);
    let mut counts: Vec<usize> = powers.chain([(cores / 2).max(1), cores, all]).collect();
    counts.sort_unstable();
    counts.dedup();
    while counts.len() > SWEEP_MOST {
        counts.remove(1);
    }
    counts
}

#[cfg(test)]
mod tests;
