//! Barriers: one file and one table row an algorithm.
//!
//! [`Barrier`] is the contract: nobody leaves episode *k* before all have entered it, and what was written before it is
//! visible after it. [`Algorithm::with`] picks an algorithm once a measurement and then runs code that is compiled for
//! that type alone, so an episode has no dispatch.
//!
//! They differ in who writes which cache line, and so in how many transfers of a line follow one another before the last
//! thread leaves; each file begins with that count:
//!
//! * [`Central`], [`SenseReversing`] and [`SpinThenFutex`] count arrivals in one word: about n transfers in a row.
//! * [`CombiningTree`] and [`TwoLevel`] count in several, [`TwoLevel`] in one for each last-level cache.
//! * [`McsTree`], [`Tournament`] and [`Dissemination`] have a word for each message between two threads: about log n in a
//!   row.
//! * [`Standard`] asks the operating system.
//!
//! How a thread waits for a word is a [`Wait`], given apart from the algorithm. The same source runs under the checkers
//! loom and shuttle in `tests/model`, which is why all atomics come from `sync`.

mod central;
mod combining_tree;
mod dissemination;
#[cfg(not(model))]
mod openmp;
#[cfg(not(model))]
mod plugin;
mod futex;
mod mcs_tree;
mod sense;
mod standard;
mod sync;
mod tournament;
mod tree;
mod two_level;
mod wait;

pub use central::Central;
pub use combining_tree::CombiningTree;
pub use dissemination::{Dissemination, DisseminationMember};
pub use futex::SpinThenFutex;
pub use mcs_tree::{McsTree, McsTreeMember};
#[cfg(not(model))]
pub use plugin::{Plugin, PluginBarrier};
pub use sense::SenseReversing;
pub use standard::Standard;
pub use tournament::{Tournament, TournamentMember};
pub use tree::TreeMember;
pub use two_level::TwoLevel;
pub use wait::{UNKNOWN_WAIT, Wait};

/// The episode before the first, where episodes are numbered. The numbers wrap two episodes later, so whoever runs a
/// barrier also tries that: Linux starts its tick counter so for the same reason.
const EPISODE_ZERO: u32 = u32::MAX - 1;

/// A reusable barrier for a fixed number of threads.
///
/// # Contract
/// * `member(i)` is taken once by each of the threads `0..threads`, and every member calls `wait` in every episode.
/// * No call of `wait` returns before all members have called it for the same episode.
/// * All that a member wrote before `wait` is visible to every member after `wait` (release on entry, acquire on exit).
///
/// # Example
/// ```
/// use membar::barrier::{Barrier, Wait};
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// /// Counts arrivals and never starts again: a thread's n-th episode ends when all have arrived n times.
/// struct Counter {
///     arrived: AtomicU32,
///     threads: u32,
/// }
///
/// impl Barrier for Counter {
///     /// Arrivals after which the thread may leave.
///     type Member = u32;
///
///     fn member(&self, _thread: usize) -> u32 {
///         0
///     }
///
///     fn wait(&self, due: &mut u32) {
///         *due = due.wrapping_add(self.threads);
///         self.arrived.fetch_add(1, Ordering::AcqRel);
///         let over = |arrived: u32| arrived.wrapping_sub(*due) as i32 >= 0;
///         Wait::HINT.until(&self.arrived, Ordering::Acquire, over);
///     }
/// }
///
/// let barrier = Counter { arrived: AtomicU32::new(0), threads: 2 };
/// let written = AtomicU32::new(0);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         written.store(5, Ordering::Relaxed);
///         barrier.wait(&mut barrier.member(0));
///     });
///     barrier.wait(&mut barrier.member(1));
///     assert_eq!(written.load(Ordering::Relaxed), 5);
/// });
/// ```
pub trait Barrier: Sync {
    /// What one thread keeps between episodes.
    type Member: Send;

    /// The state of thread number `thread`, before its first episode.
    fn member(&self, thread: usize) -> Self::Member;

    /// Waits until all threads have come.
    fn wait(&self, member: &mut Self::Member);
}

/// The threads of a barrier: how they wait and how they lie in the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seating {
    /// How they wait.
    pub wait: Wait,
    /// One number a thread, the same for threads that lie close to each other, such as those of one last-level cache. Only
    /// [`TwoLevel`] looks at more than their count.
    pub groups: Vec<u32>,
}

impl Seating {
    /// `threads` threads of one group.
    pub fn flat(threads: usize, wait: Wait) -> Seating {
        Seating { wait, groups: vec![0; threads] }
    }

    /// How many they are.
    fn threads(&self) -> u32 {
        self.groups.len() as u32
    }
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
    /// Transfers of a cache line in an episode of so many threads in so many groups, where they are known: what its cost is
    /// made of, each about as long as a line takes between two cores.
    pub transfers: fn(u64, u64) -> Option<Transfers>,
    /// Ways of waiting that it can use, with any number of spins, if the machine can; the first is the default.
    pub waits: &'static [Wait],
}

/// Fetches of a line by a core that does not have it, or may not write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// By all threads.
    pub all: u64,
    /// Of those, one after another before the last thread leaves.
    pub in_a_row: u64,
}

impl Transfers {
    /// A counter and the word that its `n` threads watch: each arrival fetches the counter, the last one the word, and all
    /// others the word again.
    const fn counter(n: u64) -> Transfers {
        if n > 1 { Transfers { all: 2 * n, in_a_row: n + 2 } } else { Transfers { all: 0, in_a_row: 0 } }
    }

    fn and(self, other: Transfers) -> Transfers {
        Transfers { all: self.all + other.all, in_a_row: self.in_a_row + other.in_a_row }
    }

    /// A tree of counters of four.
    fn combining(n: u64) -> Transfers {
        let (mut sum, mut threads) = (Transfers::default(), n);
        while threads > 1 {
            let counters = threads.div_ceil(4);
            let sizes = (0..counters).map(|counter| 4.min(threads - 4 * counter));
            let all = sizes.map(|size| Transfers::counter(size).all).sum();
            sum = sum.and(Transfers { all, in_a_row: Transfers::counter(threads.min(4)).in_a_row });
            threads = counters;
        }
        sum
    }

    /// Signals between two threads, each of which takes its word to the writer and then to the reader.
    fn signals(all: u64, in_a_row: u64) -> Transfers {
        Transfers { all: 2 * all, in_a_row: 2 * in_a_row }
    }
}

/// Levels of a tree in which each thread stands for `fan` others: ⌈log n⌉ to that base.
fn levels(n: u64, fan: u64) -> u64 {
    let (mut levels, mut reach) = (0, 1u64);
    while reach < n {
        reach = reach.saturating_mul(fan);
        levels += 1;
    }
    levels
}

/// Declares the table. A row is: variant, type, name, summary, source, transfers, ways of waiting.
macro_rules! algorithms {
    ($($variant:ident = $type:ty { $name:literal, $summary:literal, $source:literal, $transfers:expr, $waits:expr })*) => {
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
                        const ROW: Row =
                            Row { name: $name, summary: $summary, source: $source, transfers: $transfers, waits: $waits };
                        &ROW
                    })*
                }
            }

            /// Builds a barrier for these threads, and runs `body` with it.
            pub fn with<W: WithBarrier>(self, seating: &Seating, body: W) -> W::Output {
                match self {
                    $(Algorithm::$variant => body.call(&<$type>::new(seating)),)*
                }
            }
        }
    };
}

/// On one line every arrival also takes it from those who watch it, who fetch it again.
fn one_line(n: u64, _groups: u64) -> Option<Transfers> {
    let again = n * n.saturating_sub(1) / 2;
    Some(Transfers::counter(n).and(Transfers { all: again, in_a_row: 0 }))
}

/// Counters of groups of about equal size, and one of the groups.
fn two_level_transfers(n: u64, groups: u64) -> Option<Transfers> {
    let groups = groups.clamp(1, n.max(1));
    let inside = Transfers::counter(n.div_ceil(groups));
    Some(Transfers { all: inside.all * groups, ..inside }.and(Transfers::counter(groups)))
}

algorithms! {
    Central = Central {
        "central",
        "one arrival counter and a generation on another line",
        "llama.cpp ggml_barrier without OpenMP (ggml-cpu.c, build b11434)",
        |n, _| Some(Transfers::counter(n)),
        Wait::POLLING
    }
    CentralOneLine = Central<1> {
        "central-one-line",
        "central with both words on one line, to show what that costs",
        "llama.cpp ggml_barrier without OpenMP, before its words were padded",
        one_line,
        Wait::POLLING
    }
    CentralYield = Central<1> {
        "central-yield",
        "central on one line; a waiter gives its CPU away after every 100,000 looks",
        "ik_llama.cpp ggml_barrier without OpenMP (ggml.c)",
        one_line,
        &[Wait::SpinThenYield(100_000)]
    }
    SenseReversing = SenseReversing {
        "sense-reversing",
        "one arrival counter and a sense that flips",
        "Mellor-Crummey and Scott 1991, algorithm 7",
        |n, _| Some(Transfers::counter(n)),
        Wait::POLLING
    }
    CombiningTree = CombiningTree {
        "combining-tree",
        "counters of four, whose last arrivers meet at counters of four",
        "Yew, Tzeng and Lawrie 1987; Mellor-Crummey and Scott 1991, algorithm 8",
        |n, _| Some(Transfers::combining(n)),
        Wait::POLLING
    }
    TwoLevel = TwoLevel {
        "two-level",
        "one counter a last-level cache, and one for their last arrivers",
        "combining-tree, its nodes given by the machine",
        two_level_transfers,
        Wait::POLLING
    }
    McsTree = McsTree {
        "mcs-tree",
        "each thread waits for four, tells its parent and wakes two",
        "Mellor-Crummey and Scott 1991, algorithm 11",
        |n, _| {
            let all = 2 * (n - 1);
            Some(Transfers::signals(all, all.min(4 * levels(n, 4) + 2 * levels(n, 2))))
        },
        Wait::POLLING
    }
    Tournament = Tournament {
        "tournament",
        "log2(n) rounds of pairs with fixed winners, and back",
        "Hensgen, Finkel and Manber 1988; Mellor-Crummey and Scott 1991, algorithm 10",
        |n, _| Some(Transfers::signals(2 * (n - 1), 2 * levels(n, 2))),
        Wait::POLLING
    }
    Dissemination = Dissemination {
        "dissemination",
        "log2(n) rounds of pairwise signals, nobody in the middle",
        "Hensgen, Finkel and Manber 1988; Mellor-Crummey and Scott 1991, algorithm 9",
        |n, _| Some(Transfers::signals(n * levels(n, 2), levels(n, 2))),
        Wait::POLLING
    }
    Futex = SpinThenFutex {
        "futex",
        "one arrival counter and an episode on which a waiter sleeps after spinning",
        "GNU libgomp's barrier and its spin count (config/linux); Drepper, Futexes are tricky",
        |n, _| Some(Transfers::counter(n)),
        &[Wait::SpinThenFutex(300_000)]
    }
    Standard = Standard {
        "std",
        "std::sync::Barrier: a mutex and a condition variable",
        "Rust standard library",
        |_, _| None,
        &[Wait::Sleep]
    }
}

impl Algorithm {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

#[cfg(all(test, not(model)))]
mod tests;
