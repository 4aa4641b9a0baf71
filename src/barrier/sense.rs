//! Sense-reversing central barrier.
//!
//! Line transfers an episode as for the central counter; a waiter knows the value it waits for from its own memory, so it
//! does not read the shared word before it arrives.

use super::sync::{AtomicU32, Ordering};
use super::{Barrier, Seating, Wait};
use crossbeam_utils::CachePadded;

/// See the module's text.
#[derive(Debug)]
pub struct SenseReversing {
    left: CachePadded<AtomicU32>,
    /// 0 or 1.
    sense: CachePadded<AtomicU32>,
    threads: u32,
    wait: Wait,
}

impl SenseReversing {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let threads = seating.threads();
        SenseReversing {
            left: CachePadded::new(AtomicU32::new(threads)),
            sense: CachePadded::default(),
            threads,
            wait: seating.wait,
        }
    }
}

impl Barrier for SenseReversing {
    /// The sense of the episode that comes next.
    type Member = u32;

    fn member(&self, _thread: usize) -> u32 {
        1
    }

    #[inline]
    fn wait(&self, sense: &mut u32) {
        let mine = *sense;
        *sense = 1 - mine;
        // AcqRel: releases this thread's writes to the last arriver, and there acquires those of all others.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Relaxed: published by the store of the sense below, before which nobody arrives again.
            self.left.store(self.threads, Ordering::Relaxed);
            // Release: pairs with the Acquire load of every waiter.
            self.sense.store(mine, Ordering::Release);
        } else {
            // Acquire: pairs with the last arriver's store of the sense.
            self.wait.until(&self.sense, Ordering::Acquire, |now| now == mine);
        }
    }
}
