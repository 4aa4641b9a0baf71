//! Barriers with one mistake each.

use crate::barrier::{Barrier, Wait};
use crate::checker::{AtomicU32, Condvar, Mutex};
use std::sync::atomic::Ordering;

/// A central counter with a generation. Right for `all` = threads, a release that releases and a waiter that acquires.
pub struct Counter {
    arrived: AtomicU32,
    generation: AtomicU32,
    /// Arrivals that open it.
    all: u32,
    release: Ordering,
    acquire: Ordering,
}

impl Counter {
    /// Without a mistake.
    pub fn right(threads: u32) -> Counter {
        Counter {
            arrived: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            all: threads,
            release: Ordering::Release,
            acquire: Ordering::Acquire,
        }
    }

    /// Opens when all but one have come.
    pub fn early(threads: u32) -> Counter {
        Counter { all: threads - 1, ..Counter::right(threads) }
    }

    /// Opens in time, but the last arriver's release orders nothing.
    pub fn unreleased(threads: u32) -> Counter {
        Counter { release: Ordering::Relaxed, ..Counter::right(threads) }
    }

    /// Opens in time, but waiters acquire nothing.
    pub fn unacquired(threads: u32) -> Counter {
        Counter { acquire: Ordering::Relaxed, ..Counter::right(threads) }
    }
}

impl Barrier for Counter {
    type Member = ();

    fn member(&self, _thread: usize) {}

    fn wait(&self, (): &mut ()) {
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.all {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, self.release);
        } else {
            Wait::HINT.until(&self.generation, self.acquire, |now| now != generation);
        }
    }
}

/// Has no generation: the second episode finds it open.
pub struct Once {
    /// Those that have come.
    pub arrived: AtomicU32,
    /// Those that must come.
    pub threads: u32,
}

impl Barrier for Once {
    type Member = ();

    fn member(&self, _thread: usize) {}

    fn wait(&self, (): &mut ()) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        Wait::HINT.until(&self.arrived, Ordering::Acquire, |arrived| arrived >= self.threads);
    }
}

/// Looks for sleepers before it opens, so that a thread which falls asleep in between is never woken.
pub struct MissedWakeUp {
    counter: Counter,
    asleep: AtomicU32,
    queue: (Mutex<()>, Condvar),
}

impl MissedWakeUp {
    /// For so many threads.
    pub fn new(threads: u32) -> MissedWakeUp {
        let queue = (Mutex::new(()), Condvar::new());
        MissedWakeUp { counter: Counter::right(threads), asleep: AtomicU32::new(0), queue }
    }
}

impl Barrier for MissedWakeUp {
    type Member = ();

    fn member(&self, _thread: usize) {}

    fn wait(&self, (): &mut ()) {
        let counter = &self.counter;
        let generation = counter.generation.load(Ordering::Relaxed);
        if counter.arrived.fetch_add(1, Ordering::AcqRel) + 1 == counter.all {
            counter.arrived.store(0, Ordering::Relaxed);
            let anybody = self.asleep.swap(0, Ordering::AcqRel) != 0;
            counter.generation.store(generation + 1, Ordering::Release);
            if anybody {
                let queue = self.queue.0.lock().unwrap();
                self.queue.1.notify_all();
                drop(queue);
            }
        } else {
            self.asleep.store(1, Ordering::Release);
            let mut queue = self.queue.0.lock().unwrap();
            while counter.generation.load(Ordering::Acquire) == generation {
                queue = self.queue.1.wait(queue).unwrap();
            }
        }
    }
}
