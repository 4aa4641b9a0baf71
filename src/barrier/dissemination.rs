//! Dissemination barrier: in round r, thread i signals thread i + 2^r (mod n) and waits for the signal of i − 2^r.
//!
//! Line transfers an episode: n·⌈log₂ n⌉, of which ⌈log₂ n⌉ one after another. No word is contended.
//!
//! The published algorithm alternates two sets of flags and flips their sense. Here a flag holds the number of the last
//! episode that was signalled: it has one writer, and a writer that runs ahead only makes the number larger, so one set
//! is enough.

use super::{Barrier, Wait};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module's text.
#[derive(Debug)]
pub struct Dissemination {
    /// `flags[thread · rounds + round]`: the last episode in which `thread` was signalled in `round`.
    flags: Box<[CachePadded<AtomicU32>]>,
    threads: usize,
    rounds: usize,
    wait: Wait,
}

/// Which thread this is and how many episodes it has entered.
#[derive(Debug)]
pub struct DisseminationMember {
    thread: usize,
    episode: u32,
}

impl Dissemination {
    /// A barrier for `threads` threads.
    pub fn new(threads: usize, wait: Wait) -> Self {
        let rounds = threads.next_power_of_two().trailing_zeros() as usize;
        let flags = (0..threads * rounds).map(|_| CachePadded::default()).collect();
        Dissemination { flags, threads, rounds, wait }
    }
}

impl Barrier for Dissemination {
    type Member = DisseminationMember;

    fn member(&self, thread: usize) -> DisseminationMember {
        DisseminationMember { thread, episode: 0 }
    }

    #[inline]
    fn wait(&self, member: &mut DisseminationMember) {
        member.episode = member.episode.wrapping_add(1);
        let mut distance = 1;
        for round in 0..self.rounds {
            let mut partner = member.thread + distance;
            if partner >= self.threads {
                partner -= self.threads;
            }
            // Release: pairs with the partner's Acquire load below; carries all that this thread knows so far.
            self.flags[partner * self.rounds + round].store(member.episode, Ordering::Release);
            let mine = &self.flags[member.thread * self.rounds + round];
            // Acquire: pairs with the store above in the thread `distance` before this one. It may be one episode ahead,
            // hence the comparison of differences, which also survives the wrap.
            self.wait.wait_while(|| (mine.load(Ordering::Acquire).wrapping_sub(member.episode) as i32) < 0);
            distance *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dissemination_barrier_survives_the_wrap_of_its_episode_count() {
        let barrier = Dissemination::new(3, Wait::SpinThenYield(10));
        let near_wrap = u32::MAX - 50;
        for flag in &barrier.flags {
            flag.store(near_wrap, Ordering::Relaxed);
        }
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut member = DisseminationMember { thread, episode: near_wrap };
                    for _ in 0..100 {
                        barrier.wait(&mut member);
                    }
                });
            }
        });
    }
}
