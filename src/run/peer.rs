//! Somebody else's STREAM: started, waited for, stopped when it is time, read; and our own rows in turn with it.

use super::child::{self, Ended};
use super::clock::Clock;
use super::{Context, Outcome, Stop, stream, watch};
use crate::caveat::Caveat;
use crate::error::{Error, Result};
use crate::kernel::Operation;
use crate::machine::{Counters, IsaSet};
use crate::plan::stream::Group;
use crate::plan::validate::Plan;
use crate::record::{Disturbance, Line, PeerStep, PeerSummary, Step};
use crate::stats;
use crate::units::{Bytes, BytesPerSecond, CpuId, Nanos};
use std::path::Path;
use std::process::{Command, Stdio};

/// More repeats than anybody waits for.
const PASSES_MOST: u32 = 10_000;

/// What a STREAM program printed of itself and of each function.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// Bytes of each array.
    pub array_bytes: Bytes,
    /// Threads that it counted; `None` when it prints no count.
    pub threads: Option<u32>,
    /// How often it runs each function.
    pub passes: u32,
    /// A row a function.
    pub rows: Vec<PrintedRow>,
}

/// One row of its table.
#[derive(Clone, Debug, PartialEq)]
pub struct PrintedRow {
    /// The function.
    pub operation: Operation,
    /// Best Rate.
    pub best: BytesPerSecond,
    /// Avg time.
    pub average: Nanos,
    /// Min time.
    pub shortest: Nanos,
    /// Max time.
    pub longest: Nanos,
}

impl Printed {
    /// Reads the output of STREAM 5.x, or of a program that prints the same lines.
    ///
    /// # Errors
    /// Says what was looked for and not found, or what cannot be true.
    pub fn parse(text: &str) -> std::result::Result<Printed, String> {
        // The whole number after `start`, on the line that starts so.
        let number = |start: &str| -> Option<u64> {
            let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(start))?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let elements = number("Array size = ").ok_or("it printed no line 'Array size = N (elements)'")?;
        let element_bytes = number("This system uses ").unwrap_or(8);
        let array_bytes = elements.checked_mul(element_bytes).filter(|bytes| (1..=1 << 50).contains(bytes));
        let array_bytes = Bytes(array_bytes.ok_or("its 'Array size' is no size that fits a computer")?);
        if let Some(line) = text.lines().find(|line| line.contains("Failed Validation")) {
            return Err(format!("its own check failed: '{}'", line.trim()));
        }
        let operations = [Operation::Copy, Operation::Scale, Operation::Add, Operation::Triad];
        let mut rows = Vec::new();
        for operation in operations {
            let is_row = |line: &&str| {
                let label = line.trim_start().split(':').next().unwrap_or_default();
                label.eq_ignore_ascii_case(operation.name())
            };
            let Some(line) = text.lines().find(is_row) else { continue };
            let row =
                row(operation, line).ok_or_else(|| format!("its line '{}' is no row of STREAM's", line.trim()))?;
            if !stats::is_rate_of(row.best, operation.counted_bytes(array_bytes), row.shortest) {
                return Err(format!(
                    "its rate in '{}' is not what arrays of {array_bytes} in its Min time give",
                    line.trim()
                ));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err("it printed no row of 'Copy:', 'Scale:', 'Add:' or 'Triad:' with rate and times".into());
        }
        let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        let passes = number("Each kernel will be executed ").or_else(|| number("Each test is run "));
        Ok(Printed {
            array_bytes,
            threads: small(number("Number of Threads counted = ")),
            passes: match small(passes).unwrap_or(10) {
                passes @ 1..=PASSES_MOST => passes,
                other => {
                    return Err(format!("it says that each kernel runs {other} times, and 1 to {PASSES_MOST} can be"));
                }
            },
            rows,
        })
    }
}

/// Label, MB/s, and the average, shortest and longest time in seconds.
fn row(operation: Operation, line: &str) -> Option<PrintedRow> {
    let figures: Option<Vec<f64>> = line.split_whitespace().skip(1).map(|figure| figure.parse().ok()).collect();
    let [rate, average, shortest, longest] = figures?[..] else { return None };
    let nanos = |seconds: f64| (seconds > 0.0 && seconds < 1e6).then(|| Nanos((seconds * 1e9).round() as u64));
    Some(PrintedRow {
        operation,
        best: BytesPerSecond(Some(rate).filter(|rate| rate.is_finite() && *rate > 0.0)? * 1e6),
        average: nanos(average)?,
        shortest: nanos(shortest)?,
        longest: nanos(longest)?,
    })
}

/// Runs a program once, with one OpenMP thread on each of `cpus`, and reads what it printed; `None` when it was stopped
/// because `stop` said so: then nothing of it is left running.
///
/// # Errors
/// When it cannot be started, fails, or does not print what STREAM prints.
pub fn once(program: &Path, cpus: &[CpuId], clock: Clock, stop: Stop<'_>) -> Result<Option<Printed>> {
    let name = program.display();
    // One without OpenMP has no places, so it has a mask as well.
    let started = child::start_on(&mut command(program, cpus), cpus);
    let mut running = started.map_err(|reason| {
        Error::usage(format!("start the program {name}"), reason, "name a compiled STREAM, as in --stream ./stream")
    })?;
    let ended = running.end(clock, stop).map_err(|reason| {
        Error::refused(format!("wait for the program {name}"), reason, "run it by itself to see why")
    })?;
    let Some(Ended { output, status, .. }) = ended else { return Ok(None) };
    if !status.success() {
        let advice = "run it by itself to see why";
        return Err(Error::refused(format!("run the program {name}"), format!("it ended with {status}"), advice));
    }
    Printed::parse(&output).map(Some).map_err(|reason| {
        Error::usage(format!("read what {name} printed"), reason, "name a program that prints what STREAM 5.10 prints")
    })
}

/// The program, told to run one OpenMP thread on each of `cpus`.
fn command(program: &Path, cpus: &[CpuId]) -> Command {
    let places: Vec<String> = cpus.iter().map(|cpu| format!("{{{cpu}}}")).collect();
    let mut command = Command::new(program);
    command
        .env("OMP_NUM_THREADS", cpus.len().to_string())
        .env("OMP_DYNAMIC", "false")
        .env("OMP_PROC_BIND", "true")
        .env("OMP_PLACES", places.join(","))
        // They would contradict the places.
        .env_remove("GOMP_CPU_AFFINITY")
        .env_remove("KMP_AFFINITY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Runs the program and our rows in turn.
///
/// # Errors
/// Only when an outcome cannot be handed over; what fails inside is an [`Outcome::Failed`].
pub fn run(plan: &Plan, isa: &IsaSet, context: &mut Context<'_>) -> Result<()> {
    for left in &plan.stream.left_out {
        (context.outcome)(Outcome::LeftOut(left.clone()))?;
    }
    let kernels = stream::checked(&plan.stream, isa, context)?;
    for round in 0..plan.rounds {
        let what = format!("round {} of {} with {}", round + 1, plan.rounds, plan.program.display());
        if context.leave_out(&what)? {
            continue;
        }
        (context.outcome)(Outcome::Starting(what.clone()))?;
        for group in &plan.stream.groups {
            match peer(plan, group, round, context) {
                Ok(Some(steps)) => {
                    for step in steps {
                        (context.outcome)(Outcome::Measured(Box::new(Line::Peer(step))))?;
                    }
                }
                // A user who interrupts knows that the program was running.
                Ok(None) if context.stop.is_interrupted() => {
                    context.leave_out(&what)?;
                    continue;
                }
                Ok(None) => {
                    let error = stopped(&plan.program, context.stop_reason());
                    (context.outcome)(Outcome::Failed(error))?;
                    continue;
                }
                // It ran once and fails now: what it would say next is worth nothing.
                Err(error) => return (context.outcome)(Outcome::Failed(error)),
            }
            // Its arrays go before the program runs again: both may not fit.
            for outcome in stream::whole(&mut None, &plan.stream, group, &kernels, context) {
                (context.outcome)(outcome)?;
            }
        }
    }
    Ok(())
}

/// The error for a program that was stopped.
pub fn stopped(program: &Path, reason: Option<&str>) -> Error {
    Error::refused(
        format!("run the program {} to its end", program.display()),
        format!("{}: it was still running, and was stopped", reason.unwrap_or("stopped")),
        "give a longer --time-budget",
    )
}

/// The program's lines of a round; `None` when it was stopped.
fn peer(plan: &Plan, group: &Group, round: u32, context: &Context<'_>) -> Result<Option<Vec<PeerStep>>> {
    let (before, start) = (Counters::now(), context.clock.now());
    let Some(printed) = once(&plan.program, &group.cpus, context.clock, context.stop)? else { return Ok(None) };
    let lines = printed.array_bytes.0.next_multiple_of(crate::memory::Line::BYTES);
    let threads = printed.threads.is_none_or(|threads| threads as usize == group.cpus.len());
    if lines != group.array_bytes.0 || !threads {
        return Err(Error::refused(
            format!("compare with {}", plan.program.display()),
            format!(
                "it now has arrays of {} and {} threads, other than when it ran first",
                printed.array_bytes,
                printed.threads.map_or("an unknown number of".to_owned(), |threads| threads.to_string())
            ),
            "name a program whose arrays and threads stay the same",
        ));
    }
    let elapsed = Nanos(context.clock.now().0 - start.0);
    let disturbance = Disturbance { counters: before.delta(&Counters::now()), ..Disturbance::default() };
    let caveats: Vec<Caveat> =
        group.caveats.iter().cloned().chain(watch::caveats(&disturbance, &group.cpus, elapsed)).collect();
    let step = |row: &PrintedRow| PeerStep {
        step: Step {
            threads: group.cpus.len() as u32,
            cpus: group.cpus.clone(),
            caveats: caveats.clone(),
            samples_ns: vec![row.shortest.0],
            units_per_sample: 1,
            disturbance: disturbance.clone(),
            ..Step::default()
        },
        program: plan.program.display().to_string(),
        function: row.operation.name().to_owned(),
        round,
        array_bytes: printed.array_bytes,
        avg_ns: row.average.0,
        max_ns: row.longest.0,
        counted_bytes: row.operation.counted_bytes(printed.array_bytes),
        summary: PeerSummary { best_bytes_per_s: Some(row.best) },
    };
    Ok(Some(printed.rows.iter().map(step).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
-------------------------------------------------------------
STREAM version $Revision: 5.10 $
-------------------------------------------------------------
This system uses 8 bytes per array element.
-------------------------------------------------------------
Array size = 10000000 (elements), Offset = 0 (elements)
Each kernel will be executed 20 times.
Number of Threads requested = 8
Number of Threads counted = 8
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           23081.3     0.007845     0.006932     0.008717
Scale:          10794.8     0.018168     0.014822     0.020507
Add:            13298.5     0.021114     0.018047     0.023301
Triad:          10068.4     0.026150     0.023837     0.029336
Solution Validates: avg error less than 1.000000e-13 on all three arrays
";

    #[test]
    fn streams_output_is_read() {
        let printed = Printed::parse(WHOLE).unwrap();
        assert_eq!((printed.array_bytes, printed.threads, printed.passes), (Bytes(80_000_000), Some(8), 20));
        assert_eq!(printed.rows.len(), 4);
        let triad = &printed.rows[3];
        assert_eq!(
            (triad.operation, triad.shortest, triad.longest),
            (Operation::Triad, Nanos(23_837_000), Nanos(29_336_000))
        );
        assert!((triad.best.0 - 10_068.4e6).abs() < 1.0);
        // 5.9 words it differently; without OpenMP there is no count.
        let older = WHOLE
            .replace("Array size = 10000000 (elements), Offset = 0 (elements)", "Array size = 10000000, Offset = 0")
            .replace("Each kernel will be executed 20 times.", "Each test is run 10 times, but only")
            .replace("Number of Threads counted = 8\n", "");
        let printed = Printed::parse(&older).unwrap();
        assert_eq!((printed.array_bytes, printed.threads, printed.passes), (Bytes(80_000_000), None, 10));
    }

    #[test]
    fn what_is_no_stream_is_named() {
        let cases = [
            ("hello", "'Array size = N"),
            ("Array size = 0 (elements)", "no size"),
            ("Array size = 99999999999999999999", "'Array size = N"),
            ("Array size = 1000 (elements)", "'Copy:'"),
            ("Array size = 1000 (elements)\nCopy: fast", "no row of STREAM's"),
            ("Array size = 1000 (elements)\nCopy: nan 0.1 0.1 0.1", "no row of STREAM's"),
            ("Array size = 1000 (elements)\nCopy: 1600.0 0.000010 0.000000 0.000010", "no row of STREAM's"),
            // GB/s, or bytes counted in another way.
            ("Array size = 10000000\nCopy: 23.1 0.007845 0.006932 0.008717", "is not what arrays of"),
        ];
        for (text, reason) in cases {
            let error = Printed::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let failed = format!("{WHOLE}Failed Validation on array a[], AvgRelAbsErr > epsilon (1.0e-13)\n");
        assert!(Printed::parse(&failed).unwrap_err().contains("its own check failed"));
    }

    #[test]
    fn rounding_of_short_times_is_forgiven() {
        // 16,000,000 bytes in 100.4 µs, printed as 0.000100.
        let text = "Array size = 1000000\nCopy: 159362.5 0.000101 0.000100 0.000120\n";
        assert!(Printed::parse(text).is_ok());
    }
}
