//! Every row against the contract on real threads, and broken barriers that the same check must catch. What the memory of
//! x86 hides, `tests/model` looks for.

use super::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Runs `episodes` episodes on `threads` threads, which come late at random. Each thread writes its own plain-ordered word
/// before the barrier and reads everybody's after it; counts the times a word was older than the episode.
struct Stress {
    threads: usize,
    episodes: u32,
}

/// Sometimes comes late: by a few loads, by what it takes to let others run, by a sleep.
fn delay(random: &mut fastrand::Rng) {
    match random.u32(..256) {
        0 => std::thread::sleep(Duration::from_micros(random.u64(..50))),
        1..8 => std::thread::yield_now(),
        8..64 => (0..random.u32(..500)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

impl WithBarrier for Stress {
    type Output = u64;

    fn call<B: Barrier>(self, barrier: &B) -> u64 {
        let words: Vec<AtomicU32> = (0..self.threads).map(|_| AtomicU32::new(0)).collect();
        let stale = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let (words, stale) = (&words, &stale);
                scope.spawn(move || {
                    let mut member = barrier.member(thread);
                    let mut random = fastrand::Rng::with_seed(thread as u64);
                    for episode in 1..=self.episodes {
                        delay(&mut random);
                        words[thread].store(episode, Ordering::Relaxed);
                        barrier.wait(&mut member);
                        let old = words.iter().filter(|word| word.load(Ordering::Relaxed) < episode).count();
                        stale.fetch_add(old as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        stale.into_inner()
    }
}

/// The default of the row where there is a CPU for each thread; else one that gives the CPU away soon: a test that waits
/// for time slices takes minutes.
fn wait_for(algorithm: Algorithm, threads: usize) -> Wait {
    let default = algorithm.row().waits[0];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let giving = [Wait::SpinThenYield(50), Wait::SpinThenFutex(50)];
    giving
        .into_iter()
        .find(|wait| threads > cpus && algorithm.row().waits.iter().any(|known| known.is_like(*wait)))
        .unwrap_or(default)
}

#[test]
fn nobody_leaves_before_all_have_come() {
    for algorithm in Algorithm::ALL {
        for threads in [1, 2, 3, 4, 5, 8] {
            let seating = Seating::flat(threads, wait_for(*algorithm, threads));
            let stale = algorithm.with(&seating, Stress { threads, episodes: 400 });
            assert_eq!(stale, 0, "{} with {threads} threads", algorithm.name());
        }
    }
}

#[test]
fn groups_may_be_uneven_single_and_of_one_thread() {
    for groups in [vec![7, 7, 7, 2, 9, 9], vec![1, 0, 1, 1], vec![3, 1, 2, 0], vec![5; 4], vec![5]] {
        let threads = groups.len();
        let seating = Seating { wait: wait_for(Algorithm::TwoLevel, threads), groups };
        let stale = Algorithm::TwoLevel.with(&seating, Stress { threads, episodes: 400 });
        assert_eq!(stale, 0, "{seating:?}");
    }
}

#[test]
fn every_wait_of_every_row_works() {
    for algorithm in Algorithm::ALL {
        for wait in algorithm.row().waits {
            if let Some(reason) = wait.unusable() {
                println!("not run: {} waiting by {wait}: {reason}", algorithm.name());
                continue;
            }
            let stale = algorithm.with(&Seating::flat(2, *wait), Stress { threads: 2, episodes: 200 });
            assert_eq!(stale, 0, "{} waiting by {wait}", algorithm.name());
        }
    }
}

#[test]
fn a_way_of_waiting_that_is_missing_here_becomes_another() {
    for wait in Wait::ALL {
        let stale = Algorithm::Dissemination.with(&Seating::flat(2, *wait), Stress { threads: 2, episodes: 50 });
        assert_eq!(stale, 0, "{wait}");
    }
}

/// Lets everybody through at once.
struct Open;

impl Barrier for Open {
    type Member = ();
    fn member(&self, _thread: usize) {}
    fn wait(&self, (): &mut ()) {}
}

/// Opens when all but one have come.
struct OneShort(Central);

impl Barrier for OneShort {
    type Member = usize;
    fn member(&self, thread: usize) -> usize {
        thread
    }
    fn wait(&self, thread: &mut usize) {
        if *thread > 0 {
            self.0.wait(&mut ());
        }
    }
}

/// Works once: it stays open.
struct Once(AtomicU32, u32);

impl Barrier for Once {
    type Member = ();
    fn member(&self, _thread: usize) {}
    fn wait(&self, (): &mut ()) {
        self.0.fetch_add(1, Ordering::AcqRel);
        Wait::SpinThenYield(50).until(&self.0, Ordering::Acquire, |arrived| arrived >= self.1);
    }
}

#[test]
fn the_stress_test_can_fail() {
    let stress = || Stress { threads: 4, episodes: 2000 };
    assert!(stress().call(&Open) > 0);
    assert!(stress().call(&OneShort(Central::new(&Seating::flat(3, Wait::SpinThenYield(10))))) > 0);
    assert!(stress().call(&Once(AtomicU32::new(0), 4)) > 0);
}

#[test]
fn defaults_run_everywhere() {
    for algorithm in Algorithm::ALL {
        let default = algorithm.row().waits[0];
        assert_eq!(default.unusable(), None, "{}: the default runs everywhere", algorithm.name());
    }
}

#[test]
fn records_have_the_waits_of_all_machines_and_the_command_line_those_of_this_one() {
    for wait in Wait::ALL.iter().copied().chain([Wait::SpinThenYield(1000), Wait::SpinThenFutex(0)]) {
        assert_eq!(Wait::try_from(wait.to_string()), Ok(wait));
        match wait.unusable() {
            None => assert_eq!(Wait::parse(&wait.to_string()).unwrap(), wait),
            Some(reason) => {
                let error = Wait::parse(&wait.to_string()).unwrap_err();
                assert_eq!(error.kind(), crate::error::Kind::Usage);
                let text = error.to_string();
                assert!(text.contains(reason) && text.contains("name one of spin, "), "{text}");
                let listed = text.split_once("name one of ").unwrap().1;
                assert!(listed.split(", ").all(|token| token != wait.to_string()), "{text}");
            }
        }
    }
    let (here, elsewhere) = if cfg!(target_arch = "aarch64") { ("isb", "pause") } else { ("pause", "isb") };
    assert!(Wait::parse(here).is_ok() && Wait::parse(elsewhere).is_err());
    for token in ["", "spin-", "spin-x-yield", "spin-5", "spin-5-doze", "spin--1-yield", "doze"] {
        assert!(Wait::parse(token).is_err() && Wait::try_from(token.to_owned()).is_err(), "{token}");
    }
}

#[test]
fn transfers_are_those_that_the_files_state() {
    let of = |name: &str, threads, groups| {
        let row = Algorithm::ALL.iter().map(|algorithm| algorithm.row()).find(|row| row.name == name).unwrap();
        let found = (row.transfers)(threads, groups).unwrap();
        (found.all, found.in_a_row)
    };
    assert_eq!(of("central", 8, 1), (16, 10));
    assert_eq!(of("central-one-line", 8, 1), (16 + 28, 10));
    assert_eq!(of("combining-tree", 16, 1), (16 * 2 + 8, 12));
    assert_eq!(of("combining-tree", 6, 1), (8 + 4 + 4, 6 + 4));
    assert_eq!(of("two-level", 16, 4), (16 * 2 + 8, 12));
    assert_eq!(of("two-level", 16, 1), of("central", 16, 1));
    assert_eq!(of("tournament", 8, 1), (28, 12));
    assert_eq!(of("mcs-tree", 8, 1), (28, 8 * 2 + 4 * 3));
    assert_eq!(of("dissemination", 8, 1), (48, 6));
    assert_eq!(of("dissemination", 9, 1), (72, 8));
    assert!((Algorithm::Standard.row().transfers)(8, 1).is_none());
    for algorithm in Algorithm::ALL {
        for (threads, groups) in (1..70).flat_map(|threads| [(threads, 1), (threads, 3), (threads, 8)]) {
            let found = (algorithm.row().transfers)(threads, groups);
            let fits = found.is_none_or(|found| found.in_a_row <= found.all.max(4));
            assert!(fits, "{} with {threads} threads in {groups} groups: {found:?}", algorithm.name());
        }
    }
    for algorithm in Algorithm::ALL {
        assert!((algorithm.row().transfers)(1, 1).is_none_or(|alone| alone.in_a_row == 0), "{}", algorithm.name());
    }
}
