//! Dissemination barrier: in round r, thread i signals thread i + 2^r (mod n) and waits for the signal of i − 2^r.
//!
//! Line transfers an episode: a signal takes its word to the writer and back to the reader, so 2n·⌈log₂ n⌉, of which
//! 2⌈log₂ n⌉ one after another. No word is contended.
//!
//! The published algorithm alternates two sets of flags and flips their sense. Here a flag holds the number of the last
//! episode that was signalled: it has one writer, and a writer that runs ahead only makes the number larger, so one set
//! is enough.

use super::sync::{AtomicU32, Ordering};
use super::{Barrier, EPISODE_ZERO, Seating, Wait};
use crossbeam_utils::CachePadded;

/// See the module's text.
#[derive(Debug)]
pub struct Dissemination {
    /// `flags[thread · rounds + round]`: the last episode in which `thread` was signalled in `round`.
    flags: Box<[CachePadded<AtomicU32>]>,
    threads: usize,
    rounds: usize,
    wait: Wait,
}

/// Which thread this is and the last episode that it has entered.
#[derive(Debug)]
pub struct DisseminationMember {
    thread: usize,
    episode: u32,
}

impl Dissemination {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let threads = seating.groups.len();
        let rounds = threads.next_power_of_two().trailing_zeros() as usize;
        let flag = |_| CachePadded::new(AtomicU32::new(EPISODE_ZERO));
        let flags = (0..threads * rounds).map(flag).collect();
        Dissemination { flags, threads, rounds, wait: seating.wait }
    }
}

impl Barrier for Dissemination {
    type Member = DisseminationMember;

    fn member(&self, thread: usize) -> DisseminationMember {
        DisseminationMember { thread, episode: EPISODE_ZERO }
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
            let due = |signalled: u32| signalled.wrapping_sub(member.episode) as i32 >= 0;
            self.wait.until(mine, Ordering::Acquire, due);
            distance *= 2;
        }
    }
}
