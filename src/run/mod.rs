//! Runs a plan: starts and pins threads, starts other programs, places memory, reads the clock. It decides nothing that the plan left open
//! without a rule in the plan.

mod activation;
mod affinity;
pub mod atomic;
pub mod barrier;
mod calibrate;
mod child;
pub mod clock;
pub mod decode;
pub mod detour;
pub mod dispatch;
pub mod engine;
mod header;
pub mod latency;
pub mod loaded;
pub mod memory_latency;
pub mod openmp;
pub mod overhead;
pub mod page;
pub mod peer;
pub mod reference;
pub mod sibling;
mod spans;
pub mod stream;
mod sweep;
pub mod team;
mod watch;

use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::machine::IsaSet;
use crate::plan::Suite;
use crate::record::Line;
use crate::units::Nanos;
pub use header::header;
pub use sweep::sweep;

use clock::Clock;
use reference::Reference;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Something that came of a plan.
#[derive(Debug)]
pub enum Outcome {
    /// A step begins: what it is, for whoever watches.
    Starting(String),
    /// A step was measured.
    Measured(Box<Line>),
    /// A step was not measured, for a reason that is nobody's fault.
    LeftOut(LeftOut),
    /// A step failed: its check, or something the system refused. The run goes on.
    Failed(Error),
}

/// What every runner is given besides its plan.
pub struct Context<'a> {
    /// The common clock.
    pub clock: Clock,
    /// When to stop early.
    pub stop: Stop<'a>,
    /// Takes what comes of the plan, in order, as soon as it is there. An error from it (record not writable) ends the run.
    pub outcome: &'a mut dyn FnMut(Outcome) -> Result<()>,
    /// Smallest step of the clock.
    pub clock_step: Nanos,
    /// Check every step once and time nothing.
    pub verify: bool,
}

/// Runs all parts of a suite in order.
///
/// # Errors
/// Only when an outcome cannot be handed over; what fails inside is an [`Outcome::Failed`].
pub fn run(suite: &Suite, isa: &IsaSet, precision: &clock::Precision, context: &mut Context<'_>) -> Result<()> {
    for left in &suite.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    if let Some(cpu) = suite.cpus.first() {
        overhead::run(*cpu, precision, context)?;
    }
    let mut reference = Reference::prepare(suite.reference.as_ref(), isa, context)?;
    if let Some(plan) = &suite.latency {
        reference.take(context)?;
        latency::run(plan, context)?;
    }
    if let Some(plan) = &suite.sibling {
        sibling::run(plan, context)?;
    }
    if let Some(plan) = &suite.memory_latency {
        reference.take(context)?;
        memory_latency::run(plan, context)?;
    }
    if let Some(plan) = &suite.page {
        page::run(plan, context)?;
    }
    if let Some(plan) = &suite.loaded {
        loaded::run(plan, isa, context)?;
    }
    if let Some(plan) = &suite.barrier {
        reference.take(context)?;
        barrier::run(plan, context)?;
    }
    if let Some(plan) = &suite.dispatch {
        dispatch::run(plan, context)?;
    }
    if let Some(plan) = &suite.atomic {
        atomic::run(plan, context)?;
    }
    if let Some(plan) = &suite.detour {
        detour::run(plan, context)?;
    }
    if let Some(plan) = &suite.stream {
        reference.take(context)?;
        stream::run(plan, isa, &mut reference, context)?;
    }
    if let Some(plan) = &suite.experts {
        reference.take(context)?;
        let part = if context.verify { decode::verify } else { decode::run };
        part(plan, isa, context)?;
    }
    reference.take(context)
}

/// When to stop before the plan's end.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// The signal that was received, 0 for none.
    pub signal: &'a AtomicUsize,
    /// Time by the run's clock after which nothing new starts.
    pub deadline: Option<Nanos>,
}

impl Stop<'_> {
    /// Whether a signal was received.
    pub fn is_interrupted(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Why to stop now, if at all.
    pub fn reason(&self, now: Nanos) -> Option<&'static str> {
        if self.is_interrupted() {
            return Some("interrupted");
        }
        self.deadline.filter(|deadline| now >= *deadline).map(|_| "time budget")
    }
}

impl Context<'_> {
    /// Why to stop now, if at all.
    pub fn stop_reason(&self) -> Option<&'static str> {
        self.stop.reason(self.clock.now())
    }

    /// A caveat when fewer samples were taken than planned: why to stop now, or `otherwise`.
    fn cut_short(&self, samples: u32, planned: u32, otherwise: &str) -> Option<Caveat> {
        let reason = || self.stop_reason().unwrap_or(otherwise).to_owned();
        (samples < planned).then(|| Caveat::CutShort { samples, planned, reason: reason() })
    }

    /// Whether it is too late for `what`; says so if it is.
    pub fn leave_out(&mut self, what: &str) -> Result<bool> {
        let Some(reason) = self.stop_reason() else { return Ok(false) };
        (self.outcome)(Outcome::LeftOut(LeftOut { what: what.to_owned(), reason: reason.to_owned() }))?;
        Ok(true)
    }
}
