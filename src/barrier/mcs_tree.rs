//! Mellor-Crummey and Scott's tree barrier: threads are the nodes. Each waits for up to four children, tells its parent, and
//! is woken along another tree in which each thread wakes two.
//!
//! Line transfers an episode: an arrival takes its word to the child and back to the parent, a wake-up likewise, so at most
//! 4(n − 1). On the critical path up to 8 a level on ⌈log₄ n⌉ levels up, fewer where the children come together (their words
//! share a line), and up to 4 a level on ⌈log₂ n⌉ levels down. Nobody fetches and adds.

use super::sync::{AtomicU32, Ordering};
use super::{Barrier, EPISODE_ZERO, Seating, Wait};
use crossbeam_utils::CachePadded;

/// Children that a thread waits for.
const ARRIVALS: usize = 4;
/// Children that a thread wakes.
const WAKE_UPS: usize = 2;

/// What others write for one thread.
#[derive(Debug)]
struct Node {
    /// For each child the last episode that its subtree has entered. On one line, as published: one thread reads them, and
    /// it needs all.
    arrived: CachePadded<[AtomicU32; ARRIVALS]>,
    /// The last episode of which the thread was told that all have entered it.
    woken: CachePadded<AtomicU32>,
}

/// See the module's text. Episodes are numbered where the published algorithm flips a sense and sets flags back.
#[derive(Debug)]
pub struct McsTree {
    nodes: Box<[Node]>,
    wait: Wait,
}

/// Which thread this is and the last episode that it has entered.
#[derive(Debug)]
pub struct McsTreeMember {
    thread: usize,
    episode: u32,
}

impl McsTree {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let word = |_| AtomicU32::new(EPISODE_ZERO);
        let node = |_| Node {
            arrived: CachePadded::new(std::array::from_fn(word)),
            woken: CachePadded::new(AtomicU32::new(EPISODE_ZERO)),
        };
        let nodes = seating.groups.iter().map(node).collect();
        McsTree { nodes, wait: seating.wait }
    }
}

impl Barrier for McsTree {
    type Member = McsTreeMember;

    fn member(&self, thread: usize) -> McsTreeMember {
        McsTreeMember { thread, episode: EPISODE_ZERO }
    }

    #[inline]
    fn wait(&self, member: &mut McsTreeMember) {
        member.episode = member.episode.wrapping_add(1);
        let McsTreeMember { thread, episode } = *member;
        let node = &self.nodes[thread];
        let children = self.nodes.len().saturating_sub(thread * ARRIVALS + 1);
        for arrived in &node.arrived[..children.min(ARRIVALS)] {
            // Acquire: pairs with the child's store just below. Equal, not more: the child waits for this thread.
            self.wait.until(arrived, Ordering::Acquire, |arrived| arrived == episode);
        }
        if thread > 0 {
            let (parent, place) = ((thread - 1) / ARRIVALS, (thread - 1) % ARRIVALS);
            // Release: pairs with the parent's load just above; carries what the whole subtree wrote.
            self.nodes[parent].arrived[place].store(episode, Ordering::Release);
            // Acquire: pairs with the store below in the thread that wakes this one.
            self.wait.until(&node.woken, Ordering::Acquire, |woken| woken == episode);
        }
        let first = thread * WAKE_UPS + 1;
        for child in self.nodes.iter().skip(first).take(WAKE_UPS) {
            // Release: pairs with the child's load of this word; carries what all wrote.
            child.woken.store(episode, Ordering::Release);
        }
    }
}
