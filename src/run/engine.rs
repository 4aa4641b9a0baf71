//! A real engine, llama-bench or one that answers as it does: asked what it is, run, read; and the replay in turn with it.

use super::child::{self, Ended, Running};
use super::clock::Clock;
use super::decode::{self, Turn};
use super::{Context, Outcome, Stop, watch};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::machine::{Counters, IsaSet, OpenMp};
use crate::plan::engine::Plan;
use crate::plan::experts::Configuration;
use crate::record::{Disturbance, EngineStep, Line, Step};
use crate::stats;
use crate::units::{CpuId, Nanos};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Whether it can be told to repack weights or not.
    pub can_repack: bool,
    /// The OpenMP runtime whose barrier its threads wait at; `None`: one of its own.
    pub runtime: Option<OpenMp>,
}

/// Asks a program for its help, and the loader for its libraries; `None` when it was stopped.
///
/// # Errors
/// A usage error for what cannot be started, and for what does not generate tokens as llama-bench does.
pub fn probe(program: &Path, cpus: &[CpuId], clock: Clock, stop: Stop<'_>) -> Result<Option<Probe>> {
    let Some(help) = output(Command::new(program).arg("--help"), program, cpus, clock, stop)? else { return Ok(None) };
    let help = help.output + &help.errors;
    if !help.contains("--n-gen") {
        return Err(Error::usage(
            format!("use {} as an engine", program.display()),
            "its --help mentions no --n-gen, so it is no llama-bench",
            "name a llama-bench of llama.cpp or ik_llama.cpp",
        ));
    }
    // What ldd does. A program without a loader prints its help again.
    let mut traced = Command::new(program);
    traced.arg("--help").env("LD_TRACE_LOADED_OBJECTS", "1");
    let Some(libraries) = output(&mut traced, program, cpus, clock, stop)? else { return Ok(None) };
    Ok(Some(Probe { can_repack: help.contains("--repack"), runtime: runtime(&libraries.output) }))
}

/// The OpenMP runtime among the libraries that the loader lists.
fn runtime(libraries: &str) -> Option<OpenMp> {
    let has = |name: &str| libraries.lines().any(|line| line.trim_start().starts_with(name));
    match () {
        () if has("libomp.") || has("libiomp5.") => Some(OpenMp::Libomp),
        () if has("libgomp.") => Some(OpenMp::Libgomp),
        () => None,
    }
}

/// Runs a command of the program on these CPUs; `None` when it was stopped.
fn output(
    command: &mut Command,
    program: &Path,
    cpus: &[CpuId],
    clock: Clock,
    stop: Stop<'_>,
) -> Result<Option<Ended>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running: Running = child::start_on(command, cpus).map_err(|reason| {
        Error::usage(
            format!("start the program {}", program.display()),
            reason,
            "name a llama-bench, as in --llama-bench ./llama-bench",
        )
    })?;
    running.end(clock, stop).map_err(|reason| {
        Error::refused(format!("wait for the program {}", program.display()), reason, "run it by itself to see why")
    })
}

/// What the engine printed of a test that generates tokens.
#[derive(Clone, Debug, PartialEq)]
struct Printed {
    tokens: u64,
    /// Of all of them.
    time: Nanos,
    threads: Option<u64>,
    build: Option<String>,
}

impl Printed {
    /// Reads llama-bench's JSON. Fields are found by name, and what is not needed may be missing: versions differ.
    fn parse(text: &str) -> std::result::Result<Printed, String> {
        let no_json = || "it printed no JSON list".to_owned();
        let (start, end) =
            text.find('[').zip(text.rfind(']')).filter(|(start, end)| start < end).ok_or_else(no_json)?;
        let list: Value = serde_json::from_str(&text[start..=end]).map_err(|reason| format!("its JSON: {reason}"))?;
        let tests = list.as_array().ok_or_else(no_json)?;
        let number = |test: &Value, name: &str| test.get(name).and_then(Value::as_u64);
        let generates = |test: &&Value| {
            number(test, "n_gen").is_some_and(|tokens| tokens > 0) && number(test, "n_prompt").unwrap_or(0) == 0
        };
        let test = tests.iter().find(generates).ok_or("it lists no test with n_gen above 0 and n_prompt 0")?;
        let tokens = number(test, "n_gen").unwrap_or(0);
        let first = |name: &str| test.get(name)?.as_array()?.first()?.as_f64();
        let one = |name: &str| test.get(name)?.as_f64();
        // The rate is of tokens a second.
        let by_rate = |rate: f64| tokens as f64 * 1e9 / rate;
        let ns = first("samples_ns")
            .or_else(|| one("avg_ns"))
            .or_else(|| first("samples_ts").or_else(|| one("avg_ts")).map(by_rate))
            .ok_or("its test has none of samples_ns, avg_ns, samples_ts and avg_ts")?;
        // From a nanosecond a token to a day for all.
        if !(ns >= tokens as f64 && ns < 86_400e9) {
            return Err(format!("its test says that {tokens} tokens took {ns} ns"));
        }
        let commit = test.get("build_commit").and_then(Value::as_str).filter(|commit| !commit.is_empty());
        let build = match (commit, number(test, "build_number")) {
            (Some(commit), Some(number)) => Some(format!("{commit} ({number})")),
            (Some(commit), None) => Some(commit.to_owned()),
            (None, number) => number.map(|number| number.to_string()),
        };
        Ok(Printed { tokens, time: Nanos(ns.round() as u64), threads: number(test, "n_threads"), build })
    }
}

/// Runs the engine once with a configuration's threads; `None` when it was stopped.
fn once(plan: &Plan, configuration: &Configuration, context: &Context<'_>) -> Result<Option<(Printed, Disturbance)>> {
    let (name, threads) = (plan.program.display(), configuration.cpus.len());
    let before = Counters::now();
    let mut command = Command::new(&plan.program);
    command.args(&plan.arguments).arg("-t").arg(threads.to_string());
    let ended = output(&mut command, &plan.program, &configuration.cpus, context.clock, context.stop)?;
    let Some(Ended { output, errors, status }) = ended else { return Ok(None) };
    if !status.success() {
        let said = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        return Err(Error::refused(
            format!("run {name} on {}", plan.file.display()),
            format!("it ended with {status}: {}", said.trim()),
            "run it by itself to see why",
        ));
    }
    let unread = |reason: String| {
        Error::usage(
            format!("read what {name} printed"),
            reason,
            "name a llama-bench whose -o json has n_gen and samples_ns or avg_ts",
        )
    };
    let printed = Printed::parse(&output).map_err(unread)?;
    if printed.threads.is_some_and(|counted| counted != threads as u64) {
        let counted = printed.threads.unwrap_or(0);
        return Err(unread(format!("it ran {counted} threads where {threads} were asked for")));
    }
    let disturbance = Disturbance { counters: before.delta(&Counters::now()), ..Disturbance::default() };
    Ok(Some((printed, disturbance)))
}

/// Runs the engine and the replay in turn.
///
/// # Errors
/// Only when an outcome cannot be handed over; what fails inside is an [`Outcome::Failed`].
pub fn run(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<()> {
    let mut engine = |configuration: usize, round: u32, context: &mut Context<'_>| -> Result<bool> {
        let Some(of) = plan.configurations().get(configuration) else { return Ok(true) };
        let start = context.clock.now();
        match once(plan, of, context) {
            Ok(Some((printed, disturbance))) => {
                let elapsed = Nanos(context.clock.now().0 - start.0);
                let line = step(plan, (configuration, of), round, &printed, (disturbance, elapsed));
                (context.outcome)(Outcome::Measured(Box::new(Line::Engine(line))))?;
                Ok(true)
            }
            Ok(None) => {
                let what = format!("round {} of {} with {}", round + 1, plan.rounds, plan.program.display());
                context.leave_out(&what).map(|_| false)
            }
            // It would say the same the next time.
            Err(error) => (context.outcome)(Outcome::Failed(error)).map(|()| false),
        }
    };
    decode::in_turn(&plan.experts, isa, context, &mut Turn { tokens: plan.tokens, other: &mut engine })
}

fn step(
    plan: &Plan,
    (configuration, of): (usize, &Configuration),
    round: u32,
    printed: &Printed,
    (disturbance, elapsed): (Disturbance, Nanos),
) -> EngineStep {
    let disturbed = watch::caveats(&disturbance, &of.cpus, elapsed);
    let caveats: Vec<Caveat> = of.caveats.iter().cloned().chain(disturbed).collect();
    let step = Step {
        threads: of.cpus.len() as u32,
        cpus: of.cpus.clone(),
        caveats,
        samples_ns: vec![printed.time.0],
        units_per_sample: printed.tokens,
        disturbance,
        ..Step::default()
    };
    let (model, quantization) = plan.experts.models.first().map_or(("", ""), |model| (model.model, model.quantization));
    EngineStep {
        summary: stats::decode(&step),
        step,
        program: plan.program.display().to_string(),
        file: plan.file.display().to_string(),
        arguments: plan.arguments.clone(),
        build: printed.build.clone(),
        model: model.to_owned(),
        quantization: quantization.to_owned(),
        round,
        configuration: configuration as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
[
  {
    "build_commit": "b4d6d0b", "build_number": 11434, "cpu_info": "A [fast] CPU", "model_type": "llama 7B Q8_0",
    "n_threads": 2, "flash_attn": -1, "n_prompt": 0, "n_gen": 32, "n_depth": 0,
    "avg_ns": 800000100, "stddev_ns": 0, "avg_ts": 40.0, "stddev_ts": 0.0,
    "samples_ns": [ 800000000 ],
    "samples_ts": [ 40 ]
  }
]
"#;

    #[test]
    fn fields_are_found_by_name_and_may_be_missing() {
        let printed = Printed::parse(WHOLE).unwrap();
        let build = Some("b4d6d0b (11434)".to_owned());
        assert_eq!(printed, Printed { tokens: 32, time: Nanos(800_000_000), threads: Some(2), build });
        let without = |name: &str, text: &str| text.replace(&format!("\"{name}\""), "\"other\"");
        let mut text = format!("a warning of a library\n{WHOLE}");
        for (name, ns) in [("samples_ns", 800_000_100), ("avg_ns", 800_000_000), ("samples_ts", 800_000_000)] {
            text = without(name, &text);
            assert_eq!(Printed::parse(&text).unwrap().time, Nanos(ns), "without {name}");
        }
        let older = without("n_threads", &without("build_number", WHOLE));
        let printed = Printed::parse(&older).unwrap();
        assert_eq!((printed.threads, printed.build.as_deref()), (None, Some("b4d6d0b")));
        let error = Printed::parse(&without("avg_ts", &text)).unwrap_err();
        assert!(error.contains("none of samples_ns"), "{error}");
    }

    #[test]
    fn what_is_no_test_is_named() {
        let cases = [
            ("tg32: 40 tokens/s", "no JSON list"),
            ("] [", "no JSON list"),
            ("[ { \"n_gen\": 32 ]", "its JSON: "),
            ("[]", "no test with n_gen"),
            ("[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ns\": 5}]", "no test with n_gen"),
            ("[{\"n_gen\": 32, \"avg_ns\": 0}]", "32 tokens took 0 ns"),
            ("[{\"n_gen\": 32, \"avg_ns\": -5}]", "32 tokens took -5 ns"),
            ("[{\"n_gen\": 32, \"avg_ts\": 0.0}]", "32 tokens took inf ns"),
            ("[{\"n_gen\": 32, \"avg_ns\": \"soon\"}]", "none of samples_ns"),
        ];
        for (text, reason) in cases {
            let error = Printed::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_barrier_is_that_of_the_runtime_that_is_loaded() {
        let line = |name: &str| format!("\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\t{name} => /lib/{name} (0x2)\n");
        assert_eq!(runtime(&line("libgomp.so.1")), Some(OpenMp::Libgomp));
        assert_eq!(runtime(&line("libomp.so.5")), Some(OpenMp::Libomp));
        assert_eq!(runtime(&line("libiomp5.so")), Some(OpenMp::Libomp));
        assert_eq!(runtime(&line("libggml-cpu.so.0")), None);
        // Intel's comes with GCC's in one program, and then has its threads.
        assert_eq!(runtime(&(line("libgomp.so.1") + &line("libiomp5.so"))), Some(OpenMp::Libomp));
    }
}
