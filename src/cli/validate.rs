//! `membar validate`: parse → machine → the program once → plan → rounds → report.

use super::flags::ValidateArgs;
use super::measure::{Part, Session, Setting, engine_barrier, flag, model_choice, not_bandwidth, number};
use super::output::{self, Format};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::plan::{self, Scope, ThreadList};
use crate::run::{engine, peer};
use crate::units::{CpuSet, Nanos};
use crate::workload::Slicing;
use std::path::Path;
use std::process::ExitCode;

/// Rounds without `--samples`: the fewest that have an interval.
const ROUNDS: u64 = 5;

/// What both kinds of comparison read from their flags.
struct Asked {
    machine: Machine,
    scope: Scope,
    threads: Option<ThreadList>,
    rounds: u32,
    seed: u64,
}

/// Runs the user's program and ours in turn.
///
/// # Errors
/// Whatever keeps it from starting, among it a program that is not what was said.
pub fn run(arguments: &ValidateArgs) -> Result<ExitCode> {
    let common = &arguments.common;
    let setting = Setting::read(common)?;
    if setting.format == Format::Stream {
        return Err(not_bandwidth());
    }
    let cpus = flag::<CpuSet>("--cpus", &common.cpus, "write CPU numbers as in 0-3,8-11")?;
    let threads = flag::<ThreadList>("--threads", &common.threads, "write 1,2,4 or 1-8 or all")?;
    let rounds = number("--samples", &common.samples, 1, 1000)?.unwrap_or(ROUNDS);
    let seed = number("--seed", &common.seed, 0, u64::MAX)?.unwrap_or(1);
    let machine = Machine::this_system()?;
    let scope = Scope::new(&machine, cpus.as_ref(), None)?;
    let asked = Asked { machine, scope, threads, rounds: u32::try_from(rounds).unwrap_or(u32::MAX), seed };
    match (&arguments.stream, &arguments.llama_bench) {
        (Some(program), _) => beside_stream(arguments, &setting, &asked, program),
        (_, Some(program)) => beside_engine(arguments, &setting, &asked, program),
        (None, None) => Err(Error::usage("validate", "no program is named", "add --stream or --llama-bench")),
    }
}

fn beside_stream(arguments: &ValidateArgs, setting: &Setting, asked: &Asked, program: &Path) -> Result<ExitCode> {
    let Asked { machine, scope, .. } = asked;
    let threads = one_count(asked.threads.as_ref(), scope)?;
    let session = Session::begin(setting, &arguments.common)?;
    session.progress().say(&format!("{} once, to see its arrays and threads", program.display()));
    let (clock, start) = (session.clock(), session.clock().now());
    let Some(printed) = peer::once(program, &scope.compact(threads), clock, session.stop())? else {
        return Ok(was_stopped(program, &session));
    };
    let options = plan::validate::Options {
        program: program.to_owned(),
        threads,
        counted: printed.threads,
        array_bytes: printed.array_bytes,
        passes: printed.passes,
        program_time: Nanos(clock.now().0 - start.0),
        rounds: asked.rounds,
    };
    let plan = plan::validate::plan(machine, scope, &setting.isa, &options)?;
    let part = Part { machine, seed: asked.seed, needs: plan.needs(), summary: false };
    session.measure(&part, |_, context| peer::run(&plan, &setting.isa, context))
}

fn beside_engine(arguments: &ValidateArgs, setting: &Setting, asked: &Asked, program: &Path) -> Result<ExitCode> {
    let Asked { machine, scope, .. } = asked;
    let most = scope.cpus.len() as u32;
    let file = arguments.model.clone().unwrap_or_default();
    let mut replay = plan::experts::Options::new(scope.cpus.clone());
    let model = model_choice(&file.display().to_string(), None)?;
    if model.file.is_none() || file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        let reason = "an engine opens files in GGUF alone";
        return Err(Error::usage(format!("run an engine on {}", file.display()), reason, "name a MODEL.gguf"));
    }
    replay.models = vec![model];
    replay.threads = asked.threads.as_ref().map(|list| list.resolve(most, most)).transpose()?;
    if let Some(name) = &arguments.slicing {
        replay.slicing = Slicing::find(name)?;
    }
    replay.seed = asked.seed;
    let barrier = arguments.barrier.as_deref().map(engine_barrier).transpose()?;

    let session = Session::begin(setting, &arguments.common)?;
    let Some(probe) = engine::probe(program, &scope.cpus, session.clock(), session.stop())? else {
        return Ok(was_stopped(program, &session));
    };
    let own = || probe.runtime.map(|runtime| engine_barrier(runtime.name())).transpose();
    if let Some(barrier) = barrier.map_or_else(own, |barrier| Ok(Some(barrier)))? {
        (replay.barrier, replay.wait) = barrier;
    }
    let options =
        plan::engine::Options { program: program.to_owned(), file, can_repack: probe.can_repack, rounds: asked.rounds };
    let plan = plan::engine::Plan::new(machine, &options, &replay)?;
    let part = Part { machine, seed: asked.seed, needs: plan.needs(), summary: false };
    session.measure(&part, |_, context| engine::run(&plan, &setting.isa, context))
}

/// Says that a program was stopped before anything was measured.
fn was_stopped(program: &Path, session: &Session<'_>) -> ExitCode {
    let error = peer::stopped(program, session.stop().reason(session.clock().now()));
    output::say(&format!("membar: {error}"));
    session.status(true)
}

/// The one thread count: a STREAM runs with one.
fn one_count(list: Option<&ThreadList>, scope: &Scope) -> Result<u32> {
    let Some(list) = list else { return Ok(scope.cores as u32) };
    let cpus = scope.cpus.len() as u32;
    match list.resolve(cpus, cpus)?[..] {
        [threads] => Ok(threads),
        _ => Err(Error::usage(
            format!("validate with --threads {list}"),
            "it names several counts, and the program runs with one",
            "name one count, or run `membar validate` once for each",
        )),
    }
}
