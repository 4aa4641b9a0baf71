//! `membar validate`: parse → machine → the program once → plan → rounds → report.

use super::flags::ValidateArgs;
use super::measure::{Part, Session, Setting, flag, not_bandwidth, number};
use super::output::{self, Format};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::plan::{self, Scope, ThreadList};
use crate::run::peer;
use crate::units::{CpuSet, Nanos};
use std::process::ExitCode;

/// Rounds without `--samples`: the fewest that have an interval.
const ROUNDS: u64 = 5;

/// Runs the user's STREAM and our rows in turn.
///
/// # Errors
/// Whatever keeps it from starting, among it a program that is no STREAM.
pub fn run(arguments: &ValidateArgs) -> Result<ExitCode> {
    let (common, program) = (&arguments.common, &arguments.stream);
    let setting = Setting::read(common)?;
    if setting.format == Format::Stream {
        return Err(not_bandwidth());
    }
    let cpus = flag::<CpuSet>("--cpus", &common.cpus, "write CPU numbers as in 0-3,8-11")?;
    let list = flag::<ThreadList>("--threads", &common.threads, "write one number, or all")?;
    let rounds = number("--samples", &common.samples, 1, 1000)?.unwrap_or(ROUNDS);
    let seed = number("--seed", &common.seed, 0, u64::MAX)?.unwrap_or(1);
    let machine = Machine::this_system()?;
    let scope = Scope::new(&machine, cpus.as_ref(), None)?;
    let threads = threads(list.as_ref(), &scope)?;

    let session = Session::begin(&setting, common)?;
    session.progress().say(&format!("{} once, to see its arrays and threads", program.display()));
    let (clock, start) = (session.clock(), session.clock().now());
    let Some(printed) = peer::once(program, &scope.compact(threads), clock, session.stop())? else {
        let error = peer::stopped(program, session.stop().reason(clock.now()));
        output::say(&format!("membar: {error}"));
        return Ok(session.status(true));
    };
    let options = plan::validate::Options {
        program: program.clone(),
        threads,
        counted: printed.threads,
        array_bytes: printed.array_bytes,
        passes: printed.passes,
        program_time: Nanos(clock.now().0 - start.0),
        rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
    };
    let plan = plan::validate::plan(&machine, &scope, &setting.isa, &options)?;
    let part = Part { machine: &machine, seed, needs: plan.needs(), summary: false };
    session.measure(&part, |_, context| peer::run(&plan, &setting.isa, context))
}

/// The one thread count: a program runs with one.
fn threads(list: Option<&ThreadList>, scope: &Scope) -> Result<u32> {
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
