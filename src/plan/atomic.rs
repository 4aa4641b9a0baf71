//! Contended atomics: how many threads count on one line, by which operation.

use super::{Needs, Preset, Scope, standing_caveats};
use crate::caveat::Caveat;
use crate::machine::Machine;
use crate::units::{Bytes, CpuId};
use serde::Serialize;

/// How a thread takes the next number from a shared counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// One fetch-and-add.
    FetchAdd,
    /// A load and compare-and-swap, again with the value seen until it succeeds.
    CompareAndSwap,
}

impl Operation {
    /// Both.
    pub const ALL: [Operation; 2] = [Operation::FetchAdd, Operation::CompareAndSwap];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Operation::FetchAdd => "fetch_add",
            Operation::CompareAndSwap => "compare_and_swap",
        }
    }
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Samples of each step.
    pub samples: Option<u32>,
    /// How thorough.
    pub preset: Preset,
}

/// Which steps will be measured.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// In the order they are taken.
    pub steps: Vec<Step>,
    /// Samples of each.
    pub samples: u32,
    /// A sample lasts this long at least.
    pub sample_least_ns: u64,
}

/// One operation on one set of threads.
#[derive(Debug, Serialize)]
pub struct Step {
    /// The operation.
    pub operation: Operation,
    /// One CPU a thread.
    pub cpus: Vec<CpuId>,
    /// What is known to taint the number beforehand.
    pub caveats: Vec<Caveat>,
}

/// Plans both operations by the natural numbers of threads.
pub fn plan(machine: &Machine, scope: &Scope, options: &Options) -> Plan {
    let quick = options.preset == Preset::Quick;
    let counts = scope.natural_threads(&machine.topology, quick);
    let steps = counts.into_iter().flat_map(|threads| {
        Operation::ALL.map(|operation| {
            let cpus = scope.compact(threads);
            Step { operation, caveats: standing_caveats(machine, &cpus), cpus }
        })
    });
    Plan {
        steps: steps.collect(),
        samples: options.samples.unwrap_or(if quick { 5 } else { 15 }),
        sample_least_ns: 2_000_000,
    }
}

impl Plan {
    /// A page; time from the sample length and what starting threads costs.
    pub fn needs(&self) -> Needs {
        /// Guess: start, pin and watch one thread.
        const START_S: f64 = 0.000_5;
        let sampling = f64::from(self.samples + 2) * self.sample_least_ns as f64 * 1.5e-9;
        let estimated_s = self.steps.iter().map(|step| sampling + START_S * step.cpus.len() as f64).sum();
        Needs { memory_bytes: Bytes(4096), estimated_s }
    }
}
