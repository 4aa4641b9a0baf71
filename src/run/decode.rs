//! Replays tokens: the same reads, barriers and activation traffic as an engine's, arm by arm.

mod arithmetic;
mod execute;
mod fill;
mod program;
mod trace;
mod turn;

pub use turn::{Turn, in_turn};

use super::activation::Activations;
use super::openmp::Runtime;
use super::team::TeamOutcome;
use super::{Context, Outcome};
use crate::barrier::{Wait, WithBarrier};
use crate::caveat::{Caveat, LeftOut};
use crate::error::{Error, Result};
use crate::kernel::dot::Flavour;
use crate::kernel::{Kernel, Operation, Reader};
use crate::machine::IsaSet;
use crate::memory::{Buffer, Line as MemoryLine};
use crate::plan::Subject;
use crate::plan::experts::{Configuration, ModelPlan, Plan};
use crate::record::{DecodeStep, Line, Step, ThreadSpan};
use crate::units::{self, CpuId, Nanos};
use crate::workload::Arm;
use crate::workload::decode::Token;
use arithmetic::{Dots, Vectors};
use execute::{ArmRun, Tally, ThreadResult};
use program::{Parts, Picks, Source};
use std::collections::BTreeMap;

/// Tokens from one round's picks to the next's. Odd, so that all of a table of 2ⁿ tokens come up.
const ROUND_STRIDE: usize = 17;
/// Most tokens in a sample, whatever the clock says: 20 ms of a token of 2 µs, shorter than any in the catalogue.
const TOKENS_MOST: u64 = 10_000;
/// Most barriers of which each thread keeps stamps in a traced sample, for memory's sake: 1 MiB a thread.
const STAMPS_MOST: u64 = 1 << 15;
/// Longest that nothing is said while rounds go on.
const SILENCE: Nanos = Nanos(10_000_000_000);
/// Pages whose place is asked for in a check.
const PLACEMENT_SAMPLE: usize = 256;

/// Measures a plan.
///
/// # Errors
/// Only when `context.outcome` fails; what fails in measuring becomes [`Outcome::Failed`].
pub fn run(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<()> {
    for left_out in &plan.left_out {
        (context.outcome)(Outcome::LeftOut(left_out.clone()))?;
    }
    if let Some(reason) = context.stop_reason() {
        let left_out = |model: &ModelPlan| LeftOut { what: title(model), reason: reason.into() };
        return plan.models.iter().try_for_each(|model| (context.outcome)(Outcome::LeftOut(left_out(model))));
    }
    let Some(mut session) = prepare(plan, isa, context)? else { return Ok(()) };
    for (index, model) in plan.models.iter().enumerate() {
        if let Some(reason) = context.stop_reason() {
            (context.outcome)(Outcome::LeftOut(LeftOut { what: title(model), reason: reason.into() }))?;
            continue;
        }
        (context.outcome)(Outcome::Starting(starting(model)))?;
        let replay = Replay::new(model, plan.seed.wrapping_add(index as u64));
        if let Err(error) = session.fill(&replay, context) {
            (context.outcome)(Outcome::Failed(error))?;
            continue;
        }
        session.measure(&replay, context)?;
    }
    Ok(())
}

/// Runs every configuration once, checked and untimed: sums and bytes of one token against the plain reader.
///
/// # Errors
/// As [`run`].
pub fn verify(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<()> {
    let Some(mut session) = prepare(plan, isa, context)? else { return Ok(()) };
    for model in &plan.models {
        let replay = Replay::new(model, plan.seed);
        let filled = session.fill(&replay, context).and_then(|()| session.expected(&replay));
        let expected = match filled {
            Ok(expected) => expected,
            Err(error) => {
                (context.outcome)(Outcome::Failed(error))?;
                continue;
            }
        };
        for configuration in &plan.configurations {
            if let Some(reason) = context.stop_reason() {
                let left_out = LeftOut { what: format!("check of {}", title(model)), reason: reason.into() };
                return (context.outcome)(Outcome::LeftOut(left_out));
            }
            let what = format!("{}, {}", title(model), describe(configuration.into()));
            let roof = || session.checked_arm(&replay, configuration.into(), Arm::Roof, context, expected);
            let checked = session.checked(&replay, configuration, context, expected).and_then(|_| roof());
            (context.outcome)(match checked {
                Ok(_) => Outcome::Starting(format!("checked {what}: bytes, checksum and products as by one thread")),
                Err(error) => Outcome::Failed(error),
            })?;
        }
    }
    Ok(())
}

fn title(model: &ModelPlan) -> String {
    format!("decode {} {}", model.model, model.quantization)
}

fn starting(model: &ModelPlan) -> String {
    let layout = &model.layout;
    format!(
        "{}: {} and {} barriers a token, {} resident",
        title(model),
        model.bytes_per_token,
        model.barriers_per_token,
        layout.resident_bytes
    )
}

fn describe(threads: Threads<'_>) -> String {
    let Threads { cpus, barrier, wait } = threads;
    format!("{}, barrier {} ({wait})", units::Threads(cpus.len() as u32), barrier.name())
}

/// Memory and kernels, the same for all models.
struct Session<'a> {
    plan: &'a Plan,
    arena: Buffer,
    reader: Reader,
    /// The plain reader, which checks the other.
    oracle: Reader,
    /// Multiplies as the engine does.
    dots: Dots,
    /// That the placement could not be asked for.
    bind_caveat: Option<Caveat>,
}

/// A model, ready to be replayed.
struct Replay<'a> {
    model: &'a ModelPlan,
    places: Vec<Option<u64>>,
    picks: Picks,
    activations: Activations,
    seed: u64,
}

/// What the threads of one run are.
#[derive(Clone, Copy)]
struct Threads<'a> {
    cpus: &'a [CpuId],
    barrier: &'a Subject,
    wait: Wait,
}

impl<'a> From<&'a Configuration> for Threads<'a> {
    fn from(configuration: &'a Configuration) -> Self {
        let Configuration { cpus, barrier, wait, .. } = configuration;
        Threads { cpus, barrier, wait: *wait }
    }
}

/// What all threads together must take of one token's weights.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// By reading.
    read: Tally,
    /// By multiplying, and reading where there is no kernel.
    dot: Tally,
}

impl Expected {
    /// Of an arm; `None` where it leaves weights alone.
    fn of(&self, arm: Arm) -> Option<Tally> {
        let parts = Parts::of(arm);
        parts.streams.then_some(if parts.dots { self.dot } else { self.read })
    }
}

impl<'a> Replay<'a> {
    fn new(model: &'a ModelPlan, seed: u64) -> Replay<'a> {
        Replay {
            model,
            places: model.layout.places(&model.token),
            picks: Picks::new(&model.token, seed),
            activations: Activations::new(program::activation_lines(&model.token)),
            seed,
        }
    }
}

/// Reserves, binds and fills the arena. `None` when that failed, which has been said.
fn prepare<'a>(plan: &'a Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<Option<Session<'a>>> {
    if plan.models.is_empty() {
        return Ok(None);
    }
    let reader = |name| Kernel::find(name).ok().and_then(|row| Kernel::new(row, isa).ok()).and_then(Kernel::reader);
    let best = Kernel::best(Operation::Read, None, isa).and_then(Kernel::reader);
    let (Some(reader), Some(oracle)) = (best, reader("read_rust")) else {
        let error = Error::refused("read weights", "no read kernel can run here", "allow a higher --isa-max");
        (context.outcome)(Outcome::Failed(error))?;
        return Ok(None);
    };
    let arena = match Buffer::reserve(plan.arena_bytes, plan.pages) {
        Ok(arena) => arena,
        Err(error) => {
            (context.outcome)(Outcome::Failed(error))?;
            return Ok(None);
        }
    };
    let refused = arena.bind(&plan.placement).err();
    let bind_caveat = refused.map(|error| Caveat::PlacementUnverified { reason: error.to_string() });
    let dots = match Dots::new(Flavour::Engine, isa, plan.models.iter().map(|model| &model.token)) {
        Ok(dots) => dots,
        Err(error) => {
            (context.outcome)(Outcome::Failed(error))?;
            return Ok(None);
        }
    };
    Ok(Some(Session { plan, arena, reader, oracle, dots, bind_caveat }))
}

impl<'a> Session<'a> {
    /// Gives the arena a model's weights, touched by the threads of the widest set.
    fn fill(&mut self, replay: &Replay<'_>, context: &Context<'_>) -> Result<()> {
        let Some(cpus) = self.plan.roof.candidates.last() else { return Ok(()) };
        fill::fill(replay, cpus, self.arena.lines_mut(), context.clock, context.stop)
    }

    /// One token by this thread alone, on whole matrices: by the plain reader, and by the kernels.
    fn expected(&self, replay: &Replay<'_>) -> Result<Expected> {
        let lines = self.arena.lines();
        let token = &replay.model.token;
        let vectors = Vectors::new(token, &self.dots)?;
        let mut expected = Expected { read: Tally::default(), dot: Tally::default() };
        for (phase, range) in program::whole_ranges(token, &replay.places, &replay.picks, 0) {
            let lines = &lines[range];
            expected.read.read(lines, self.oracle);
            let phase = &token.phases[phase];
            let Some(weight) = &phase.weight else { continue };
            match self.dots.multiply(weight).filter(|_| phase.is_matmul()) {
                None => expected.dot.read(lines, self.oracle),
                Some(multiply) => {
                    let bytes = &MemoryLine::bytes(lines)[..weight.matrix_bytes() as usize];
                    let sum = multiply.rows(bytes, weight.row_bytes as usize, &vectors).unwrap_or(0);
                    expected.dot = expected.dot.add(Tally { sum, bytes: bytes.len() as u64 });
                }
            }
        }
        Ok(expected)
    }

    /// Runs one arm.
    fn arm(
        &self,
        replay: &Replay<'_>,
        threads: Threads<'_>,
        arm: Arm,
        (first_token, tokens): (usize, u64),
        context: &Context<'_>,
    ) -> Result<TeamOutcome<ThreadResult>> {
        let run = ArmRun {
            cpus: threads.cpus,
            clock: context.clock,
            arena: self.arena.lines(),
            reader: self.reader,
            activations: &replay.activations,
            source: Source {
                token: &replay.model.token,
                places: &replay.places,
                slicing: self.plan.slicing,
                dots: &self.dots,
            },
            picks: &replay.picks,
            parts: Parts::of(arm),
            long_slices: arm == Arm::Roof,
            traced: arm == Arm::Traced,
            first_token,
            tokens,
        };
        match threads.barrier {
            Subject::Row(algorithm) => algorithm.with(&self.plan.caches.seating(threads.cpus, threads.wait), run),
            // The runtime makes the thread that asks for a team its first member, and keeps the others for that thread's next.
            Subject::OpenMp(runtime) => Runtime::open(*runtime).and_then(|runtime| by_first_member(runtime, run)),
            Subject::Plugin(plugin) => plugin.barrier(threads.cpus.len()).and_then(|barrier| run.call(&barrier)),
            Subject::Given(name) => Err(Error::usage(
                format!("replay with the barrier {name}"),
                "it belongs to another program",
                "name one of `membar barrier --list`",
            )),
        }
    }

    /// Runs token 0 once for each arm, compares what was streamed with the plain reader, and returns the time of each.
    fn checked(
        &self,
        replay: &Replay<'_>,
        configuration: &Configuration,
        context: &Context<'_>,
        expected: Expected,
    ) -> Result<Vec<Nanos>> {
        let mut times = Vec::with_capacity(configuration.arms.len());
        for &arm in &configuration.arms {
            times.push(self.checked_arm(replay, configuration.into(), arm, context, expected)?);
        }
        Ok(times)
    }

    /// Runs token 0 once in one arm, compares what was streamed with the plain reader, and returns its time.
    fn checked_arm(
        &self,
        replay: &Replay<'_>,
        threads: Threads<'_>,
        arm: Arm,
        context: &Context<'_>,
        expected: Expected,
    ) -> Result<Nanos> {
        let outcome = self.arm(replay, threads, arm, (0, 1), context)?;
        let seen = tally(&outcome.results);
        if let Some(expected) = expected.of(arm).filter(|expected| *expected != seen) {
            return Err(Error::refused(
                format!("trust {} ({}), arm {}", title(replay.model), describe(threads), arm.name()),
                format!(
                    "one token took {} bytes of weights with the sum {:#x}, and one thread alone {} bytes with {:#x}",
                    seen.bytes, seen.sum, expected.bytes, expected.sum
                ),
                "report this as a bug; nothing was recorded for this model",
            ));
        }
        Ok(elapsed(&outcome.results))
    }

    /// The fastest reader among the roof's candidates, and its best time for a token.
    fn roof(
        &self,
        replay: &Replay<'_>,
        threads: Threads<'_>,
        context: &Context<'_>,
        expected: Expected,
    ) -> Result<(&'a [CpuId], Nanos)> {
        let rule = &self.plan.roof;
        let mut best: (&[CpuId], Nanos) = (&[], Nanos(u64::MAX));
        for _ in 0..rule.trials.max(1) {
            for cpus in &rule.candidates {
                let time = self.checked_arm(replay, Threads { cpus, ..threads }, Arm::Roof, context, expected)?;
                if time < best.1 {
                    best = (cpus, time);
                }
            }
        }
        Ok(best)
    }

    /// Checks, finds sample sizes and the roof, then runs the rounds of one model.
    fn measure(&self, replay: &Replay<'_>, context: &mut Context<'_>) -> Result<()> {
        let plan = self.plan;
        let mut blocks = match self.blocks(replay, context) {
            Ok(Some(blocks)) => blocks,
            Ok(None) => return self.stopped(replay, 0, context),
            Err(error) => return (context.outcome)(Outcome::Failed(error)),
        };
        let mut random = fastrand::Rng::with_seed(replay.seed);
        let start = context.clock.now();
        let mut said = start;
        let mut last = Round::default();
        for round in 0..plan.rounds.most {
            let over = context.clock.now().0 - start.0 >= plan.rounds.time_per_model.0;
            if over && round >= plan.rounds.least {
                break;
            }
            if context.clock.now().0 - said.0 > SILENCE.0 {
                said = context.clock.now();
                let what = format!("{}, round {} of {} or more", title(replay.model), round + 1, plan.rounds.least);
                (context.outcome)(Outcome::Starting(what))?;
            }
            last = Round::new(round, self.placement(replay));
            random.shuffle(&mut blocks);
            for block in &mut blocks {
                random.shuffle(block);
                if !self.run_block(replay, block, &mut last, context)? {
                    return Ok(());
                }
            }
        }
        self.keeps_its_place(replay, &last, context)
    }

    /// What a round runs, checked once. Arms that are compared with each other stand in one block and run back to back: all
    /// arms of a thread count, and with the baseline's the changes that were planned for its threads. `None` when stopped.
    fn blocks(&self, replay: &Replay<'_>, context: &Context<'_>) -> Result<Option<Vec<Vec<Job<'a>>>>> {
        let plan = self.plan;
        let expected = self.expected(replay)?;
        let mut blocks: Vec<Vec<Job<'a>>> = Vec::new();
        let Some(baseline) = plan.configurations.iter().find(|configuration| configuration.baseline) else {
            return Ok(Some(blocks));
        };
        let (roof_cpus, roof_time) = self.roof(replay, baseline.into(), context, expected)?;
        let mut changes = Vec::new();
        for (index, configuration) in plan.configurations.iter().enumerate() {
            if context.stop_reason().is_some() {
                return Ok(None);
            }
            let times = self.checked(replay, configuration, context, expected)?;
            // The arms that are subtracted from each other have the same tokens; the fastest of them must last long enough.
            let streaming = configuration.arms.iter().zip(&times).filter(|(arm, _)| **arm != Arm::Barrier);
            let fastest = streaming.map(|(_, time)| *time).min().unwrap_or(Nanos(1));
            let job = |arm: Arm, time: Nanos| {
                let threads = match arm {
                    Arm::Roof => Threads { cpus: roof_cpus, ..configuration.into() },
                    _ => configuration.into(),
                };
                Job { configuration: index as u32, threads, arm, tokens: self.tokens(time), of: configuration }
            };
            let mut jobs: Vec<Job<'a>> = Vec::new();
            for (arm, time) in configuration.arms.iter().zip(&times) {
                let mut job = job(*arm, if *arm == Arm::Barrier { *time } else { fastest });
                if *arm == Arm::Traced {
                    let most = STAMPS_MOST / replay.model.barriers_per_token.max(1);
                    job.tokens = job.tokens.min(most.max(1));
                }
                jobs.push(job);
            }
            if configuration.arms.contains(&Arm::Read) {
                jobs.push(job(Arm::Roof, roof_time.min(fastest)));
                blocks.push(jobs);
            } else {
                changes.extend(jobs);
            }
        }
        let is_baseline = |block: &&mut Vec<Job<'_>>| block.iter().any(|job| job.of.baseline);
        if let Some(block) = blocks.iter_mut().find(is_baseline) {
            block.append(&mut changes);
        }
        Ok(Some(blocks))
    }

    /// Runs the arms of a block once. Whether to go on; if not, it has been said why.
    fn run_block(
        &self,
        replay: &Replay<'_>,
        block: &[Job<'a>],
        round: &mut Round,
        context: &mut Context<'_>,
    ) -> Result<bool> {
        for job in block {
            if context.stop_reason().is_some() {
                return self.stopped(replay, round.number, context).map(|()| false);
            }
            let tokens = (round.number as usize * ROUND_STRIDE, job.tokens);
            let outcome = match self.arm(replay, job.threads, job.arm, tokens, context) {
                Ok(outcome) => outcome,
                Err(error) => return (context.outcome)(Outcome::Failed(error)).map(|()| false),
            };
            // All arms of a round start with the same token, so those of as many tokens take the same weights.
            let (parts, taken) = (Parts::of(job.arm), tally(&outcome.results));
            if parts.streams && *round.sums.entry((job.tokens, parts.dots)).or_insert(taken) != taken {
                let error = Error::refused(
                    format!("trust round {} of {}, arm {}", round.number, title(replay.model), job.arm.name()),
                    "it took other weights than another arm of the same tokens",
                    "report this as a bug; rounds before it agreed, this one was dropped",
                );
                return (context.outcome)(Outcome::Failed(error)).map(|()| false);
            }
            let line = self.line(replay, job, round, outcome, context.clock_step);
            (context.outcome)(Outcome::Measured(Box::new(Line::Decode(line))))?;
        }
        Ok(true)
    }

    /// Fails if pages moved during the last round: that taints lines that are written already.
    fn keeps_its_place(&self, replay: &Replay<'_>, last: &Round, context: &mut Context<'_>) -> Result<()> {
        let Some(caveat) = self.placement(replay).into_iter().find(|caveat| !last.placement.contains(caveat)) else {
            return Ok(());
        };
        (context.outcome)(Outcome::Failed(Error::refused(
            format!("keep the weights of {} where they were", title(replay.model)),
            caveat,
            "switch automatic NUMA balancing off (kernel.numa_balancing) and run again",
        )))
    }

    fn tokens(&self, time: Nanos) -> u64 {
        self.plan.rounds.sample_at_least.0.div_ceil(time.0.max(1)).clamp(1, TOKENS_MOST)
    }

    fn stopped(&self, replay: &Replay<'_>, round: u32, context: &mut Context<'_>) -> Result<()> {
        let reason = context.stop_reason().unwrap_or("interrupted").to_owned();
        let rounds = self.plan.rounds.least.saturating_sub(round);
        // Rounds beyond the least are a use of spare time, and not missed.
        if rounds == 0 {
            return Ok(());
        }
        let what = format!("{}, the last {rounds} of {} rounds", title(replay.model), self.plan.rounds.least);
        (context.outcome)(Outcome::LeftOut(LeftOut { what, reason }))
    }

    /// Whether the model's pages lie where they were asked.
    fn placement(&self, replay: &Replay<'_>) -> Vec<Caveat> {
        let mut caveats: Vec<Caveat> = self.bind_caveat.iter().cloned().collect();
        let asked = &self.plan.memory_nodes;
        let lines = (replay.model.layout.lines() as usize).min(self.arena.lines().len());
        match self.arena.nodes(0..lines, PLACEMENT_SAMPLE) {
            Err(error) => caveats.push(Caveat::PlacementUnverified { reason: error.to_string() }),
            Ok(seen) => match seen.share(|node| asked.contains(node)) {
                None => {
                    let reason = "the system tells of no page where it lies".into();
                    caveats.push(Caveat::PlacementUnverified { reason });
                }
                Some(share_there) if share_there < 1.0 && !asked.is_empty() => {
                    caveats.push(Caveat::PagesElsewhere { asked: asked.clone(), share_there });
                }
                Some(_) => {}
            },
        }
        caveats
    }

    fn line(
        &self,
        replay: &Replay<'_>,
        job: &Job<'_>,
        round: &Round,
        outcome: TeamOutcome<ThreadResult>,
        clock_step: Nanos,
    ) -> DecodeStep {
        let earliest = outcome.results.iter().map(|result| result.start.0).min().unwrap_or(0);
        let span = |result: &ThreadResult| ThreadSpan {
            start_ns: result.start.0 - earliest,
            finish_ns: result.finish.0 - earliest,
        };
        let mut caveats = outcome.caveats;
        let stamps: Vec<_> = outcome.results.iter().map(|result| &result.stamps[..]).collect();
        let traced = trace::trace(&stamps, serial(&replay.model.token).cycle(), clock_step);
        let trace = traced.unwrap_or_else(|by_ns| {
            caveats.push(Caveat::ClocksDisagree { by_ns });
            None
        });
        for caveat in job.of.caveats.iter().chain(&replay.model.caveats).chain(&round.placement) {
            if !caveats.contains(caveat) {
                caveats.push(caveat.clone());
            }
        }
        let step = Step {
            threads: job.threads.cpus.len() as u32,
            cpus: job.threads.cpus.to_vec(),
            caveats,
            samples_ns: vec![elapsed(&outcome.results).0],
            units_per_sample: job.tokens,
            warmup_samples: 0,
            per_thread: outcome.results.iter().map(span).collect(),
            disturbance: outcome.disturbance,
        };
        let summary = crate::stats::decode(&step);
        let model = replay.model;
        DecodeStep {
            step,
            model: model.model.into(),
            quantization: model.quantization.into(),
            engine: model.engine.name().into(),
            slicing: self.plan.slicing.name().into(),
            barrier: job.threads.barrier.name().into(),
            wait: job.threads.wait,
            placement: self.plan.placement.clone(),
            arm: job.arm,
            round: round.number,
            configuration: job.configuration,
            baseline: job.of.baseline,
            bytes_per_token: model.bytes_per_token,
            barriers_per_token: model.barriers_per_token,
            resident_bytes: model.layout.resident_bytes,
            trace,
            summary,
        }
    }
}

/// Runs an arm on a runtime's threads, started from a thread that ends with them: its pin is its own.
fn by_first_member(runtime: Runtime, run: ArmRun<'_>) -> Result<TeamOutcome<ThreadResult>> {
    let ended = std::thread::scope(|scope| scope.spawn(|| run.run_by(&runtime, &runtime)).join());
    let died = |_| Err(Error::refused("run a team of OpenMP", "its first thread died", "report this as a bug"));
    ended.unwrap_or_else(died)
}

/// What a round runs once.
struct Job<'a> {
    /// Its number in the plan: arms that share it are compared with each other.
    configuration: u32,
    threads: Threads<'a>,
    arm: Arm,
    tokens: u64,
    of: &'a Configuration,
}

/// One round as far as it has come.
#[derive(Default)]
struct Round {
    number: u32,
    /// What is wrong with where the weights lie.
    placement: Vec<Caveat>,
    /// What arms of so many tokens took, by reading or by multiplying.
    sums: BTreeMap<(u64, bool), Tally>,
}

impl Round {
    fn new(number: u32, placement: Vec<Caveat>) -> Round {
        Round { number, placement, sums: BTreeMap::new() }
    }
}

/// What all threads took together.
fn tally(results: &[ThreadResult]) -> Tally {
    results.iter().fold(Tally::default(), |sum, result| sum.add(result.tally))
}

/// For each barrier of a token whether it ends a phase in which thread 0 alone works.
fn serial(token: &Token) -> impl Iterator<Item = bool> + Clone {
    token.phases.iter().flat_map(|phase| {
        let is_serial = phase.single_thread || phase.rows == Some(1);
        std::iter::repeat_n(is_serial, phase.barriers as usize)
    })
}

/// From the earliest start to the latest finish.
fn elapsed(results: &[ThreadResult]) -> Nanos {
    let start = results.iter().map(|result| result.start.0).min().unwrap_or(0);
    let finish = results.iter().map(|result| result.finish.0).max().unwrap_or(0);
    Nanos(finish - start)
}

#[cfg(test)]
mod tests;
