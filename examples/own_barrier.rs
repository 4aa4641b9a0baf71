//! A barrier that membar does not know, over all thread counts and spreads of this machine:
//! `cargo run --release --example own_barrier`

use membar::barrier::Barrier;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts arrivals and never starts again: an episode has ended when all its threads are in the count.
struct Tally {
    arrivals: AtomicUsize,
    threads: usize,
}

impl Barrier for Tally {
    /// Arrivals at the end of this thread's episode.
    type Member = usize;

    fn member(&self, _thread: usize) -> usize {
        0
    }

    fn wait(&self, all: &mut usize) {
        *all += self.threads;
        // AcqRel, Acquire: each count is published by the additions before it, and the loads see them.
        self.arrivals.fetch_add(1, Ordering::AcqRel);
        while self.arrivals.load(Ordering::Acquire) < *all {
            std::hint::spin_loop();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let make = |threads| Tally { arrivals: AtomicUsize::new(0), threads };
    let record = membar::run::sweep("tally", make)?;
    Ok(std::io::stdout().write_all(membar::report::document(&record).to_text().as_bytes())?)
}
