//! Central counter whose waiters spin for a while and then sleep, as libgomp's do, so that they do no harm for long where
//! others need the CPUs.
//!
//! Line transfers an episode as for the central counter while all spin. Whoever sleeps marks the word that it sleeps on, so
//! the last arriver makes a system call only if somebody does (libgomp makes it always).

use super::sync::{AtomicU32, Futex, Ordering};
use super::{Barrier, EPISODE_ZERO, Seating, Wait, wait};
use crossbeam_utils::CachePadded;

/// In `state`: somebody sleeps. The bits above hold the number of the last episode that all have entered.
const ASLEEP: u32 = 1;

/// See the module's text.
#[derive(Debug)]
pub struct SpinThenFutex {
    /// Arrivals in all episodes.
    arrived: CachePadded<AtomicU32>,
    state: CachePadded<Futex>,
    threads: u32,
    wait: Wait,
}

impl SpinThenFutex {
    /// A barrier for these threads. It sleeps only where they are to wait by spin-N-futex.
    pub fn new(seating: &Seating) -> Self {
        SpinThenFutex {
            arrived: CachePadded::new(AtomicU32::new(EPISODE_ZERO.wrapping_mul(seating.threads()))),
            state: CachePadded::new(Futex::new(EPISODE_ZERO << 1)),
            threads: seating.threads(),
            wait: seating.wait,
        }
    }

    /// Spins, then sleeps, until the word is no longer `before`, marked or not.
    #[inline]
    fn wait_beyond(&self, before: u32) {
        let word = &self.state.word;
        // Acquire, here and below: pairs with the last arriver's swap.
        let over = |now: u32| now & !ASLEEP != before;
        let Wait::SpinThenFutex(spins) = self.wait else {
            return self.wait.until(word, Ordering::Acquire, over);
        };
        if !wait::spin(spins, || !over(word.load(Ordering::Acquire))) {
            self.sleep(before);
        }
    }

    /// Sleeps until the word is no longer `before`, marked or not.
    #[cold]
    fn sleep(&self, before: u32) {
        let marked = before | ASLEEP;
        // By exchange, which fails after the last arriver's swap: so the next episode's word is not marked for nothing. It
        // also fails where another sleeper was first. Relaxed: it publishes nothing, and the load below acquires.
        let _ = self.state.word.compare_exchange(before, marked, Ordering::Relaxed, Ordering::Relaxed);
        // The kernel compares once more before it puts the thread to sleep, so a swap in between is not slept through.
        while self.state.word.load(Ordering::Acquire) == marked {
            self.state.sleep(marked);
        }
    }
}

impl Barrier for SpinThenFutex {
    /// The last episode that the thread has entered.
    type Member = u32;

    fn member(&self, _thread: usize) -> u32 {
        EPISODE_ZERO
    }

    #[inline]
    fn wait(&self, episode: &mut u32) {
        let before = *episode << 1;
        *episode = episode.wrapping_add(1);
        // AcqRel: releases this thread's writes to the last arriver, and there acquires those of all others.
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        if arrived != episode.wrapping_mul(self.threads) {
            return self.wait_beyond(before);
        }
        // Release: pairs with the Acquire loads of the waiters. One step with looking for the mark: a thread that marks the
        // word later finds it changed.
        if self.state.word.swap(*episode << 1, Ordering::Release) & ASLEEP != 0 {
            self.state.wake_all();
        }
    }
}
