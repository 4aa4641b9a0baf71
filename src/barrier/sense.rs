//! Sense-reversing central barrier.
//!
//! Line transfers an episode as for the central counter; a waiter knows the value it waits for from its own memory, so it
//! does not read the shared word before it arrives.

use super::{Barrier, Wait};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// See the module's text.
#[derive(Debug)]
pub struct SenseReversing {
    left: CachePadded<AtomicU32>,
    sense: CachePadded<AtomicBool>,
    threads: u32,
    wait: Wait,
}

impl SenseReversing {
    /// A barrier for `threads` threads.
    pub fn new(threads: usize, wait: Wait) -> Self {
        let threads = threads as u32;
        SenseReversing { left: CachePadded::new(threads.into()), sense: CachePadded::default(), threads, wait }
    }
}

impl Barrier for SenseReversing {
    /// The sense of the episode that comes next.
    type Member = bool;

    fn member(&self, _thread: usize) -> bool {
        true
    }

    #[inline]
    fn wait(&self, sense: &mut bool) {
        let mine = *sense;
        *sense = !mine;
        // AcqRel: releases this thread's writes to the last arriver, and there acquires those of all others.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Relaxed: published by the store of the sense below, before which nobody arrives again.
            self.left.store(self.threads, Ordering::Relaxed);
            // Release: pairs with the Acquire load of every waiter.
            self.sense.store(mine, Ordering::Release);
        } else {
            // Acquire: pairs with the last arriver's store of the sense.
            self.wait.wait_while(|| self.sense.load(Ordering::Acquire) != mine);
        }
    }
}
