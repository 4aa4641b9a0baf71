//! Central counter with a generation: llama.cpp's own barrier (builds without OpenMP).
//!
//! Line transfers an episode: every arrival takes the counter's line (n), every waiter refetches the generation's (n − 1).

use super::{Barrier, Wait};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// See the module's text. The orderings are llama.cpp's, also where weaker ones would do, because its cost is the point.
#[derive(Debug)]
pub struct Central {
    arrived: CachePadded<AtomicU32>,
    generation: CachePadded<AtomicU32>,
    threads: u32,
    wait: Wait,
}

impl Central {
    /// A barrier for `threads` threads.
    pub fn new(threads: usize, wait: Wait) -> Self {
        Central { arrived: CachePadded::default(), generation: CachePadded::default(), threads: threads as u32, wait }
    }
}

impl Barrier for Central {
    type Member = ();

    fn member(&self, _thread: usize) {}

    #[inline]
    fn wait(&self, (): &mut ()) {
        if self.threads == 1 {
            return;
        }
        // Relaxed: this thread cannot be a generation behind, since it left the last episode by seeing this value.
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::SeqCst) == self.threads - 1 {
            // Relaxed: published by the increment of the generation below, before which nobody arrives again.
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::SeqCst);
        } else {
            // Relaxed: the fence below pairs with the last arriver's increment of the generation.
            self.wait.wait_while(|| self.generation.load(Ordering::Relaxed) == generation);
            fence(Ordering::SeqCst);
        }
    }
}
