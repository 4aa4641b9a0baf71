//! What the harness itself costs: measured, recorded, never subtracted here.

use super::clock::Precision;
use super::team;
use super::{Context, Outcome};
use crate::error::Result;
use crate::record::{Line, OverheadStep, Step};
use crate::stats;
use crate::units::{CpuId, Nanos};
use std::hint::black_box;

/// Records the cost of reading the clock, and of a turn of the loop that barrier episodes are timed in.
///
/// # Errors
/// Only when an outcome cannot be handed over.
pub fn run(cpu: CpuId, precision: &Precision, context: &mut Context<'_>) -> Result<()> {
    if context.verify {
        return Ok(());
    }
    let clock = Step {
        threads: 1,
        samples_ns: precision.batches.iter().map(|batch| batch.0).collect(),
        units_per_sample: precision.reads_per_batch,
        ..Step::default()
    };
    emit("clock_read", clock, context)?;

    const TURNS: u64 = 1_000_000;
    let outcome = team::run(&[cpu], context.clock, |seat| {
        let mut samples = Vec::with_capacity(9);
        for _ in 0..samples.capacity() {
            let start = seat.now();
            for turn in 0..TURNS {
                black_box(turn);
            }
            samples.push(Nanos(seat.now().0 - start.0));
        }
        samples
    });
    match outcome {
        Ok(outcome) => {
            let empty = Step {
                threads: 1,
                cpus: vec![cpu],
                caveats: outcome.caveats,
                samples_ns: outcome.results[0].iter().map(|sample| sample.0).collect(),
                units_per_sample: TURNS,
                disturbance: outcome.disturbance,
                ..Step::default()
            };
            emit("empty_episode", empty, context)
        }
        Err(error) => (context.outcome)(Outcome::Failed(error)),
    }
}

fn emit(what: &str, step: Step, context: &mut Context<'_>) -> Result<()> {
    let summary = stats::latency(&step);
    let line = Line::Overhead(OverheadStep { step, what: what.to_owned(), summary });
    (context.outcome)(Outcome::Measured(Box::new(line)))
}
