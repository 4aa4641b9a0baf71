//! Barriers of OpenMP runtimes. A runtime reads its environment once, so each step has a process of its own: this program
//! again, told on standard input what to measure, with an environment that says how to wait. There the runtime starts the
//! threads; pins, samples, checks and disturbances are those of every other barrier.

use super::barrier::Measurement;
use super::child::{Ended, Running};
use super::clock::Clock;
use super::team::Crew;
use super::{Context, Stop, affinity};
use crate::barrier::{Barrier, Wait, WithBarrier};
use crate::error::{Error, Result};
use crate::machine::{Library, OpenMp};
use crate::plan::Subject;
use crate::plan::barrier::{Plan, Step as Planned};
use crate::record::BarrierStep;
use crate::units::{CpuId, CpuSet, Nanos};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The hidden command that a process of a step runs.
pub const COMMAND: &str = "openmp-team";

/// Whether this program answers to [`COMMAND`].
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Says that this program, started again as `membar openmp-team`, calls [`serve`]. Another one would do who knows what.
pub fn answers() {
    ANSWERS.store(true, Ordering::Relaxed);
}

/// What a process of a step is asked.
#[derive(Serialize, Deserialize)]
struct Request {
    /// Holds one step.
    plan: Plan,
    /// As in [`Context`].
    clock_step_ns: u64,
    /// As in [`Context`].
    verify: bool,
    /// What is left of the time budget.
    budget_ns: Option<u64>,
}

/// What it answers: what was measured, nothing when it only checked, or what went wrong.
type Answer = Result<Vec<BarrierStep>>;

/// Measures one step in a process of its own; nothing when it only checked, and when it was interrupted.
pub(super) fn measure(runtime: OpenMp, plan: &Plan, planned: &Planned, context: &Context<'_>) -> Answer {
    /// A step that has begun may end, as elsewhere; this is long enough for it. A guess.
    const AFTER_BUDGET: Nanos = Nanos(10_000_000_000);
    /// Who takes that long and twenty times what its step should hangs. A guess.
    const HANGS: Nanos = Nanos(60_000_000_000);
    let name = runtime.name();
    let failed = |reason: String| {
        Error::refused(format!("measure the barrier of {name}"), reason, "leave it out with --algorithms")
    };
    if !ANSWERS.load(Ordering::Relaxed) {
        return Err(failed("this program does not answer as a process of a step: only membar's own do".to_owned()));
    }
    let now = context.clock.now();
    let request = Request {
        plan: Plan { steps: vec![planned.clone()], left_out: Vec::new(), ..plan.clone() },
        clock_step_ns: context.clock_step.0,
        verify: context.verify,
        budget_ns: context.stop.deadline.map(|deadline| deadline.0.saturating_sub(now.0)),
    };
    let request = serde_json::to_vec(&request).map_err(|reason| failed(reason.to_string()))?;
    let hangs = now.0 + HANGS.0 + (20.0 * plan.step_s(planned) * 1e9) as u64;
    // The work that has begun when the budget ends may be of the longest.
    let longest_s = planned.works.iter().map(|work| work.least_s()).fold(0.0, f64::max);
    let after = AFTER_BUDGET.0 + (8.0 * longest_s * 1e9) as u64;
    let late = context.stop.deadline.map(|deadline| now.0.max(deadline.0) + after);
    let stop = Stop { deadline: Some(Nanos(late.unwrap_or(hangs).min(hangs))), ..context.stop };

    let mut running = process(runtime, planned.wait)
        .and_then(|mut command| Running::start(&mut command))
        .map_err(|reason| failed(format!("its process did not start: {reason}")))?;
    // Who does not listen to the end has ended, and says why itself.
    let _ = running.tell(&request);
    let ended = running.end(context.clock, stop).map_err(|reason| failed(reason.to_string()))?;
    match ended {
        None if context.stop.is_interrupted() => Ok(Vec::new()),
        None => {
            let seconds = (context.clock.now().0 - now.0) as f64 * 1e-9;
            Err(failed(format!("its process was still running after {seconds:.0} s, and was stopped")))
        }
        Some(Ended { output, errors, status }) => {
            serde_json::from_str::<std::result::Result<Vec<BarrierStep>, Error>>(&output).unwrap_or_else(|_| {
                let said = errors.trim().lines().last().unwrap_or("it says nothing").to_owned();
                Err(failed(format!("its process ended with {status}: {said}")))
            })
        }
    }
}

/// This program again, in an environment that says how to wait and nothing else to an OpenMP runtime.
fn process(runtime: OpenMp, wait: Wait) -> io::Result<Command> {
    const OTHERS: [&str; 4] = ["OMP_", "GOMP_", "KMP_", "LIBOMP_"];
    let mut command = Command::new(std::env::current_exe()?);
    // A binary acts by the name that it is called by.
    command.arg0("membar").arg(COMMAND);
    for (name, _) in std::env::vars_os() {
        if OTHERS.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.envs(runtime.policy(wait));
    // Pins are ours, and so is the number of threads.
    command.env("OMP_PROC_BIND", "false").env("OMP_DYNAMIC", "false");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// The part of the process: reads a request, measures, and returns the answer as JSON.
///
/// # Errors
/// When the request cannot be read. What fails later is part of the answer.
pub fn serve(mut input: impl Read) -> Result<String> {
    let clock = Clock::start();
    // SAFETY: only a setting of this process: it shall not go on when the one that asked is gone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let unread = |reason: &dyn std::fmt::Display| {
        Error::usage("read what to measure", reason, "leave this command to membar: it is not meant to be typed")
    };
    let mut request = String::new();
    input.read_to_string(&mut request).map_err(|reason| unread(&reason))?;
    let request: Request = serde_json::from_str(&request).map_err(|reason| unread(&reason))?;
    let [planned] = &request.plan.steps[..] else { return Err(unread(&"it is not one step")) };
    let Subject::OpenMp(runtime) = planned.algorithm else { return Err(unread(&"it is no runtime's barrier")) };

    // Before the runtime is opened, which then counts these CPUs: with more threads than them it waits in another way.
    affinity::confine(&planned.cpus);
    let signal = AtomicUsize::new(0);
    let context = Context {
        clock,
        stop: Stop { signal: &signal, deadline: request.budget_ns.map(Nanos) },
        outcome: &mut |_| Ok(()),
        clock_step: Nanos(request.clock_step_ns),
        verify: request.verify,
    };
    let answer: Answer = Runtime::open(runtime).and_then(|team| {
        let body = Measurement { plan: &request.plan, planned, context: &context, crew: &team };
        let mut steps = body.call(&team)?;
        for step in &mut steps {
            step.wait = runtime.waits_by(planned.wait, is_crowded(&planned.cpus));
        }
        Ok(steps)
    });
    serde_json::to_string(&answer).map_err(|reason| Error::refused("answer", reason, "report this as a bug"))
}

/// Whether there are more threads than CPUs.
fn is_crowded(cpus: &[CpuId]) -> bool {
    cpus.iter().copied().collect::<CpuSet>().len() < cpus.len()
}

/// What starts a team: its body, what the body is given, the number of threads, flags that do not matter here.
type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

/// An open runtime: who starts the threads, and the barrier that they enter.
#[derive(Clone, Copy)]
pub(super) struct Runtime {
    name: &'static str,
    parallel: Parallel,
    barrier: unsafe extern "C" fn(),
    number: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn() -> c_int,
}

impl Runtime {
    pub(super) fn open(runtime: OpenMp) -> Result<Runtime> {
        let failed = |reason: String| {
            Error::refused(format!("open {}", runtime.library()), reason, "install it anew, or leave it out")
        };
        let library = Library::open(Path::new(runtime.library())).map_err(failed)?;
        let symbol = |name: &CStr| {
            let missing = || failed(format!("it has no {}", name.to_string_lossy()));
            library.symbol(name).map(|symbol| symbol.as_ptr()).ok_or_else(missing)
        };
        let parallel = symbol(OpenMp::PARALLEL)?;
        let barrier = symbol(c"GOMP_barrier")?;
        let number = symbol(c"omp_get_thread_num")?;
        let count = symbol(c"omp_get_num_threads")?;
        Ok(Runtime {
            name: runtime.name(),
            // SAFETY: the function of this name, in both runtimes, as libgomp's header declares it; the library stays open.
            parallel: unsafe { std::mem::transmute::<*mut c_void, Parallel>(parallel) },
            // SAFETY: as above.
            barrier: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(barrier) },
            // SAFETY: as OpenMP's own header declares it.
            number: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(number) },
            // SAFETY: as above.
            count: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(count) },
        })
    }
}

impl Barrier for Runtime {
    type Member = ();

    fn member(&self, _thread: usize) {}

    #[inline]
    fn wait(&self, (): &mut ()) {
        // SAFETY: no arguments. Outside a team it returns at once, and inside one every thread calls it equally often.
        unsafe { (self.barrier)() }
    }
}

/// What the threads of a team share while they start.
struct Region<'a> {
    runtime: &'a Runtime,
    threads: usize,
    body: &'a (dyn Fn(usize) + Sync),
    /// How many threads there are where they are not as many as asked, else 0.
    others: AtomicU32,
}

/// What each thread of a team calls.
unsafe extern "C" fn enter(region: *mut c_void) {
    // SAFETY: `Crew::start` gives its region to the runtime, and outlives the team.
    let region = unsafe { &*region.cast_const().cast::<Region<'_>>() };
    // SAFETY: both take nothing and return a number.
    let (number, count) = unsafe { ((region.runtime.number)(), (region.runtime.count)()) };
    // All threads see the same number, so all of them turn back.
    match (usize::try_from(number), usize::try_from(count)) {
        (Ok(number), Ok(count)) if count == region.threads => (region.body)(number),
        // Relaxed: read when the team has ended.
        _ => region.others.store(u32::try_from(count).unwrap_or(0).max(1), Ordering::Relaxed),
    }
}

impl Crew for Runtime {
    fn start(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) -> Result<()> {
        let region = Region { runtime: self, threads, body, others: AtomicU32::new(0) };
        let data = std::ptr::from_ref(&region).cast_mut().cast();
        // SAFETY: the runtime calls `enter` with `data` on each thread of the team and returns when all have returned. They
        // only read the region, which is Sync, and `body` does not panic.
        unsafe { (self.parallel)(enter, data, threads as c_uint, 0) };
        match region.others.into_inner() {
            0 => Ok(()),
            count => Err(Error::refused(
                format!("start a team of {threads} threads with {}", self.name),
                format!("its team has {count}"),
                "raise the limit on processes (ulimit -u, the cgroup's pids.max) or use fewer --threads",
            )),
        }
    }
}
