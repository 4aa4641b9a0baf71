//! Fork and join: which threads are woken for a job, after how long without one.

use super::{Needs, Preset, Scope, barrier, standing_caveats};
use crate::caveat::Caveat;
use crate::machine::Machine;
use crate::units::{Bytes, CpuId};
use serde::Serialize;

/// Spin hints of a unit of llama.cpp's polling level (`--poll`, ggml-cpu.c, build b11434).
pub const HINTS: u64 = 1024 * 128;

/// Which jobs will be handed out.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// In the order they are taken.
    pub steps: Vec<Step>,
    /// Jobs of each.
    pub samples: u32,
}

/// One team, one polling level, one time without a job.
#[derive(Debug, Serialize)]
pub struct Step {
    /// One CPU a thread; the first hands out.
    pub cpus: Vec<CpuId>,
    /// How these CPUs are spread.
    pub spread: barrier::Spread,
    /// How long a thread polls before it sleeps, in units of [`HINTS`].
    pub poll: u32,
    /// Time without a job before each.
    pub idle_ns: u64,
    /// What is known to taint the number beforehand.
    pub caveats: Vec<Caveat>,
}

/// Plans jobs for the largest sets of a barrier plan's spreads: at once and after a pause, for threads that sleep at once and
/// for those that poll as long as llama.cpp's do by default.
pub fn plan(machine: &Machine, scope: &Scope, barriers: &barrier::Plan, samples: Option<u32>, preset: Preset) -> Plan {
    /// As `--poll` has it: none, and the default.
    const POLLS: [u32; 2] = [0, 50];
    /// Between two tokens: nothing, sampling a token, a slow client. Guesses.
    const IDLE: [u64; 3] = [0, 100_000, 5_000_000];
    let idle = if preset == Preset::Quick { &IDLE[..2] } else { &IDLE };
    let mut sets: Vec<(barrier::Spread, Vec<CpuId>)> = Vec::new();
    for step in &barriers.steps {
        let mut distinct = step.cpus.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < step.cpus.len() || step.cpus.len() < 2 || step.cpus.len() > scope.cpus.len() {
            continue;
        }
        match sets.iter_mut().find(|(spread, _)| *spread == step.spread) {
            Some((_, cpus)) if cpus.len() >= step.cpus.len() => {}
            Some((_, cpus)) => *cpus = step.cpus.clone(),
            None => sets.push((step.spread, step.cpus.clone())),
        }
    }
    let steps = sets.iter().flat_map(|(spread, cpus)| {
        let caveats = standing_caveats(machine, cpus);
        POLLS.iter().flat_map(move |poll| {
            let caveats = caveats.clone();
            idle.iter().map(move |idle_ns| Step {
                cpus: cpus.clone(),
                spread: *spread,
                poll: *poll,
                idle_ns: *idle_ns,
                caveats: caveats.clone(),
            })
        })
    });
    Plan { steps: steps.collect(), samples: samples.unwrap_or(if preset == Preset::Quick { 15 } else { 50 }) }
}

impl Plan {
    /// No memory to speak of; the time without jobs, and starting threads.
    pub fn needs(&self) -> Needs {
        /// Guess: start, pin and watch one thread, and hand out jobs to it.
        const START_S: f64 = 0.002;
        let one =
            |step: &Step| f64::from(self.samples + 2) * step.idle_ns as f64 * 1e-9 + START_S * step.cpus.len() as f64;
        Needs { memory_bytes: Bytes(0), estimated_s: self.steps.iter().map(one).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_set_of_every_spread_is_woken() {
        let machine = Machine::from_source("synthetic:pack:2 [numa] l3:2 core:4 pu:1").unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let central = crate::barrier::Algorithm::Central.into();
        let options = barrier::Options { algorithms: vec![central], ..barrier::Options::default() };
        let barriers = barrier::plan(&machine, &scope, &options).unwrap();
        let plan = plan(&machine, &scope, &barriers, None, Preset::Default);
        let threads = |spread| plan.steps.iter().filter(move |step| step.spread == spread).map(|step| step.cpus.len());
        assert_eq!(threads(barrier::Spread::All).collect::<Vec<_>>(), [16; 6]);
        assert_eq!(threads(barrier::Spread::L3).max(), Some(4));
        assert!(plan.needs().estimated_s > 50.0 * 0.005);
    }
}
