//! Tournament: in round r, thread i + 2^r tells thread i and drops out; who wins is fixed beforehand. The champion and then
//! every winner wakes those that it beat, the latest first.
//!
//! Line transfers an episode: a signal takes its word to the writer and back to the reader, n − 1 up and n − 1 down, so
//! 4(n − 1); of which 4⌈log₂ n⌉ one after another. Every word has one writer and one reader.

use super::sync::{AtomicU32, Ordering};
use super::{Barrier, EPISODE_ZERO, Seating, Wait};
use crossbeam_utils::CachePadded;

/// See the module's text. Hensgen, Finkel and Manber release all losers by one word that they all watch; the way down by
/// pairs is Mellor-Crummey and Scott's. Episodes are numbered where they flip a sense.
#[derive(Debug)]
pub struct Tournament {
    /// `flags[thread · rounds + round]`: the last episode in which the opponent of that round told `thread` that it had
    /// come, if `thread` wins the round, or that all had, if it loses.
    flags: Box<[CachePadded<AtomicU32>]>,
    threads: usize,
    rounds: usize,
    wait: Wait,
}

/// Which thread this is and the last episode that it has entered.
#[derive(Debug)]
pub struct TournamentMember {
    thread: usize,
    episode: u32,
}

impl Tournament {
    /// A barrier for these threads.
    pub fn new(seating: &Seating) -> Self {
        let threads = seating.groups.len();
        let rounds = threads.next_power_of_two().trailing_zeros() as usize;
        let flag = |_| CachePadded::new(AtomicU32::new(EPISODE_ZERO));
        let flags = (0..threads * rounds).map(flag).collect();
        Tournament { flags, threads, rounds, wait: seating.wait }
    }

    /// Waits until the opponent of that round has told `thread`.
    #[inline]
    fn hear(&self, thread: usize, round: usize, episode: u32) {
        let flag = &self.flags[thread * self.rounds + round];
        // Acquire: pairs with the store in `tell` by the round's opponent. Equal, not more: in the next episode the opponent
        // first hears of this thread.
        self.wait.until(flag, Ordering::Acquire, |told| told == episode);
    }

    /// Tells `thread`, the opponent of that round.
    #[inline]
    fn tell(&self, thread: usize, round: usize, episode: u32) {
        // Release: pairs with the load in `hear` by `thread`; carries all that the teller knows.
        self.flags[thread * self.rounds + round].store(episode, Ordering::Release);
    }
}

impl Barrier for Tournament {
    type Member = TournamentMember;

    fn member(&self, thread: usize) -> TournamentMember {
        TournamentMember { thread, episode: EPISODE_ZERO }
    }

    #[inline]
    fn wait(&self, member: &mut TournamentMember) {
        member.episode = member.episode.wrapping_add(1);
        let TournamentMember { thread, episode } = *member;
        let mut round = 0;
        while round < self.rounds {
            let distance = 1 << round;
            if thread & distance != 0 {
                self.tell(thread - distance, round, episode);
                self.hear(thread, round, episode);
                break;
            }
            // Without an opponent it wins unheard.
            if thread + distance < self.threads {
                self.hear(thread, round, episode);
            }
            round += 1;
        }
        for round in (0..round).rev() {
            let loser = thread + (1 << round);
            if loser < self.threads {
                self.tell(loser, round, episode);
            }
        }
    }
}
