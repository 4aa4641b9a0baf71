//! Random interleavings of more threads than can be explored.
#![cfg(feature = "shuttle")]

use membar_model::barrier::*;
use membar_model::broken::{Counter, MissedWakeUp, Once};
use membar_model::property::holds;

/// Schedules of each model.
const SCHEDULES: usize = 200;
/// Schedules among which a mistake must show that few of them hit; the first that does ends the test.
const RARE: usize = 100_000;
/// The same schedules in every run: a test that fails once fails again.
const SEED: u64 = 1;
/// Episodes of each model.
const EPISODES: u32 = 3;

/// Runs a model under random schedules.
fn sample(model: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random_with_seed(model, SEED, SCHEDULES);
}

/// How the threads of a model wait: shuttle may switch threads at every hint.
fn flat(threads: usize) -> Seating {
    Seating::flat(threads, Wait::HINT)
}

/// A test a barrier, for 5 to 9 threads.
macro_rules! rows {
    ($($name:ident: $new:expr;)*) => { $(
        #[test]
        fn $name() {
            let new: fn(usize) -> _ = $new;
            for threads in 5..=9 {
                sample(move || holds(new(threads), threads, EPISODES));
            }
        }
    )* };
}

rows! {
    central: |threads| Central::<2>::new(&flat(threads));
    central_one_line: |threads| Central::<1>::new(&flat(threads));
    central_yield: |threads| Central::<1>::new(&Seating::flat(threads, Wait::SpinThenYield(2)));
    sense_reversing: |threads| SenseReversing::new(&flat(threads));
    combining_tree: |threads| CombiningTree::new(&flat(threads));
    two_level_uneven: |threads| {
        let groups = (0..threads as u32).map(|thread| (thread + 1).ilog2()).collect();
        TwoLevel::new(&Seating { wait: Wait::HINT, groups })
    };
    two_level_alone: |threads| TwoLevel::new(&Seating { wait: Wait::HINT, groups: (0..threads as u32).collect() });
    mcs_tree: |threads| McsTree::new(&flat(threads));
    tournament: |threads| Tournament::new(&flat(threads));
    dissemination: |threads| Dissemination::new(&flat(threads));
    futex: |threads| SpinThenFutex::new(&Seating::flat(threads, Wait::SpinThenFutex(1)));
}

#[test]
fn the_combining_tree_of_three_levels() {
    sample(|| holds(CombiningTree::new(&flat(18)), 18, 2));
}

#[test]
#[should_panic(expected = "left the barrier before all had come")]
fn opening_early_is_caught() {
    sample(|| holds(Counter::early(5), 5, EPISODES));
}

#[test]
#[should_panic(expected = "left the barrier before all had come")]
fn a_barrier_that_works_once_is_caught() {
    sample(|| holds(Once { arrived: Default::default(), threads: 5 }, 5, EPISODES));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_missed_wake_up_is_caught() {
    shuttle::check_random_with_seed(|| holds(MissedWakeUp::new(2), 2, EPISODES), SEED, RARE);
}
