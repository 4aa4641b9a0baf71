//! The checker's atomics and threads, and a futex made of its lock.

#[cfg(feature = "loom")]
pub use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, fence},
    sync::{Condvar, Mutex},
    thread,
};
#[cfg(feature = "shuttle")]
pub use shuttle::{
    sync::atomic::{AtomicU32, fence},
    sync::{Condvar, Mutex},
    thread,
    thread::yield_now,
    thread::yield_now as spin_loop,
};
use std::sync::atomic::Ordering;

/// A futex. The kernel looks at the word and queues the sleeper under one lock, which whoever wakes takes as well.
#[derive(Debug)]
pub struct Futex {
    pub word: AtomicU32,
    queue: Mutex<()>,
    sleepers: Condvar,
}

impl Futex {
    pub fn new(word: u32) -> Futex {
        Futex { word: AtomicU32::new(word), queue: Mutex::new(()), sleepers: Condvar::new() }
    }

    pub fn sleep(&self, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.sleepers.wait(queue));
        }
    }

    pub fn wake_all(&self) {
        let queue = self.queue.lock().unwrap();
        self.sleepers.notify_all();
        drop(queue);
    }
}

/// Two threads that look at a word in turn, in vain, are one more interleaving each time, without end. So after this many
/// looks in vain an execution is followed to its end without trying what else could happen in it.
#[cfg(feature = "loom")]
const LOOKS: usize = 12;

#[cfg(feature = "loom")]
thread_local! {
    /// Looks in vain of this execution: loom runs all threads of a model on one.
    static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Before an execution.
pub fn begin() {
    #[cfg(feature = "loom")]
    LOOKED.set(0);
}

#[cfg(feature = "loom")]
pub fn spin_loop() {
    LOOKED.set(LOOKED.get() + 1);
    if LOOKED.get() == LOOKS {
        loom::skip_branch();
    }
    loom::thread::yield_now();
}

#[cfg(feature = "loom")]
pub use spin_loop as yield_now;
