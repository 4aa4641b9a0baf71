//! Counters in a tree: the last to arrive at one goes on to the next, and the last of all releases it, from the top down.
//! What [`CombiningTree`](super::CombiningTree) and [`TwoLevel`](super::TwoLevel) share: they differ in who meets where.

use super::sync::{AtomicU32, Ordering};
use super::{EPISODE_ZERO, Wait};
use crossbeam_utils::CachePadded;
use std::collections::{BTreeMap, BTreeSet};

/// Where some threads, or the last ones of some other nodes, meet.
#[derive(Debug)]
struct Node {
    /// Arrivals in all episodes: never set back, so nothing has to be ordered around that.
    arrived: CachePadded<AtomicU32>,
    /// The last episode that all have entered.
    released: CachePadded<AtomicU32>,
    /// How many arrive in an episode.
    arrivals: u32,
}

/// See the module's text.
#[derive(Debug)]
pub struct Tree {
    nodes: Box<[Node]>,
    /// For each thread its nodes, from the bottom up.
    paths: Box<[Box<[usize]>]>,
    wait: Wait,
}

/// A thread's way up and the last episode that it has entered.
#[derive(Debug)]
pub struct TreeMember {
    path: Box<[usize]>,
    episode: u32,
}

impl Tree {
    /// `levels[l][t]` names the node of thread `t` on level `l`, counted from the bottom. Threads with one node share all
    /// above it, and the last level has one node. Where a single thread or node would arrive, no node is made.
    pub fn new(levels: &[Vec<u32>], wait: Wait) -> Tree {
        let threads = levels.first().map_or(0, Vec::len);
        let mut nodes = Vec::new();
        let mut paths = vec![Vec::new(); threads];
        let mut below: Vec<u32> = (0..threads as u32).collect();
        for level in levels {
            let mut members: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for (name, member) in level.iter().zip(&below) {
                members.entry(*name).or_default().insert(*member);
            }
            let mut index = BTreeMap::new();
            for (name, members) in members.into_iter().filter(|(_, members)| members.len() > 1) {
                index.insert(name, nodes.len());
                let arrivals = members.len() as u32;
                nodes.push(Node {
                    arrived: CachePadded::new(AtomicU32::new(EPISODE_ZERO.wrapping_mul(arrivals))),
                    released: CachePadded::new(AtomicU32::new(EPISODE_ZERO)),
                    arrivals,
                });
            }
            for (path, name) in paths.iter_mut().zip(level) {
                path.extend(index.get(name));
            }
            below.clone_from(level);
        }
        let paths = paths.into_iter().map(Vec::into_boxed_slice).collect();
        Tree { nodes: nodes.into(), paths, wait }
    }

    /// The state of one thread.
    pub fn member(&self, thread: usize) -> TreeMember {
        TreeMember { path: self.paths[thread].clone(), episode: EPISODE_ZERO }
    }

    /// One episode of one thread.
    #[inline]
    pub fn wait(&self, member: &mut TreeMember) {
        member.episode = member.episode.wrapping_add(1);
        let episode = member.episode;
        let mut won = 0;
        for &index in &member.path {
            let node = &self.nodes[index];
            // AcqRel: releases what this thread knows to the last arriver, and there acquires what all others knew. Both
            // sides of the comparison wrap alike.
            let arrived = node.arrived.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            if arrived != episode.wrapping_mul(node.arrivals) {
                // Acquire: pairs with the store below in the thread that came last. Equal, not more: the next episode
                // needs this thread.
                self.wait.until(&node.released, Ordering::Acquire, |released| released == episode);
                break;
            }
            won += 1;
        }
        for &index in member.path[..won].iter().rev() {
            // Release: pairs with the Acquire load of those who wait at this node.
            self.nodes[index].released.store(episode, Ordering::Release);
        }
    }
}
