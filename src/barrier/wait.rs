//! How a thread waits. With more threads than CPUs this *is* the result, so it is recorded with every number.

use super::sync::{AtomicU32, Ordering, spin_loop, yield_now};
use crate::error::{Error, Result};
use crate::machine::MonitorWait;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is said of a token that stands for no way of waiting.
pub const UNKNOWN_WAIT: &str = "there is no such way of waiting";

/// A way of waiting for a word in memory to change. Its name is the token that records and the command line use; those of
/// every architecture can be read on any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Wait {
    /// Load again at once.
    Spin,
    /// The hint `pause` between loads (x86-64; elsewhere what the compiler takes for one).
    Pause,
    /// An `isb` between loads (aarch64): it empties the pipeline, so it takes about as long as `pause`.
    Isb,
    /// A `yield` between loads (aarch64): a hint to the other threads of a core, for nothing on most.
    Yield,
    /// The line is watched and the core waits for an event (aarch64: `ldaxr`, `wfe`).
    Wfe,
    /// The line is watched and the core waits, at most for some 100 µs at a time: `umwait` on Intel, `mwaitx` on AMD.
    Umwait,
    /// This many hinted loads, then one `sched_yield`, and again: ik_llama.cpp does so by 100,000.
    SpinThenYield(u32),
    /// This many hinted loads, then asleep in the kernel on the word: libgomp does so after 300,000.
    SpinThenFutex(u32),
    /// Blocked in the kernel.
    Sleep,
    /// Somebody else's barrier, which does not tell. Only in records: nobody can ask for it.
    Unknown,
}

impl Wait {
    /// The spin hint of this architecture, which is what llama.cpp spins with.
    pub const HINT: Wait = if cfg!(target_arch = "aarch64") { Wait::Isb } else { Wait::Pause };

    /// What every barrier that polls a word can do on this architecture, if the processor can: the hint first.
    pub const POLLING: &[Wait] = if cfg!(target_arch = "aarch64") {
        &[Wait::HINT, Wait::Spin, Wait::Yield, Wait::Wfe, Wait::SpinThenYield(1000)]
    } else if cfg!(target_arch = "x86_64") {
        &[Wait::HINT, Wait::Spin, Wait::Umwait, Wait::SpinThenYield(1000)]
    } else {
        &[Wait::HINT, Wait::Spin, Wait::SpinThenYield(1000)]
    };

    /// Every way of waiting, with one count of spins each.
    pub const ALL: &[Wait] = &[
        Wait::Spin,
        Wait::Pause,
        Wait::Isb,
        Wait::Yield,
        Wait::Wfe,
        Wait::Umwait,
        Wait::SpinThenYield(100_000),
        Wait::SpinThenFutex(300_000),
        Wait::Sleep,
    ];

    /// Waits until `done` says so of the word's value, loaded with `order`.
    ///
    /// A way that this machine lacks, and one that blocks, become hinted spinning.
    #[inline]
    pub fn until(self, word: &AtomicU32, order: Ordering, done: impl Fn(u32) -> bool) {
        let waiting = || !done(word.load(order));
        match self {
            Wait::Spin => while waiting() {},
            Wait::Pause | Wait::Isb | Wait::SpinThenFutex(_) | Wait::Sleep | Wait::Unknown => {
                while waiting() {
                    spin_loop();
                }
            }
            Wait::Yield => {
                while waiting() {
                    instruction::hint_yield();
                }
            }
            Wait::Wfe | Wait::Umwait => watch(word, waiting),
            Wait::SpinThenYield(spins) => {
                while !spin(spins, waiting) {
                    yield_now();
                }
            }
        }
    }

    /// Whether a waiting thread keeps its CPU until the kernel takes it away.
    pub fn keeps_cpu(self) -> bool {
        !matches!(self, Wait::SpinThenYield(_) | Wait::SpinThenFutex(_) | Wait::Sleep)
    }

    /// Whether both are the same but for the number of spins.
    pub fn is_like(self, other: Wait) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Why this machine cannot wait like this, if so.
    pub fn unusable(self) -> Option<&'static str> {
        let (here, reason) = match self {
            Wait::Pause => (Wait::HINT == Wait::Pause, "the hint of this architecture is isb"),
            Wait::Isb | Wait::Yield | Wait::Wfe => (cfg!(target_arch = "aarch64"), "an instruction of aarch64"),
            Wait::Umwait if cfg!(target_arch = "x86_64") => {
                let reason = "this processor shows programs neither umwait (WAITPKG) nor mwaitx (MONITORX)";
                (MonitorWait::detect().is_some(), reason)
            }
            Wait::Umwait => (false, "an instruction of x86-64"),
            Wait::Spin | Wait::SpinThenYield(_) | Wait::SpinThenFutex(_) | Wait::Sleep | Wait::Unknown => (true, ""),
        };
        (!here).then_some(reason)
    }

    /// Its token, with N for any number of spins.
    pub fn form(self) -> String {
        match self {
            Wait::SpinThenYield(_) => "spin-N-yield".to_owned(),
            Wait::SpinThenFutex(_) => "spin-N-futex".to_owned(),
            wait => wait.to_string(),
        }
    }

    /// What it does, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Wait::Spin => "loads again at once",
            Wait::Pause | Wait::Isb => "the spin hint between loads",
            Wait::Yield => "a hint to the core's other threads between loads",
            Wait::Wfe => "watches the line (ldaxr) and waits for an event",
            Wait::Umwait => "watches the line and waits (Intel: umwait, AMD: mwaitx)",
            Wait::SpinThenYield(_) => "that many hinted loads, then sched_yield, and again",
            Wait::SpinThenFutex(_) => "that many hinted loads, then asleep on the word",
            Wait::Sleep => "asleep in the kernel",
            Wait::Unknown => "as another program decides",
        }
    }

    /// Reads a token of the command line: one of [`Wait::ALL`], with any number of spins, that this machine can do.
    ///
    /// # Errors
    /// A usage error that lists those that it can.
    pub fn parse(token: &str) -> Result<Wait> {
        let refusal = match Wait::of_token(token) {
            Some(wait) => match wait.unusable() {
                None => return Ok(wait),
                Some(reason) => reason,
            },
            None => UNKNOWN_WAIT,
        };
        let usable = Wait::ALL.iter().filter(|wait| wait.unusable().is_none());
        let usable: Vec<String> = usable.map(|wait| wait.form()).collect();
        Err(Error::usage(format!("wait by '{token}'"), refusal, format!("name one of {}", usable.join(", "))))
    }

    /// The way of waiting with this token, on whatever machine.
    fn of_token(token: &str) -> Option<Wait> {
        if let Some(spins) = token.strip_prefix("spin-") {
            let yields = spins.strip_suffix("-yield").and_then(|spins| spins.parse().ok()).map(Wait::SpinThenYield);
            return yields.or_else(|| spins.strip_suffix("-futex")?.parse().ok().map(Wait::SpinThenFutex));
        }
        Wait::ALL.iter().copied().find(|wait| wait.to_string() == token)
    }
}

/// Looks at most `spins` + 1 times, with the hint between. Whether waiting is over.
#[inline]
pub(super) fn spin(spins: u32, waiting: impl Fn() -> bool) -> bool {
    let mut left = spins;
    while waiting() {
        if left == 0 {
            return false;
        }
        left -= 1;
        spin_loop();
    }
    true
}

/// Watches the word's line and lets the core wait for a write to it, until `waiting` says no. Spins where the machine has
/// no instructions for that.
#[inline(never)]
fn watch(word: &AtomicU32, waiting: impl Fn() -> bool) {
    while waiting() {
        instruction::watch(word);
        // A write before the watch began wakes nobody.
        if !waiting() {
            return;
        }
        instruction::await_write();
    }
}

#[cfg(target_arch = "x86_64")]
mod instruction {
    use super::super::sync::{AtomicU32, spin_loop};
    use crate::machine::MonitorWait;
    use std::arch::asm;

    pub(super) use super::super::sync::spin_loop as hint_yield;

    /// Longest wait, in ticks of the time-stamp counter: 50 to 100 µs at 2 to 4 GHz. A bound on what a wake-up costs that
    /// the hardware or a hypervisor loses, far above an episode.
    const MOST_TICKS: u32 = 200_000;

    /// Begins to watch the line of `word`, where this processor can.
    pub(super) fn watch(word: &AtomicU32) {
        let word: *const AtomicU32 = word;
        match MonitorWait::detect() {
            // SAFETY: the processor has the instruction; it reads at most the line of a word that is borrowed.
            Some(MonitorWait::Umwait) => unsafe {
                asm!("umonitor {}", in(reg) word, options(nostack, preserves_flags))
            },
            // SAFETY: as above; ECX and EDX are extensions and hints, of which none are asked for.
            Some(MonitorWait::Mwaitx) => unsafe {
                asm!("monitorx", in("rax") word, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags));
            },
            None => {}
        }
    }

    /// Waits for a write to the watched line, an interrupt or the deadline; without a watched line at once or not at all.
    pub(super) fn await_write() {
        match MonitorWait::detect() {
            Some(MonitorWait::Umwait) => {
                // SAFETY: every x86-64 processor has a time-stamp counter, and Linux lets programs read it.
                let deadline = unsafe { std::arch::x86_64::_rdtsc() } + u64::from(MOST_TICKS);
                // SAFETY: the processor has the instruction. Bit 0 of its operand: C0.1, the state that is left sooner.
                unsafe {
                    asm!(
                        "umwait {state:e}",
                        state = in(reg) 1,
                        in("eax") deadline as u32,
                        in("edx") (deadline >> 32) as u32,
                        options(nostack),
                    );
                }
            }
            // SAFETY: the processor has the instruction. EAX 0F0h: stay in C0; ECX bit 1: EBX holds the most ticks. The
            // compiler keeps RBX to itself, so it is exchanged and put back.
            Some(MonitorWait::Mwaitx) => unsafe {
                asm!(
                    "xchg {most}, rbx",
                    "mwaitx",
                    "xchg {most}, rbx",
                    most = inout(reg) u64::from(MOST_TICKS) => _,
                    in("eax") 0xf0,
                    in("ecx") 2,
                    options(nostack, preserves_flags),
                );
            },
            None => spin_loop(),
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod instruction {
    use super::super::sync::AtomicU32;
    use std::arch::asm;

    pub(super) fn hint_yield() {
        // SAFETY: a hint, which changes nothing.
        unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) }
    }

    /// Marks the word for this core: a write by another clears the mark, which is the event that `wfe` waits for.
    pub(super) fn watch(word: &AtomicU32) {
        let word: *const AtomicU32 = word;
        // SAFETY: loads an aligned word that is borrowed; the value is looked at by an ordinary load afterwards.
        unsafe { asm!("ldaxr {:w}, [{}]", out(reg) _, in(reg) word, options(nostack, preserves_flags)) }
    }

    /// Waits for an event. Linux has the timer send one every 100 µs, so nothing is waited for longer.
    pub(super) fn await_write() {
        // SAFETY: it changes no register and no memory.
        unsafe { asm!("wfe", options(nostack, preserves_flags)) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod instruction {
    use super::super::sync::AtomicU32;

    pub(super) use super::super::sync::{spin_loop as await_write, spin_loop as hint_yield};

    pub(super) fn watch(_word: &AtomicU32) {}
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = match self {
            Wait::Spin => "spin",
            Wait::Pause => "pause",
            Wait::Isb => "isb",
            Wait::Yield => "yield",
            Wait::Wfe => "wfe",
            Wait::Umwait => "umwait",
            Wait::SpinThenYield(spins) => return write!(f, "spin-{spins}-yield"),
            Wait::SpinThenFutex(spins) => return write!(f, "spin-{spins}-futex"),
            Wait::Sleep => "sleep",
            Wait::Unknown => "unknown",
        };
        f.write_str(token)
    }
}

impl From<Wait> for String {
    fn from(wait: Wait) -> String {
        wait.to_string()
    }
}

impl TryFrom<String> for Wait {
    type Error = String;

    /// As records have it, which may come from another machine.
    fn try_from(token: String) -> std::result::Result<Wait, String> {
        let unknown = (token == Wait::Unknown.to_string()).then_some(Wait::Unknown);
        Wait::of_token(&token)
            .or(unknown)
            .ok_or_else(|| format!("could not read the way of waiting '{token}': {UNKNOWN_WAIT}"))
    }
}
