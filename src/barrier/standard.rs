//! `std::sync::Barrier`: what a program gets that asks the standard library.
//!
//! Line transfers an episode: the mutex's and the condition's, and the kernel's own for every sleeper.

use super::{Barrier, Seating};

/// See the module's text.
#[derive(Debug)]
pub struct Standard(std::sync::Barrier);

impl Standard {
    /// A barrier for these threads. It always sleeps, however they are to wait.
    pub fn new(seating: &Seating) -> Self {
        Standard(std::sync::Barrier::new(seating.groups.len()))
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
