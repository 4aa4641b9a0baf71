//! Every interleaving with few preemptions, and every value that the memory model lets a load see, of a few threads.
#![cfg(feature = "loom")]

use membar_model::barrier::*;
use membar_model::broken::{Counter, MissedWakeUp, Once};
use membar_model::property::holds;

/// Runs a model with at most so many preemptions: switches away from a thread that could go on.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// How the threads of a model wait: loom switches threads at every hint.
fn flat(threads: usize) -> Seating {
    Seating::flat(threads, Wait::HINT)
}

/// A test a barrier: two threads that meet three times, and three that meet twice with so many preemptions.
macro_rules! rows {
    ($($name:ident, $preemptions:literal: $new:expr;)*) => { $(
        #[test]
        fn $name() {
            let new: fn(usize) -> _ = $new;
            explore(3, move || holds(new(2), 2, 3));
            explore($preemptions, move || holds(new(3), 3, 2));
        }
    )* };
}

rows! {
    central, 2: |threads| Central::<2>::new(&flat(threads));
    central_one_line, 2: |threads| Central::<1>::new(&flat(threads));
    central_yield, 2: |threads| Central::<1>::new(&Seating::flat(threads, Wait::SpinThenYield(1)));
    sense_reversing, 2: |threads| SenseReversing::new(&flat(threads));
    combining_tree, 2: |threads| CombiningTree::new(&flat(threads));
    two_level_one_group, 2: |threads| TwoLevel::new(&flat(threads));
    two_level_two_groups, 2: |threads| {
        TwoLevel::new(&Seating { wait: Wait::HINT, groups: (0..threads as u32).map(|thread| thread / 2).collect() })
    };
    mcs_tree, 2: |threads| McsTree::new(&flat(threads));
    tournament, 2: |threads| Tournament::new(&flat(threads));
    dissemination, 1: |threads| Dissemination::new(&flat(threads));
    futex_asleep_at_once, 2: |threads| SpinThenFutex::new(&Seating::flat(threads, Wait::SpinThenFutex(0)));
    futex_asleep_soon, 2: |threads| SpinThenFutex::new(&Seating::flat(threads, Wait::SpinThenFutex(1)));
    the_sound_counter_of_the_broken_ones, 2: |threads| Counter::right(threads as u32);
}

#[test]
fn two_level_with_two_groups_of_two() {
    let groups = || Seating { wait: Wait::HINT, groups: vec![0, 0, 1, 1] };
    explore(1, move || holds(TwoLevel::new(&groups()), 4, 1));
}

#[test]
fn tournament_of_four() {
    explore(1, || holds(Tournament::new(&flat(4)), 4, 1));
}

#[test]
fn sense_reversing_of_four() {
    explore(1, || holds(SenseReversing::new(&flat(4)), 4, 1));
}

#[test]
#[should_panic(expected = "left the barrier before all had come")]
fn opening_early_is_caught() {
    explore(2, || holds(Counter::early(3), 3, 1));
}

#[test]
#[should_panic(expected = "left the barrier before all had come")]
fn a_barrier_that_works_once_is_caught() {
    explore(2, || holds(Once { arrived: Default::default(), threads: 2 }, 2, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_release_that_orders_nothing_is_caught() {
    explore(2, || holds(Counter::unreleased(2), 2, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_waiter_that_acquires_nothing_is_caught() {
    explore(2, || holds(Counter::unacquired(2), 2, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_missed_wake_up_is_caught() {
    explore(2, || holds(MissedWakeUp::new(2), 2, 1));
}
