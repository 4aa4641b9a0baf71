//! Central counter with a generation: llama.cpp's own barrier (builds without OpenMP), and how it was before its words had
//! a cache line each.
//!
//! Line transfers an episode: every arrival takes the counter's line (n), the last one the generation's, which every waiter
//! fetches again (n − 1); 2n, of which the arrivals, that one and the last refetch follow one another (n + 2). On one line, each arrival also takes away
//! the line that all earlier ones look at, and they fetch it again: up to n(n − 1)/2 transfers more, in the arrivals' way.

use super::sync::{AtomicU32, Ordering, fence};
use super::{Barrier, Seating, Wait};
use crossbeam_utils::CachePadded;

/// See the module's text. The orderings are llama.cpp's, also where weaker ones would do, because its cost is the point.
#[derive(Debug)]
pub struct Central<const LINES: usize = 2> {
    /// The first word of the first line counts arrivals, the second word of the last line is the generation.
    lines: [CachePadded<[AtomicU32; 2]>; LINES],
    threads: u32,
    wait: Wait,
}

impl<const LINES: usize> Central<LINES> {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let lines = std::array::from_fn(|_| CachePadded::default());
        Central { lines, threads: seating.threads(), wait: seating.wait }
    }

    #[inline]
    fn arrived(&self) -> &AtomicU32 {
        &self.lines[0][0]
    }

    #[inline]
    fn generation(&self) -> &AtomicU32 {
        &self.lines[LINES - 1][1]
    }
}

impl<const LINES: usize> Barrier for Central<LINES> {
    type Member = ();

    fn member(&self, _thread: usize) {}

    #[inline]
    fn wait(&self, (): &mut ()) {
        if self.threads == 1 {
            return;
        }
        // Relaxed: this thread cannot be a generation behind, since it left the last episode by seeing this value.
        let generation = self.generation().load(Ordering::Relaxed);
        if self.arrived().fetch_add(1, Ordering::SeqCst) == self.threads - 1 {
            // Relaxed: published by the increment of the generation below, before which nobody arrives again.
            self.arrived().store(0, Ordering::Relaxed);
            self.generation().fetch_add(1, Ordering::SeqCst);
        } else {
            // Relaxed: the fence below pairs with the last arriver's increment of the generation.
            self.wait.until(self.generation(), Ordering::Relaxed, |now| now != generation);
            fence(Ordering::SeqCst);
        }
    }
}
