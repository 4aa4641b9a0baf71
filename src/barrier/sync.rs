//! What barriers are made of: atomics, a fence, the two ways to give way while spinning, and a futex. `tests/model`
//! compiles this module with `cfg(model)`: then all of it comes from a checker that tries many interleavings, and the
//! algorithms are the same source.

#[cfg(model)]
pub use crate::checker::{AtomicU32, Futex, fence, spin_loop, yield_now};
pub use std::sync::atomic::Ordering;
#[cfg(not(model))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, fence},
    thread::yield_now,
};

/// A word on which threads can sleep in the kernel (Franke, Russell and Kirkwood 2002; Drepper, *Futexes are tricky*).
#[cfg(not(model))]
#[derive(Debug)]
pub struct Futex {
    /// The word.
    pub word: AtomicU32,
}

#[cfg(not(model))]
impl Futex {
    /// A word on which nobody sleeps.
    pub fn new(word: u32) -> Futex {
        Futex { word: AtomicU32::new(word) }
    }

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
