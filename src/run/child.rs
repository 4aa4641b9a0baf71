//! Another process: started, listened to, stopped when it is time.

use super::clock::Clock;
use super::{Stop, affinity};
use crate::units::{CpuId, Nanos};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How often to look whether a program has to be stopped. Each look costs its threads some microseconds.
const LOOK: Duration = Duration::from_millis(20);
/// More than any STREAM prints, and than a step of 65,536 threads has to say.
const OUTPUT_MOST: usize = 1 << 24;
/// How long output may still come after the program has ended: what it started may hold the pipe open for ever.
const LATE: Duration = Duration::from_secs(1);

/// A program that is stopped, with all that it started, when this goes out of scope.
pub(super) struct Running {
    child: Child,
    ended: bool,
}

/// What is left of a program that ended by itself.
pub(super) struct Ended {
    /// What it wrote to standard output; empty when that was not a pipe.
    pub output: String,
    /// What it wrote to standard error; empty when that was not a pipe.
    pub errors: String,
    /// How it ended.
    pub status: ExitStatus,
}

/// Starts a program that runs on these CPUs alone: it inherits the mask of the thread that starts it. What came of the mask
/// is seen when our own threads take the same CPUs.
pub(super) fn start_on(command: &mut Command, cpus: &[CpuId]) -> io::Result<Running> {
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            affinity::confine(cpus);
            Running::start(command)
        });
        starter.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it died")))
    })
}

impl Running {
    /// In a process group of its own, so that it can be stopped with all that it starts, and a Ctrl-C for us is ours to pass on.
    pub(super) fn start(command: &mut Command) -> io::Result<Running> {
        Ok(Running { child: command.process_group(0).spawn()?, ended: false })
    }

    /// Gives it all of its standard input, if that is a pipe.
    pub(super) fn tell(&mut self, input: &[u8]) -> io::Result<()> {
        self.child.stdin.take().map_or(Ok(()), |mut stdin| io::Write::write_all(&mut stdin, input))
    }

    /// Waits for its end; `None` when it is to be stopped.
    pub(super) fn end(&mut self, clock: Clock, stop: Stop<'_>) -> io::Result<Option<Ended>> {
        let output = self.child.stdout.take().map(Heard::listen).transpose()?;
        let errors = self.child.stderr.take().map(Heard::listen).transpose()?;
        let mut exit: Option<(ExitStatus, Nanos)> = None;
        while stop.reason(clock.now()).is_none() {
            if exit.is_none() {
                exit = self.child.try_wait()?.map(|status| (status, clock.now()));
                self.ended = exit.is_some();
            }
            if let Some((status, since)) = exit {
                let all = [&output, &errors].into_iter().flatten().all(|heard| lock(heard).ended);
                if all || clock.now().0 - since.0 > LATE.as_nanos() as u64 {
                    let text = |heard: Option<Arc<Mutex<Heard>>>| {
                        heard.map(|heard| String::from_utf8_lossy(&lock(&heard).bytes).into_owned()).unwrap_or_default()
                    };
                    return Ok(Some(Ended { output: text(output), errors: text(errors), status }));
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }
}

/// What a program has written to a pipe so far.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    ended: bool,
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl Heard {
    /// Reads the pipe in a thread that is not joined: a program that hands its output to another session would keep us waiting.
    fn listen(mut pipe: impl Read + Send + 'static) -> io::Result<Arc<Mutex<Heard>>> {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let filled = Arc::clone(&heard);
        std::thread::Builder::new().name("membar-reader".into()).spawn(move || {
            let mut piece = [0; 1 << 14];
            while let Ok(bytes @ 1..) = pipe.read(&mut piece) {
                let mut heard = lock(&filled);
                let room = OUTPUT_MOST.saturating_sub(heard.bytes.len());
                heard.bytes.extend_from_slice(&piece[..bytes.min(room)]);
            }
            lock(&filled).ended = true;
        })?;
        Ok(heard)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: only sends a signal. The child was not waited for yet, so its number, which is its group's, is its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}
