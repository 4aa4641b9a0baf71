//! How a thread waits. With more threads than CPUs this *is* the result, so it is recorded with every number.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is said of a token that stands for no way of waiting here.
pub const UNKNOWN_WAIT: &str = "there is no such way of waiting on this architecture";

/// A way of waiting for a word in memory to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Wait {
    /// Load again at once.
    Spin,
    /// One spin hint between loads: `pause` on x86-64, `isb` on aarch64.
    Hint,
    /// This many hinted loads, then `sched_yield` between loads, as ik_llama.cpp does after 100,000.
    SpinThenYield(u32),
    /// This many hinted loads, then blocked in the kernel (futex), as libgomp does after 300,000.
    SpinThenFutex(u32),
    /// Blocked in the kernel.
    Sleep,
    /// Somebody else's barrier, which does not tell. Only in records: nobody can ask for it.
    Unknown,
}

impl Wait {
    /// The name of [`Wait::Hint`] here: the instruction that it is.
    const HINT_NAME: &str = if cfg!(target_arch = "aarch64") { "isb" } else { "pause" };

    /// What every barrier that polls a word can do. The hinted spin comes first: it is what llama.cpp does.
    pub const SPINNING: &[Wait] = &[Wait::Hint, Wait::Spin, Wait::SpinThenYield(1000)];

    /// Waits while `unchanged` says so.
    #[inline]
    pub fn wait_while(self, mut unchanged: impl FnMut() -> bool) {
        match self {
            Wait::Spin => while unchanged() {},
            Wait::Hint | Wait::SpinThenFutex(_) | Wait::Sleep | Wait::Unknown => {
                while unchanged() {
                    std::hint::spin_loop();
                }
            }
            Wait::SpinThenYield(spins) => {
                let mut left = spins;
                while unchanged() {
                    if left > 0 {
                        left -= 1;
                        std::hint::spin_loop();
                    } else {
                        std::thread::yield_now();
                    }
                }
            }
        }
    }

    /// Whether a waiting thread keeps its CPU until the kernel takes it away.
    pub fn keeps_cpu(self) -> bool {
        matches!(self, Wait::Spin | Wait::Hint)
    }

    /// Reads the contract's token: `spin`, `pause`, `isb`, `spin-1000-yield`, `spin-1000-futex`, `sleep`.
    ///
    /// # Errors
    /// A usage error that lists the tokens.
    pub fn parse(token: &str) -> Result<Wait> {
        let spins = |then: &str| token.strip_prefix("spin-")?.strip_suffix(then)?.parse().ok();
        let spinning = || spins("-yield").map(Wait::SpinThenYield).or(spins("-futex").map(Wait::SpinThenFutex));
        match token {
            "spin" => Ok(Wait::Spin),
            "sleep" => Ok(Wait::Sleep),
            hint if hint == Self::HINT_NAME => Ok(Wait::Hint),
            _ => spinning().ok_or_else(|| {
                Error::usage(
                    format!("wait by '{token}'"),
                    UNKNOWN_WAIT,
                    format!("name one of spin, {}, spin-N-yield, spin-N-futex, sleep", Self::HINT_NAME),
                )
            }),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Spin => f.write_str("spin"),
            Wait::Hint => f.write_str(Self::HINT_NAME),
            Wait::SpinThenYield(spins) => write!(f, "spin-{spins}-yield"),
            Wait::SpinThenFutex(spins) => write!(f, "spin-{spins}-futex"),
            Wait::Sleep => f.write_str("sleep"),
            Wait::Unknown => f.write_str("unknown"),
        }
    }
}

impl From<Wait> for String {
    fn from(wait: Wait) -> String {
        wait.to_string()
    }
}

impl TryFrom<String> for Wait {
    type Error = String;

    /// Records may come from another architecture, so both names of the hint are read.
    fn try_from(token: String) -> std::result::Result<Wait, String> {
        match token.as_str() {
            "pause" | "isb" => Ok(Wait::Hint),
            "unknown" => Ok(Wait::Unknown),
            _ => Wait::parse(&token).map_err(|error| error.to_string()),
        }
    }
}
