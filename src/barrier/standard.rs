//! `std::sync::Barrier`: what a program gets that asks the standard library.

use super::{Barrier, Wait};

/// See the module's text.
#[derive(Debug)]
pub struct Standard(std::sync::Barrier);

impl Standard {
    /// A barrier for `threads` threads. It always sleeps, whatever `wait` says.
    pub fn new(threads: usize, _wait: Wait) -> Self {
        Standard(std::sync::Barrier::new(threads))
    }
}

impl Barrier for Standard {
    type Member = ();

    fn member(&self, _thread: usize) {}

    #[inline]
    fn wait(&self, (): &mut ()) {
        self.0.wait();
    }
}
