//! The barrier measurement for a barrier that another program brings.

use super::barrier::Measurement;
use super::clock::Clock;
use super::header::header;
use super::team::StdThreads;
use super::{Context, Stop};
use crate::barrier::{Barrier, WithBarrier};
use crate::error::Result;
use crate::kernel::{Kernel, Operation};
use crate::machine::{IsaSet, Machine, RunLock};
use crate::plan::barrier::{Options, plan};
use crate::plan::{Scope, Subject};
use crate::record::{End, Line, Record};
use crate::units::Nanos;
use std::sync::atomic::AtomicUsize;
use std::time::SystemTime;

/// Measures the barriers that `make` makes, each for a number of threads, on all thread counts and spreads of this machine
/// that `membar barrier` takes, by the same code. The record holds them under `name`, and no file is written;
/// [`report::document`](crate::report::document) is its table.
///
/// Call it from the main thread and before any thread was pinned: the affinity mask at its first call is what may be used.
///
/// # Errors
/// When the machine cannot be read, when a membar measures on it now, when the system refuses threads, and when a barrier
/// lets a thread through before all have come.
pub fn sweep<B: Barrier>(name: &str, make: impl Fn(usize) -> B) -> Result<Record> {
    let clock = Clock::start();
    let machine = Machine::this_system()?;
    let scope = Scope::new(&machine, None, None)?;
    let isa = IsaSet::detect();
    let reader = Kernel::best(Operation::Read, None, &isa).map(|kernel| kernel.row().name);
    let options = Options { algorithms: vec![Subject::Given(name.to_owned())], reader, ..Options::default() };
    let plan = plan(&machine, &scope, &options)?;
    let lock = RunLock::take()?;
    let precision = clock.precision();
    let header = header(&machine, &isa, &precision, 1, Some(&lock));
    let signal = AtomicUsize::new(0);
    let context = Context {
        clock,
        stop: Stop { signal: &signal, deadline: None },
        outcome: &mut |_| Ok(()),
        clock_step: precision.step,
        verify: false,
    };
    let mut lines = Vec::new();
    for planned in &plan.steps {
        let step = Measurement { plan: &plan, planned, context: &context, crew: &StdThreads };
        lines.extend(step.call(&make(planned.cpus.len()))?.into_iter().map(Line::Barrier));
    }
    let Nanos(elapsed_ns) = clock.now();
    let finished_utc = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let left_out = plan.left_out;
    lines.push(Line::End(End { outcome: "complete".into(), elapsed_ns, finished_utc, left_out, ..End::default() }));
    Ok(Record { header, lines, complete: true, remarks: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Thread 0 goes through twenty episodes, which is what the check has, while the others are in their first.
    #[derive(Default)]
    struct Early {
        passed: AtomicUsize,
    }

    impl Barrier for Early {
        type Member = usize;
        fn member(&self, thread: usize) -> usize {
            thread
        }
        fn wait(&self, thread: &mut usize) {
            if *thread == 0 {
                self.passed.fetch_add(1, Ordering::SeqCst);
            }
            while *thread > 0 && self.passed.load(Ordering::SeqCst) < 20 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_barrier_that_lets_somebody_through_early_has_no_record() {
        if crate::machine::current_affinity().len() < 2 {
            return;
        }
        // Where another membar measures, it does not come that far.
        let error = sweep("early", |_| Early::default()).unwrap_err().to_string();
        assert!(error.contains("trust the barrier early: threads left it") || error.contains("another"), "{error}");
    }
}
