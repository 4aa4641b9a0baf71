//! Software combining tree: counters of four threads each, whose last arrivers meet at counters of four again.
//!
//! Line transfers an episode: as the central counter's at every node, about 8n/3 in all; on the critical path 6 a level
//! (four arrivals, one release, one refetch) and ⌈log₄ n⌉ levels. No line is fought for by more than four.

use super::tree::{Tree, TreeMember};
use super::{Barrier, Seating};

/// Who meets at a node. Yew, Tzeng and Lawrie's best fan-in is about four.
const FAN_IN: u32 = 4;

/// See the module's text. As in Mellor-Crummey and Scott's algorithm 8 the last arrivers release on their way back, each
/// its own node; episodes are numbered where that flips a sense, and counters are not set back.
#[derive(Debug)]
pub struct CombiningTree(Tree);

impl CombiningTree {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let mut levels = vec![(0..seating.threads()).map(|thread| thread / FAN_IN).collect::<Vec<u32>>()];
        while let Some(level) = levels.last().filter(|level| level.last() > Some(&0)) {
            levels.push(level.iter().map(|node| node / FAN_IN).collect());
        }
        CombiningTree(Tree::new(&levels, seating.wait))
    }
}

impl Barrier for CombiningTree {
    type Member = TreeMember;

    fn member(&self, thread: usize) -> TreeMember {
        self.0.member(thread)
    }

    #[inline]
    fn wait(&self, member: &mut TreeMember) {
        self.0.wait(member);
    }
}
