//! Barriers: one file and one table row an algorithm.
//!
//! [`Barrier`] is the contract: nobody leaves episode *k* before all have entered it, and what was written before it is
//! visible after it. [`Algorithm::with`] picks an algorithm once a measurement and then runs code that is compiled for
//! that type alone, so an episode has no dispatch.

mod central;
mod dissemination;
mod openmp;
mod plugin;
mod sense;
mod standard;
mod wait;

pub use central::Central;
pub use dissemination::{Dissemination, DisseminationMember};
pub use plugin::{Plugin, PluginBarrier};
pub use sense::SenseReversing;
pub use standard::Standard;
pub use wait::{UNKNOWN_WAIT, Wait};

use crate::error::{Error, Result};

/// A reusable barrier for a fixed number of threads.
///
/// # Contract
/// * `member(i)` is taken once by each of the threads `0..threads`, and every member calls `wait` in every episode.
/// * No call of `wait` returns before all members have called it for the same episode.
/// * All that a member wrote before `wait` is visible to every member after `wait` (release on entry, acquire on exit).
pub trait Barrier: Sync {
    /// What one thread keeps between episodes.
    type Member: Send;

    /// The state of thread number `thread`, before its first episode.
    fn member(&self, thread: usize) -> Self::Member;

    /// Waits until all threads have come.
    fn wait(&self, member: &mut Self::Member);
}

/// Code that works with any barrier: what a measurement passes to [`Algorithm::with`].
pub trait WithBarrier {
    /// What it returns.
    type Output;
    /// Runs with the barrier that was asked for.
    fn call<B: Barrier>(self, barrier: &B) -> Self::Output;
}

/// One line of the barrier table.
#[derive(Debug)]
pub struct Row {
    /// Its name on the command line, in files and in records.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The paper or program that it follows.
    pub source: &'static str,
    /// Ways of waiting that it can use; the first is the default.
    pub waits: &'static [Wait],
}

/// Declares the table. A row is: variant, type, name, summary, source, ways of waiting.
macro_rules! algorithms {
    ($($variant:ident = $type:ty { $name:literal, $summary:literal, $source:literal, $waits:expr })*) => {
        /// A barrier algorithm of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Algorithm {
            $(#[doc = $summary] $variant,)*
        }

        impl Algorithm {
            /// Every algorithm, in table order.
            pub const ALL: &[Algorithm] = &[$(Algorithm::$variant),*];

            /// Its line of the table.
            pub fn row(self) -> &'static Row {
                match self {
                    $(Algorithm::$variant => {
                        const ROW: Row = Row { name: $name, summary: $summary, source: $source, waits: $waits };
                        &ROW
                    })*
                }
            }

            /// Builds a barrier for `threads` threads that wait by `wait`, and runs `body` with it.
            pub fn with<W: WithBarrier>(self, threads: usize, wait: Wait, body: W) -> W::Output {
                match self {
                    $(Algorithm::$variant => body.call(&<$type>::new(threads, wait)),)*
                }
            }
        }
    };
}

algorithms! {
    Central = Central {
        "central",
        "one arrival counter and a generation on another line",
        "llama.cpp ggml_barrier without OpenMP (ggml-cpu.c, build b11434)",
        Wait::SPINNING
    }
    SenseReversing = SenseReversing {
        "sense-reversing",
        "one arrival counter and a sense that flips",
        "Mellor-Crummey and Scott 1991, algorithm 7",
        Wait::SPINNING
    }
    Dissemination = Dissemination {
        "dissemination",
        "log2(n) rounds of pairwise signals, nobody in the middle",
        "Hensgen, Finkel and Manber 1988; Mellor-Crummey and Scott 1991, algorithm 9",
        Wait::SPINNING
    }
    Standard = Standard {
        "std",
        "std::sync::Barrier: a mutex and a condition variable",
        "Rust standard library",
        &[Wait::Sleep]
    }
}

impl Algorithm {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The algorithm of that name.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn find(name: &str) -> Result<Algorithm> {
        Algorithm::ALL.iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
            Error::usage(
                format!("use the barrier '{name}'"),
                "there is no such algorithm",
                format!("name one of {}", names.join(", ")),
            )
        })
    }
}

#[cfg(test)]
mod tests;
