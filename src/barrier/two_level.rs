//! Two levels by the machine's topology: a counter in every group of threads that share a last-level cache, and one for the
//! last arrivers of the groups, each of whom then releases its own group.
//!
//! Line transfers an episode with g groups of m threads: 2m inside each group and 2g between groups, 2n + 2g in
//! all; on the critical path m + g arrivals, two releases and two refetches. Only 2g of them cross from cache to cache, where a
//! central counter lets nearly all.

use super::tree::{Tree, TreeMember};
use super::{Barrier, Seating};

/// See the module's text.
#[derive(Debug)]
pub struct TwoLevel(Tree);

impl TwoLevel {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let all_together = vec![0; seating.groups.len()];
        TwoLevel(Tree::new(&[seating.groups.clone(), all_together], seating.wait))
    }
}

impl Barrier for TwoLevel {
    type Member = TreeMember;

    fn member(&self, thread: usize) -> TreeMember {
        self.0.member(thread)
    }

    #[inline]
    fn wait(&self, member: &mut TreeMember) {
        self.0.wait(member);
    }
}
