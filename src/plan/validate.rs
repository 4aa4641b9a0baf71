//! Our rows beside somebody else's STREAM: arrays of its size on its CPUs, in rounds.

use super::stream;
use super::{Needs, PROCESS_BYTES, Scope, ThreadList};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Operation};
use crate::machine::{IsaSet, Machine};
use crate::units::{Bytes, Nanos, Threads};
use serde::Serialize;
use std::path::PathBuf;

/// Scope of our rows' steps.
pub const VALIDATE: &str = "validate";
/// The row that gcc's STREAM copy becomes; `stream`'s choice of rows may leave it out.
const LIBC_COPY: &str = "copy_libc";

/// What was asked for, and what the program said of itself when it ran once.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// Threads asked for.
    pub threads: u32,
    /// Threads that the program counted; `None` when it prints no count, as one built without OpenMP does.
    pub counted: Option<u32>,
    /// Bytes of each of its arrays.
    pub array_bytes: Bytes,
    /// How often it runs each function; the first time does not count.
    pub passes: u32,
    /// How long it took.
    pub program_time: Nanos,
    /// Rounds.
    pub rounds: u32,
}

/// Rounds of the program and our rows in turn.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// How long it takes.
    pub program_ns: u64,
    /// How often both are run.
    pub rounds: u32,
    /// Our side: one group over arrays of the program's size.
    pub stream: stream::Plan,
}

/// Plans a comparison.
///
/// # Errors
/// A usage error when the program counted other threads than asked for; else those of [`stream::plan`].
pub fn plan(machine: &Machine, scope: &Scope, isa: &IsaSet, options: &Options) -> Result<Plan> {
    same_threads(options)?;
    let stream_options = stream::Options {
        operations: vec![Operation::Copy, Operation::Scale, Operation::Add, Operation::Triad],
        rows: Kernel::table().iter().filter(|row| row.name == LIBC_COPY).collect(),
        size: Some(options.array_bytes),
        threads: Some(ThreadList::from(options.threads)),
        samples: Some(options.passes.saturating_sub(1).max(1)),
        ..stream::Options::default()
    };
    let mut stream = stream::plan(machine, scope, isa, &stream_options)?;
    for group in &mut stream.groups {
        group.scope = VALIDATE.to_owned();
    }
    // One pass a sample, as STREAM has it, and no column.
    stream.sample_least_ns = 1;
    stream.column = None;
    stream.left_out.retain(|left| Kernel::find(&left.what).is_ok());
    Ok(Plan { program: options.program.clone(), program_ns: options.program_time.0, rounds: options.rounds, stream })
}

/// Other threads would be another measurement.
fn same_threads(options: &Options) -> Result<()> {
    let asked = options.threads;
    let reason = match options.counted {
        Some(counted) if counted == asked => return Ok(()),
        None if asked == 1 => return Ok(()),
        Some(counted) => format!("it counted {}: it was built without OpenMP or chooses by itself", Threads(counted)),
        None => "it counts none, so it was built without OpenMP and runs one".to_owned(),
    };
    Err(Error::usage(
        format!("run {} with {}", options.program.display(), Threads(asked)),
        reason,
        format!("build it with -fopenmp, or take --threads {}", options.counted.unwrap_or(1)),
    ))
}

impl Plan {
    /// Memory of our arrays, and time of all rounds.
    pub fn needs(&self) -> Needs {
        let ours = self.stream.needs();
        let round_s = ours.estimated_s + self.program_ns as f64 / 1e9;
        Needs {
            memory_bytes: Bytes(ours.memory_bytes.0 + PROCESS_BYTES),
            estimated_s: f64::from(self.rounds) * round_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caveat::Caveat;

    fn planned(change: impl FnOnce(&mut Options)) -> Result<Plan> {
        let machine =
            Machine::from_source("synthetic:numa:1(memory=64000000000) l3:1(size=33554432) core:4 pu:2").unwrap();
        let scope = Scope::new(&machine, None, None).unwrap();
        let mut options = Options {
            program: PathBuf::from("./stream"),
            threads: 4,
            counted: Some(4),
            array_bytes: Bytes(160_000_000),
            passes: 10,
            program_time: Nanos(2_000_000_000),
            rounds: 5,
        };
        change(&mut options);
        plan(&machine, &scope, &IsaSet::detect(), &options)
    }

    #[test]
    fn arrays_and_passes_are_those_of_the_program() {
        let plan = planned(|_| {}).unwrap();
        let [group] = &plan.stream.groups[..] else { panic!("one thread set") };
        assert_eq!((group.array_bytes, group.cpus.len()), (Bytes(160_000_000), 4));
        assert_eq!(group.samples, 9, "ten, and the first does not count");
        assert_eq!(plan.stream.column, None);
        for operation in ["copy", "scale", "add", "triad"] {
            assert!(group.kernels.iter().any(|row| row.operation.name() == operation));
        }
        assert!(plan.needs().estimated_s > 10.0);
        let small = planned(|options| options.array_bytes = Bytes(1 << 20)).unwrap();
        assert!(matches!(small.stream.groups[0].caveats[..], [Caveat::CacheResident { .. }]));
        assert_eq!(planned(|options| options.passes = 1).unwrap().stream.groups[0].samples, 1);
    }

    #[test]
    fn other_threads_are_refused() {
        let error = planned(|options| options.counted = None).unwrap_err().to_string();
        assert!(error.contains("without OpenMP") && error.ends_with("--threads 1"), "{error}");
        let error = planned(|options| options.counted = Some(2)).unwrap_err().to_string();
        assert!(error.contains("it counted 2 threads") && error.ends_with("--threads 2"), "{error}");
        assert!(planned(|options| (options.threads, options.counted) = (1, None)).is_ok());
    }
}
