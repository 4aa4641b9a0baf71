//! Reference steps: the same short read and the same short exchange of flags, again and again through a run.

use super::team::{self, TeamOutcome};
use super::{Context, Outcome, latency, spans};
use crate::error::{Error, Result};
use crate::kernel::{self, Kernel, Operands, Operation};
use crate::machine::IsaSet;
use crate::memory::{Buffer, Line, Pages, fill_words};
use crate::plan::latency::Protocol;
use crate::plan::reference::{PairLatency, Plan, Read};
use crate::record::{Disturbance, Line as RecordLine, ReferenceStep, Repeated, Step};
use crate::stats;
use crate::units::{Nanos, Threads};
use std::ops::Range;
use std::sync::Mutex;

/// A reference so soon after another one would tell nothing new.
const TOO_SOON: Nanos = Nanos(100_000_000);

/// The reference steps of a run, with the array that they read. Without a plan they are silent.
#[derive(Debug)]
pub struct Reference<'a> {
    plan: Option<&'a Plan>,
    array: Option<Array>,
    last: Option<Nanos>,
}

/// An array that was touched once, by the threads that read it.
#[derive(Debug)]
struct Array {
    kernel: Kernel,
    buffer: Buffer,
    /// The checksum of each thread's part.
    sums: Vec<u64>,
}

impl<'a> Reference<'a> {
    /// Reserves and touches the array.
    ///
    /// # Errors
    /// Only when an outcome cannot be handed over.
    pub fn prepare(plan: Option<&'a Plan>, isa: &IsaSet, context: &mut Context<'_>) -> Result<Reference<'a>> {
        let mut reference = Reference { plan: plan.filter(|_| !context.verify), array: None, last: None };
        let Some(plan) = reference.plan else { return Ok(reference) };
        for left in &plan.left_out {
            (context.outcome)(Outcome::LeftOut(left.clone()))?;
        }
        if reference.stopped(context)? {
            return Ok(reference);
        }
        if let Some(read) = &plan.read {
            let threads = Threads(read.cpus.len() as u32);
            let what = format!("an array of {} for reference steps, touched by {threads}", read.array_bytes);
            (context.outcome)(Outcome::Starting(what))?;
            match Array::touch(read, isa, context) {
                Ok(array) => reference.array = Some(array),
                Err(error) => (context.outcome)(Outcome::Failed(error))?,
            }
        }
        Ok(reference)
    }

    /// Takes a reference, unless one was taken just now.
    ///
    /// # Errors
    /// Only when an outcome cannot be handed over.
    pub fn take(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.take_after(TOO_SOON, context)
    }

    /// Takes a reference if the last one is as long ago as the plan says.
    ///
    /// # Errors
    /// Only when an outcome cannot be handed over.
    pub fn take_if_due(&mut self, context: &mut Context<'_>) -> Result<()> {
        let every = self.plan.map_or(0, |plan| plan.every_ns);
        self.take_after(Nanos(every), context)
    }

    fn take_after(&mut self, least: Nanos, context: &mut Context<'_>) -> Result<()> {
        let Some(plan) = self.plan else { return Ok(()) };
        if self.last.is_some_and(|last| context.clock.now().0 - last.0 < least.0) || self.stopped(context)? {
            return Ok(());
        }
        if let (Some(read), Some(array)) = (&plan.read, &self.array) {
            match array.read(read, context) {
                Ok(step) => measured(step, context)?,
                Err(error) => {
                    (context.outcome)(Outcome::Failed(error))?;
                    self.array = None;
                }
            }
        }
        if let Some(pair) = &plan.pair {
            match exchange(pair, context) {
                Ok(step) => step.map_or(Ok(()), |step| measured(step, context))?,
                Err(error) => (context.outcome)(Outcome::Failed(error))?,
            }
        }
        self.last = Some(context.clock.now());
        Ok(())
    }

    /// Whether it is too late for more; says so once.
    fn stopped(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let stopped = context.leave_out("further reference steps")?;
        if stopped {
            self.plan = None;
        }
        Ok(stopped)
    }
}

fn measured(step: ReferenceStep, context: &mut Context<'_>) -> Result<()> {
    (context.outcome)(Outcome::Measured(Box::new(RecordLine::Reference(step))))
}

/// One thread's lines of an array.
fn part(read: &Read, thread: usize) -> Range<usize> {
    let (lines, threads) = ((read.array_bytes.0 / Line::BYTES) as usize, read.cpus.len());
    lines * thread / threads..lines * (thread + 1) / threads
}

impl Array {
    fn touch(read: &Read, isa: &IsaSet, context: &Context<'_>) -> Result<Array> {
        let kernel = Kernel::best(Operation::Read, None, isa)
            .ok_or_else(|| Error::refused("read an array", "no kernel reads here", "report this as a bug"))?;
        // No number without a check in this process.
        kernel::check(kernel)?;
        let mut buffer = Buffer::reserve(read.array_bytes, Pages::Default)?;
        let mut rest = buffer.lines_mut();
        let parts: Vec<Mutex<&mut [Line]>> = (0..read.cpus.len())
            .map(|thread| Mutex::new(rest.split_off_mut(..part(read, thread).len()).unwrap_or_default()))
            .collect();
        let outcome = team::run(&read.cpus, context.clock, |seat| {
            let mut lines = parts[seat.index].lock().unwrap_or_else(|poison| poison.into_inner());
            fill_words(&mut lines, part(read, seat.index).start as u64, 1);
            kernel::expected_sum(&lines)
        })?;
        drop(parts);
        Ok(Array { kernel, buffer, sums: outcome.results })
    }

    /// Reads all of it, a few times.
    fn read(&self, read: &Read, context: &Context<'_>) -> Result<ReferenceStep> {
        let at = context.clock.now();
        let samples = read.samples as usize + 1;
        let mut outcome = team::run(&read.cpus, context.clock, |seat| {
            let mut operands = Operands { dst: &mut [], a: &self.buffer.lines()[part(read, seat.index)], b: &[] };
            let mut spans = Vec::with_capacity(samples);
            let mut right = true;
            for _ in 0..samples {
                seat.meet();
                let start = seat.now();
                let sum = self.kernel.run(&mut operands, read.passes);
                spans.push((start, seat.now()));
                right &= sum.is_ok_and(|sum| sum == self.sums[seat.index]);
            }
            (spans, right)
        })?;
        if outcome.results.iter().any(|(_, right)| !right) {
            return Err(Error::refused(
                format!("trust {} in reference steps", self.kernel.row().name),
                "its checksum is not that of the array",
                "none is taken any more; run --verify, and suspect the hardware if that passes",
            ));
        }
        let per_sample = spans::by_sample(outcome.results.iter().map(|(spans, _)| spans));
        outcome.caveats.splice(0..0, read.caveats.iter().cloned());
        let mut step = Step {
            threads: read.cpus.len() as u32,
            cpus: read.cpus.clone(),
            samples_ns: per_sample.iter().map(spans::elapsed).collect(),
            units_per_sample: read.passes,
            warmup_samples: 1,
            ..around(outcome)
        };
        step.caveats.extend(spans::too_short(&step, context.clock_step));
        let counted_bytes = Some(Operation::Read.counted_bytes(read.array_bytes));
        Ok(ReferenceStep {
            summary: stats::reference(&step, counted_bytes),
            step,
            what: Repeated::Read,
            at_ns: at.0,
            kernel: Some(self.kernel.row().name.to_owned()),
            array_bytes: Some(read.array_bytes),
            counted_bytes,
            protocol: None,
            path: None,
        })
    }
}

/// Hands flags to and fro for a short time.
fn exchange(plan: &PairLatency, context: &Context<'_>) -> Result<Option<ReferenceStep>> {
    let at = context.clock.now();
    let how = (plan.samples, plan.sample_least_ns);
    let Some(latency) = latency::measure(&plan.pair, Protocol::Flags, how, context)? else { return Ok(None) };
    let mut step = latency.step;
    // From one-way trips to round trips.
    step.units_per_sample /= 2;
    step.disturbance.detours.clear();
    Ok(Some(ReferenceStep {
        summary: stats::reference(&step, None),
        step,
        what: Repeated::PairLatency,
        at_ns: at.0,
        kernel: None,
        array_bytes: None,
        counted_bytes: None,
        protocol: Some(latency.protocol),
        path: Some("round_trip".to_owned()),
    }))
}

/// A step with what happened around it, less the detours: with hundreds of threads they would fill the record.
fn around<R>(outcome: TeamOutcome<R>) -> Step {
    let disturbance = Disturbance { detours: Vec::new(), ..outcome.disturbance };
    Step { caveats: outcome.caveats, disturbance, ..Step::default() }
}
