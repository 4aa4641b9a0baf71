//! Every row against the contract on real threads, and a broken barrier that the same check must catch.

use super::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Runs `episodes` episodes on `threads` threads. Each thread writes its own plain-ordered word before the barrier and
/// reads everybody's after it; counts the times a word was older than the episode.
struct Stress {
    threads: usize,
    episodes: u32,
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
                        if random.u32(..64) == 0 {
                            std::thread::yield_now();
                        }
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

#[test]
fn nobody_leaves_before_all_have_come() {
    for algorithm in Algorithm::ALL {
        for threads in [1, 2, 3, 4, 5, 8] {
            let wait = *algorithm.row().waits.last().unwrap();
            let stale = algorithm.with(threads, wait, Stress { threads, episodes: 500 });
            assert_eq!(stale, 0, "{} with {threads} threads", algorithm.name());
        }
    }
}

#[test]
fn every_wait_of_every_row_works() {
    for algorithm in Algorithm::ALL {
        for wait in algorithm.row().waits {
            let stale = algorithm.with(2, *wait, Stress { threads: 2, episodes: 200 });
            assert_eq!(stale, 0, "{} waiting by {wait}", algorithm.name());
        }
    }
}

/// Lets everybody through at once.
struct Open;

impl Barrier for Open {
    type Member = ();
    fn member(&self, _thread: usize) {}
    fn wait(&self, (): &mut ()) {}
}

/// Releases when all but one have come.
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

#[test]
fn the_stress_test_can_fail() {
    let stress = || Stress { threads: 4, episodes: 2000 };
    assert!(stress().call(&Open) > 0);
    assert!(stress().call(&OneShort(Central::new(3, Wait::SpinThenYield(10)))) > 0);
}

#[test]
fn names_are_unique_and_found() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::find(algorithm.name()).unwrap(), *algorithm);
    }
    let error = Algorithm::find("hypercube").unwrap_err().to_string();
    assert!(error.contains("central") && error.contains("dissemination"), "{error}");
}

#[test]
fn wait_tokens_round_trip() {
    for wait in [Wait::Spin, Wait::Hint, Wait::SpinThenYield(1000), Wait::SpinThenFutex(20), Wait::Sleep] {
        assert_eq!(Wait::parse(&wait.to_string()).unwrap(), wait);
        assert_eq!(Wait::try_from(wait.to_string()), Ok(wait));
    }
    assert_eq!(Wait::try_from(Wait::Unknown.to_string()), Ok(Wait::Unknown));
    for token in ["", "unknown", "spin-", "spin-5-futexes", "spin-x-yield", "doze"] {
        assert!(Wait::parse(token).is_err(), "{token}");
    }
}
