//! Where a token's time went, what limits it, and what would help: pure functions of a record.
//!
//! A round holds one run of every arm, back to back. Differences are taken inside a round, so that what its arms share
//! (the machine's mood) cancels, and summarised over rounds by a trimmed mean, which is linear, so that they add up:
//!
//! ```text
//! bandwidth = roof            the token's bytes, read by the fastest thread set
//! reach     = read − roof     these threads in these slices cannot pull the roof
//! compute   = dot − read      not measured yet
//! waiting   = sync − read     all that the barriers cost
//! exchange  = full − sync     activations moving between caches, single-thread phases
//! ```
//!
//! Parts are never clamped: a negative one says that the difference is below what the machine lets us see.

mod advice;
pub mod bandwidth;
pub mod barrier;
pub mod clusters;
mod drift;
pub mod knee;
pub mod ladder;
pub mod page;
mod parts;
pub mod sibling;
mod verdict;

pub use advice::Advice;
pub use drift::{Drift, Movement, References, State};
pub use parts::{Part, Parts};
pub use verdict::{Confidence, Limit, Verdict};

use crate::barrier::Wait;
use crate::caveat::Caveat;
use crate::record::{DecodeStep, Line, Record, Step};
use crate::stats;
use crate::units::{Bytes, CpuId};
use crate::workload::Arm;
use crate::workload::Model;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where the time of a token went, for one model on one set of threads with one barrier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attribution {
    /// The model.
    pub model: String,
    /// Its quantisation.
    pub quantization: String,
    /// Number of threads.
    pub threads: u32,
    /// Their CPUs.
    pub cpus: Vec<CpuId>,
    /// Barrier algorithm.
    pub barrier: String,
    /// How its threads wait.
    pub wait: Wait,
    /// Whether an engine would take these threads by default.
    pub baseline: bool,
    /// Rounds that had every arm.
    pub rounds: usize,
    /// Tokens per second: the inverse of `full_ns`.
    pub tokens_per_s: Option<f64>,
    /// Weight bytes of one token.
    pub bytes_per_token: Bytes,
    /// Barrier points of one token.
    pub barriers_per_token: u64,
    /// The arm `full` over the middle half of the rounds, as the exact sum of the parts (each rounded to a nanosecond).
    pub full_ns: i64,
    /// The parts.
    pub parts: Parts,
    /// A barrier among threads that do nothing else (arm `barrier`), for comparison.
    pub idle_barrier_ns: Option<f64>,
    /// How many runs of an arm these numbers come from.
    pub runs: usize,
    /// What taints these numbers, each kind once.
    pub caveats: Vec<Tainted>,
    /// What it means.
    pub verdict: Verdict,
}

/// A kind of caveat among the runs behind an attribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tainted {
    /// How many runs have it.
    pub runs: usize,
    /// The worst of them.
    pub worst: Caveat,
}

impl Tainted {
    /// In words, where there are `runs` in all.
    pub fn among(&self, runs: usize) -> String {
        match self.runs {
            all if all == runs => self.worst.to_string(),
            1 => format!("in 1 of {runs} runs: {}", self.worst),
            some => format!("in {some} of {runs} runs, at worst: {}", self.worst),
        }
    }
}

/// What tells one replay from another. The roof belongs to all that share the first part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Workload {
    model: String,
    quantization: String,
    engine: String,
    slicing: String,
    placement: String,
}

/// One arm in one round.
type Arms<'a> = BTreeMap<u32, &'a DecodeStep>;

/// The arms of one configuration.
type Configuration<'a> = BTreeMap<Arm, Arms<'a>>;

/// The configurations of one workload, by their number in the record.
type Configurations<'a> = BTreeMap<u32, Configuration<'a>>;

fn group(record: &Record) -> BTreeMap<Workload, Configurations<'_>> {
    let mut groups: BTreeMap<Workload, Configurations<'_>> = BTreeMap::new();
    for line in &record.lines {
        let Line::Decode(step) = line else { continue };
        let workload = Workload {
            model: step.model.clone(),
            quantization: step.quantization.clone(),
            engine: step.engine.clone(),
            slicing: step.slicing.clone(),
            placement: step.placement.to_string(),
        };
        let configuration = groups.entry(workload).or_default().entry(step.configuration).or_default();
        configuration.entry(step.arm).or_default().insert(step.round, step);
    }
    groups
}

/// Time of one token.
fn time(step: &DecodeStep) -> Option<f64> {
    stats::median(&stats::unit_times(&step.step))
}

/// An attribution for each workload and set of threads that has all arms, sorted by name and threads.
pub fn attributions(record: &Record) -> Vec<Attribution> {
    let seed = record.header.seed;
    let mut list = Vec::new();
    for configurations in group(record).values() {
        for (number, arms) in configurations {
            let Some(measured) = parts::measure(arms, seed) else { continue };
            let Some(sample) = arms.get(&Arm::Full).and_then(|arm| arm.values().next()) else { continue };
            let steps: Vec<&DecodeStep> = arms.values().flat_map(BTreeMap::values).copied().collect();
            let mut attribution = Attribution {
                model: sample.model.clone(),
                quantization: sample.quantization.clone(),
                threads: sample.step.threads,
                cpus: sample.step.cpus.clone(),
                barrier: sample.barrier.clone(),
                wait: sample.wait,
                baseline: sample.baseline,
                rounds: measured.rounds.len(),
                tokens_per_s: (measured.full_ns > 0).then(|| 1e9 / measured.full_ns as f64),
                bytes_per_token: sample.bytes_per_token,
                barriers_per_token: sample.barriers_per_token,
                full_ns: measured.full_ns,
                parts: measured.parts,
                idle_barrier_ns: idle_barrier(arms, sample.barriers_per_token),
                runs: steps.len(),
                caveats: tainted(steps.iter().map(|step| &step.step)),
                verdict: Verdict::default(),
            };
            let advice =
                if sample.baseline { advice::advise(&attribution, configurations, *number, seed) } else { Vec::new() };
            attribution.verdict = verdict::judge(&attribution, &measured, &steps, seed, advice);
            list.push(attribution);
        }
    }
    let key =
        |attribution: &Attribution| (attribution.model.clone(), attribution.quantization.clone(), attribution.threads);
    list.sort_by_key(key);
    list
}

/// The attribution that a whole record is judged by: the model with experts at the baseline's threads; without one, any
/// model there.
pub fn overall(record: &Record) -> Option<Attribution> {
    let has_experts = |attribution: &Attribution| Model::find(&attribution.model).is_ok_and(|model| model.has_experts);
    let mut baselines: Vec<Attribution> =
        attributions(record).into_iter().filter(|attribution| attribution.baseline).collect();
    let index = baselines.iter().position(has_experts).unwrap_or(0);
    (index < baselines.len()).then(|| baselines.swap_remove(index))
}

fn idle_barrier(arms: &BTreeMap<Arm, Arms<'_>>, barriers: u64) -> Option<f64> {
    let times: Vec<f64> = arms.get(&Arm::Barrier)?.values().filter_map(|step| time(step)).collect();
    Some(stats::median(&times)? / barriers.max(1) as f64)
}

/// Each kind of caveat once, with the worst of its kind, whatever the order of lines.
pub fn tainted<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<Tainted> {
    let mut kinds: Vec<Tainted> = Vec::new();
    for step in steps {
        let mut in_step = Vec::new();
        for caveat in &step.caveats {
            let kind = std::mem::discriminant(caveat);
            let known = kinds.iter_mut().find(|known| std::mem::discriminant(&known.worst) == kind);
            let count = usize::from(!in_step.contains(&kind));
            in_step.push(kind);
            match known {
                None => kinds.push(Tainted { runs: count, worst: caveat.clone() }),
                Some(known) => {
                    known.runs += count;
                    if is_worse(caveat, &known.worst) {
                        known.worst = caveat.clone();
                    }
                }
            }
        }
    }
    kinds.sort_by_key(|tainted| tainted.worst.to_string());
    kinds
}

/// Whether `a` says more than `b` of the same kind; by text where there is no size, so that the order never matters.
fn is_worse(a: &Caveat, b: &Caveat) -> bool {
    let size = |caveat: &Caveat| match caveat {
        Caveat::Throttled { throttled_ns } => *throttled_ns as f64,
        Caveat::Stolen { share } | Caveat::Detours { share, .. } | Caveat::Preempted { share, .. } => *share,
        Caveat::Busy { load_1m } => *load_1m,
        Caveat::PagesMoved { migrated, collapsed, merged } => {
            *migrated as f64 + 512.0 * *collapsed as f64 + *merged as f64
        }
        Caveat::PagesElsewhere { share_there, .. } => -share_there,
        _ => 0.0,
    };
    match size(a).total_cmp(&size(b)) {
        std::cmp::Ordering::Equal => a.to_string() > b.to_string(),
        order => order.is_gt(),
    }
}

#[cfg(test)]
mod tests;
