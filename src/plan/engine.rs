//! A real engine beside the replay of the same file: on which threads, for how many tokens, how often.

use super::Needs;
use super::experts::{self, Configuration};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::units::Nanos;
use crate::workload::{Arm, Slicing};
use serde::Serialize;
use std::path::PathBuf;

/// Tokens that the engine writes in a sample, and the replay's `full` arm as many: enough that what happens once a sample
/// does not count, few enough that both see the same mood of the machine.
const TOKENS: u64 = 32;

/// The engine, as it told when it was asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// The model's file.
    pub file: PathBuf,
    /// Whether it can be told to repack weights or not.
    pub can_repack: bool,
    /// Rounds.
    pub rounds: u32,
}

/// Rounds of the engine and the replay in turn.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// The model's file.
    pub file: PathBuf,
    /// What the program is told, besides the number of threads.
    pub arguments: Vec<String>,
    /// Tokens of a sample.
    pub tokens: u64,
    /// Rounds.
    pub rounds: u32,
    /// Our side.
    pub experts: experts::Plan,
}

impl Plan {
    /// Plans a comparison; `replay` names the file as its only model.
    ///
    /// # Errors
    /// Those of [`experts::Plan::new`]; a usage error for slices that the program cannot be told to make.
    pub fn new(machine: &Machine, options: &Options, replay: &experts::Options) -> Result<Plan> {
        let repacked = replay.slicing == Slicing::Repacked;
        if repacked && !options.can_repack {
            return Err(Error::usage(
                format!("have {} repack its weights", options.program.display()),
                "its --help lists no --repack",
                "leave out --slicing, or name a newer llama-bench",
            ));
        }
        let mut experts = experts::Plan::new(machine, replay)?;
        // Barriers that the engine does not have are no prediction of it.
        experts.configurations.retain(|configuration| configuration.arms.contains(&Arm::Read));
        (experts.rounds.least, experts.rounds.most) = (options.rounds, options.rounds);
        let text = |text: &str| text.to_owned();
        let mut arguments = vec![text("-m"), options.file.display().to_string()];
        arguments.extend(["-p", "0", "-n", &TOKENS.to_string(), "-r", "1", "-o", "json"].map(text));
        if options.can_repack {
            arguments.extend(["--repack", if repacked { "1" } else { "0" }].map(text));
        }
        Ok(Plan {
            program: options.program.clone(),
            file: options.file.clone(),
            arguments,
            tokens: TOKENS,
            rounds: options.rounds,
            experts,
        })
    }

    /// The thread counts, each with all arms of the replay.
    pub fn configurations(&self) -> &[Configuration] {
        &self.experts.configurations
    }

    /// Memory of the weights twice, ours and the engine's, and a guess of the time of all rounds.
    pub fn needs(&self) -> Needs {
        let ours = self.experts.needs();
        let file_bytes = self.experts.models.iter().map(|model| model.layout.resident_bytes.0).sum::<u64>();
        let token_s = self.experts.models.iter().map(|model| model.bytes_per_token.0 as f64 / ASSUMED_BYTES_PER_S);
        let sample_s = ASSUMED_START.0 as f64 / 1e9 + 2.0 * TOKENS as f64 * token_s.sum::<f64>();
        let rounds = f64::from(self.rounds) * self.configurations().len() as f64;
        let memory_bytes = crate::units::Bytes(ours.memory_bytes.0 + file_bytes);
        Needs { memory_bytes, estimated_s: rounds * sample_s }
    }
}

/// Guesses, for an estimate: how fast a token's bytes are read, and how long the engine takes to open a file.
const ASSUMED_BYTES_PER_S: f64 = 20e9;
const ASSUMED_START: Nanos = Nanos(1_000_000_000);
