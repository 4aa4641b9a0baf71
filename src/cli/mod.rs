//! The command line: flags to requests, talk to stderr, data to stdout, and the exit status.

mod flags;
mod inspect;
mod measure;
mod output;
mod source;
mod validate;

use crate::error::{Error, Kind, Result};
use crate::record::Record;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Is token generation on these CPUs limited by memory bandwidth, or by threads waiting for each other?
#[derive(Parser, Debug)]
#[command(name = "membar", version, arg_required_else_help = true)]
struct Membar {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure everything and say what limits token generation
    Run(flags::RunArgs),
    /// Measure memory bandwidth
    Stream(flags::StreamArgs),
    /// Measure latency: between cores, and of memory
    Latency(flags::LatencyArgs),
    /// Measure barriers
    Barrier(flags::BarrierArgs),
    /// Replay the weight reads and barriers of generating a token
    Experts(flags::ExpertsArgs),
    /// Compare with your own compiled STREAM, in turn
    Validate(flags::ValidateArgs),
    /// Print what a token reads of a model file, and where its threads wait
    Inspect(inspect::InspectArgs),
    /// Print what this machine looks like
    Topology(TopologyArgs),
    /// Print what a record holds
    Report(ReportArgs),
    /// The part of a process that membar starts for a step: asked on stdin, answers on stdout
    #[command(name = crate::run::openmp::COMMAND, hide = true)]
    OpenMpTeam,
}

#[derive(clap::Args, Debug)]
struct TopologyArgs {
    /// FILE.xml, synthetic:"pack:2 numa:3 …", sysfs:DIR or measured:RECORD (groups by its latencies) instead of this machine
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
}

#[derive(clap::Args, Debug)]
struct ReportArgs {
    /// A record that membar wrote
    record: PathBuf,
    /// table, json, jsonl, csv or md; of bandwidth also stream, the layout of STREAM
    #[arg(long, default_value = "table")]
    format: String,
}

/// Runs the command line of a binary and returns the exit status. A binary (or a copy of one) called `membar-stream`
/// acts as `membar stream`, and so on.
pub fn main() -> ExitCode {
    crate::run::openmp::answers();
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| OsString::from("membar"));
    let name = PathBuf::from(&program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let as_command = name.strip_prefix("membar-").unwrap_or_default();
    const MEASURING: [&str; 4] = ["stream", "latency", "barrier", "experts"];

    let parsed = if MEASURING.contains(&as_command) {
        let mut all = vec![OsString::from("membar"), OsString::from(as_command)];
        all.extend(arguments);
        Membar::command().try_get_matches_from(all)
    } else {
        Membar::command().try_get_matches_from(std::iter::once(program).chain(arguments))
    };
    let command = match parsed.and_then(|matches| Membar::from_arg_matches(&matches)) {
        Ok(membar) => membar.command,
        Err(error) => {
            // A closed pipe after --help is the reader's business.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match command {
        Command::Run(arguments) => measure::run(&arguments.request()),
        Command::Stream(arguments) => measure::run(&arguments.request()),
        Command::Latency(arguments) => measure::run(&arguments.request()),
        Command::Barrier(arguments) => measure::run(&arguments.request()),
        Command::Experts(arguments) => measure::run(&arguments.request()),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Topology(arguments) => topology(&arguments),
        Command::Report(arguments) => report(&arguments),
        Command::OpenMpTeam => crate::run::openmp::serve(std::io::stdin()).and_then(|answer| output::print(&answer)),
    };
    outcome.unwrap_or_else(|error| {
        output::say(&format!("membar: {error}"));
        status(&error)
    })
}

/// The exit status that an error stands for.
fn status(error: &Error) -> ExitCode {
    match error.kind() {
        Kind::Usage => ExitCode::from(2),
        Kind::Refused => ExitCode::from(1),
    }
}

fn topology(arguments: &TopologyArgs) -> Result<ExitCode> {
    let machine = source::machine(arguments.topology.as_deref())?;
    let groups = source::groups(arguments.topology.as_deref())?;
    output::print(&format!("{}{groups}", crate::report::topology::text(&machine)))
}

fn report(arguments: &ReportArgs) -> Result<ExitCode> {
    let format = output::Format::parse(&arguments.format)?;
    let record = Record::read(&arguments.record)?;
    output::record(&record, format, output::Json::Steps)
}
