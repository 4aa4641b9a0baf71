//! What barriers are made of: atomics, a fence, the two ways to give way while spinning, and a futex. `tests/model`
//! compiles this module with `cfg(loom)` and with `cfg(shuttle)`: then all of it comes from a checker that tries many
//! interleavings, and the algorithms are the same source.

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, fence},
    sync::{Condvar, Mutex},
    thread::yield_now,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::atomic::{AtomicU32, fence},
    sync::{Condvar, Mutex},
    thread::yield_now,
    thread::yield_now as spin_loop,
};
pub use std::sync::atomic::Ordering;
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, fence},
    thread::yield_now,
};

/// A word on which threads can sleep in the kernel (Franke, Russell and Kirkwood 2002; Drepper, *Futexes are tricky*).
#[derive(Debug)]
pub struct Futex {
    /// The word.
    pub word: AtomicU32,
    /// The kernel's queue of sleepers and its lock, for the checkers.
    #[cfg(any(loom, shuttle))]
    queue: (Mutex<()>, Condvar),
}

impl Futex {
    /// A word on which nobody sleeps.
    pub fn new(word: u32) -> Futex {
        Futex {
            word: AtomicU32::new(word),
            #[cfg(any(loom, shuttle))]
            queue: (Mutex::new(()), Condvar::new()),
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Futex {
    /// Sleeps until woken if the word is `expected`. May also return for no reason: the caller looks again.
    pub fn sleep(&self, expected: u32) {
        // SAFETY: the word is borrowed for the whole call and aligned; no timeout is given; the kernel only reads it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }

    /// Wakes all who sleep.
    pub fn wake_all(&self) {
        // SAFETY: the kernel uses the address only to find the sleepers.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                libc::c_int::MAX,
            );
        }
    }
}

/// The kernel looks at the word and queues the sleeper under one lock, which whoever wakes takes as well.
#[cfg(any(loom, shuttle))]
impl Futex {
    pub fn sleep(&self, expected: u32) {
        let Ok(queue) = self.queue.0.lock() else { return };
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.queue.1.wait(queue));
        }
    }

    pub fn wake_all(&self) {
        let queue = self.queue.0.lock();
        self.queue.1.notify_all();
        drop(queue);
    }
}
