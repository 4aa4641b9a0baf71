//! Barriers of OpenMP runtimes: what programs wait at that are compiled with `-fopenmp`, llama.cpp's usual builds among them.
//!
//! Here are only their lines of the table. The code is the runtime's own, and so are the threads that can enter it.

use super::{Row, Wait};
use crate::machine::OpenMp;

/// Spins of libgomp before it sleeps, unless the environment says otherwise (its manual, GOMP_SPINCOUNT).
const GOMP_SPINS: u32 = 300_000;
/// The most that it spins with more threads than CPUs, where OMP_WAIT_POLICY is not set, and where it is active (as above).
const GOMP_SPINS_CROWDED: u32 = 100;
const GOMP_SPINS_CROWDED_ACTIVE: u32 = 1000;

impl OpenMp {
    /// Its line of the table.
    pub fn row(self) -> &'static Row {
        match self {
            OpenMp::Libgomp => {
                const ROW: Row = Row {
                    name: "libgomp",
                    summary: "the barrier of GCC's OpenMP, on its own threads: a counter and a futex",
                    source: "libgomp.so.1 of this system, through GOMP_barrier",
                    transfers: |_, _| None,
                    waits: &[Wait::HINT, Wait::SpinThenFutex(GOMP_SPINS), Wait::Sleep],
                };
                &ROW
            }
            OpenMp::Libomp => {
                const ROW: Row = Row {
                    name: "libomp",
                    summary: "the barrier of LLVM's OpenMP, on its own threads: gather and release along a tree",
                    source: "libomp.so.5 of this system, through GOMP_barrier",
                    transfers: |_, _| None,
                    waits: &[Wait::HINT, Wait::Sleep],
                };
                &ROW
            }
        }
    }

    /// The environment variables that make its threads wait by `wait`, one of its row's ways.
    pub fn policy(self, wait: Wait) -> Vec<(&'static str, String)> {
        let mut variables = match wait {
            Wait::SpinThenFutex(spins) => vec![("GOMP_SPINCOUNT", spins.to_string())],
            Wait::Sleep => vec![("OMP_WAIT_POLICY", "passive".to_owned())],
            _ => vec![("OMP_WAIT_POLICY", "active".to_owned())],
        };
        // libomp's own word for the same. Left to itself it spins for 200 ms, longer than any episode here, and then sleeps.
        if self == OpenMp::Libomp {
            let block = if wait == Wait::Sleep { "0" } else { "infinite" };
            variables.push(("KMP_BLOCKTIME", block.to_owned()));
        }
        variables
    }

    /// How its threads wait where the environment has these variables and there are no more of them than CPUs.
    pub fn wait_of(self, variable: impl Fn(&str) -> Option<String>) -> Wait {
        let is = |name: &str, value: &str| variable(name).is_some_and(|text| text.trim().eq_ignore_ascii_case(value));
        let spins = variable("GOMP_SPINCOUNT").and_then(|text| text.trim().parse().ok());
        match (self, spins) {
            (OpenMp::Libgomp, Some(0)) => Wait::Sleep,
            (OpenMp::Libgomp, Some(spins)) => Wait::SpinThenFutex(spins),
            _ if is("OMP_WAIT_POLICY", "passive") || self == OpenMp::Libomp && is("KMP_BLOCKTIME", "0") => Wait::Sleep,
            // It spins for 200 ms, longer than any phase of a token.
            (OpenMp::Libomp, _) => Wait::HINT,
            _ if is("OMP_WAIT_POLICY", "active") || is("GOMP_SPINCOUNT", "infinite") => Wait::HINT,
            _ => Wait::SpinThenFutex(GOMP_SPINS),
        }
    }

    /// How its threads wait when they were asked to wait by `wait` and there are more of them than CPUs, or not.
    pub fn waits_by(self, wait: Wait, crowded: bool) -> Wait {
        match (self, wait) {
            (OpenMp::Libgomp, Wait::HINT) if crowded => Wait::SpinThenFutex(GOMP_SPINS_CROWDED_ACTIVE),
            (OpenMp::Libgomp, Wait::SpinThenFutex(spins)) if crowded => {
                Wait::SpinThenFutex(spins.min(GOMP_SPINS_CROWDED))
            }
            _ => wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_waiting_are_the_runtimes_own_variables() {
        let text = |runtime: OpenMp, wait| {
            let variables = runtime.policy(wait).into_iter();
            variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(OpenMp::Libgomp, Wait::HINT), "OMP_WAIT_POLICY=active");
        assert_eq!(text(OpenMp::Libgomp, Wait::SpinThenFutex(7)), "GOMP_SPINCOUNT=7");
        assert_eq!(text(OpenMp::Libomp, Wait::Sleep), "OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0");
        assert_eq!(text(OpenMp::Libomp, Wait::HINT), "OMP_WAIT_POLICY=active KMP_BLOCKTIME=infinite");
        // And back: what the environment of an engine makes of them.
        for runtime in OpenMp::ALL {
            for wait in runtime.row().waits {
                let variables = runtime.policy(*wait);
                let find = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.clone());
                assert_eq!(runtime.wait_of(find), *wait, "{}", runtime.name());
            }
        }
        assert_eq!(OpenMp::Libgomp.wait_of(|_| None), Wait::SpinThenFutex(300_000));
        assert_eq!(OpenMp::Libomp.wait_of(|_| None), Wait::HINT);
        // What its manual says of more threads than CPUs.
        assert_eq!(OpenMp::Libgomp.waits_by(Wait::HINT, true), Wait::SpinThenFutex(1000));
        assert_eq!(OpenMp::Libgomp.waits_by(Wait::SpinThenFutex(300_000), true), Wait::SpinThenFutex(100));
        assert_eq!(OpenMp::Libgomp.waits_by(Wait::HINT, false), Wait::HINT);
    }
}
