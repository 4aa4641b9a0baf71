//! What every barrier must do, asked of `threads` threads over `episodes` episodes.

use crate::barrier::{Algorithm, Barrier};
use crate::checker::{self, thread};
use std::sync::Arc;

/// Words that threads write before an episode and read after it. Two sets in turn, since a thread may write for the next
/// episode while others still read what was written for this one.
struct Words([Vec<Word>; 2]);

/// Plain memory that the checker watches: two accesses, one of them a write, that no barrier orders fail the model.
#[cfg(feature = "loom")]
struct Word(crate::checker::UnsafeCell<u32>);

/// Shuttle executes everything in one order, so only the value tells.
#[cfg(feature = "shuttle")]
struct Word(crate::checker::AtomicU32);

#[cfg(feature = "loom")]
impl Word {
    fn new() -> Word {
        Word(crate::checker::UnsafeCell::new(0))
    }

    fn write(&self, value: u32) {
        // SAFETY: the barrier under test keeps others away, or the checker stops here.
        self.0.with_mut(|word| unsafe { *word = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|word| unsafe { *word })
    }
}

// SAFETY: the checker finds unordered accesses, which is what the words are for.
#[cfg(feature = "loom")]
unsafe impl Sync for Word {}

#[cfg(feature = "shuttle")]
impl Word {
    fn new() -> Word {
        Word(crate::checker::AtomicU32::new(0))
    }

    fn write(&self, value: u32) {
        self.0.store(value, std::sync::atomic::Ordering::Relaxed);
    }

    fn read(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// One thread: whatever any thread wrote before an episode is there after it.
fn member<B: Barrier>(barrier: &B, words: &Words, thread: usize, episodes: u32) {
    let mut member = barrier.member(thread);
    for episode in 1..=episodes {
        let words = &words.0[episode as usize % 2];
        words[thread].write(episode);
        barrier.wait(&mut member);
        for word in words {
            assert_eq!(word.read(), episode, "a thread left the barrier before all had come");
        }
    }
}

/// All threads, the first of which is this one.
pub fn holds<B: Barrier + Send + Sync + 'static>(barrier: B, threads: usize, episodes: u32) {
    checker::begin();
    let words = || (0..threads).map(|_| Word::new()).collect();
    let shared = Arc::new((barrier, Words([words(), words()])));
    let others: Vec<_> = (1..threads)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || member(&shared.0, &shared.1, thread, episodes))
        })
        .collect();
    member(&shared.0, &shared.1, 0, episodes);
    for other in others {
        other.join().unwrap();
    }
}

/// Every algorithm of the table but the standard library's, whose threads no checker can follow.
pub fn algorithms() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(|algorithm| *algorithm != Algorithm::Standard)
}
