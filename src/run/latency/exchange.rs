//! The loops in which two threads hand lines to each other: all that runs between the two looks at the clock.

use crate::plan::latency::Protocol;
use crate::run::clock::Clock;
use crate::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of the shared page, each beyond the neighbouring line of the other, which prefetchers fetch in pairs. Each protocol
/// has its own, so that messages can be held against flags on one page.
const SWAPPED: usize = 0;
const FLAGS: [usize; 2] = [32, 64];
const MESSAGES: [usize; 2] = [96, 128];

/// Bytes of a page that the words fit into.
pub const PAGE_BYTES: u64 = 4096;

/// The two ends of an exchange over one page, as one of the threads sees them.
#[derive(Debug)]
pub struct End<'a> {
    /// Whether this thread is the one that begins.
    pub leads: bool,
    words: &'a [AtomicU64],
    clock: Clock,
    /// Round trips by flags and by messages so far: what is written next.
    flags: u64,
    messages: u64,
}

/// One thread's part in some round trips.
#[derive(Clone, Copy, Debug)]
pub struct Trips {
    /// When it began.
    pub start: Nanos,
    /// When it was through.
    pub finish: Nanos,
    /// Of messages: the sum of receive less send over those that this thread received; negative where clocks disagree.
    pub under_way_ns: i64,
}

impl Trips {
    /// From start to finish.
    pub fn elapsed(&self) -> Nanos {
        Nanos(self.finish.0.saturating_sub(self.start.0))
    }
}

impl<'a> End<'a> {
    /// An end of a fresh page.
    pub fn new(leads: bool, words: &'a [AtomicU64], clock: Clock) -> End<'a> {
        End { leads, words, clock, flags: 0, messages: 0 }
    }

    /// The first touch, which decides where the page lies. Stores what is there anyway.
    pub fn touch(&self) {
        for word in [SWAPPED].into_iter().chain(FLAGS).chain(MESSAGES) {
            self.words[word].store(0, Ordering::Relaxed);
        }
    }

    /// Takes part in `trips` round trips. The other end does the same.
    pub fn exchange(&mut self, protocol: Protocol, trips: u64) -> Trips {
        let [first, second] = if protocol == Protocol::Message { MESSAGES } else { FLAGS };
        let (swapped, first, second) = (&self.words[SWAPPED], &self.words[first], &self.words[second]);
        let start = self.clock.now();
        let mut under_way_ns = 0;
        match (protocol, self.leads) {
            (Protocol::Cas, true) => cas(swapped, trips, 0, 1),
            (Protocol::Cas, false) => cas(swapped, trips, 1, 0),
            (Protocol::Flags, true) => lead(first, second, self.flags, trips),
            (Protocol::Flags, false) => follow(first, second, self.flags, trips),
            (Protocol::Message, true) => {
                for message in self.messages + 1..=self.messages + trips {
                    send(first, self.clock, message);
                    under_way_ns += receive(second, self.clock, message);
                }
            }
            (Protocol::Message, false) => {
                for message in self.messages + 1..=self.messages + trips {
                    under_way_ns += receive(first, self.clock, message);
                    send(second, self.clock, message);
                }
            }
        }
        match protocol {
            Protocol::Cas => {}
            Protocol::Flags => self.flags += trips,
            Protocol::Message => self.messages += trips,
        }
        Trips { start, finish: self.clock.now(), under_way_ns }
    }
}

/// Changes the word from `mine` to `theirs`, `trips` times. Thread 0's last change is seen by thread 1, whose answer is
/// what thread 0 waits for in its next change; so a sample of thread 0 is short of half a trip in `trips`.
#[inline]
fn cas(word: &AtomicU64, trips: u64, mine: u64, theirs: u64) {
    for _ in 0..trips {
        // Relaxed: the word itself is all that is handed over.
        while word.compare_exchange(mine, theirs, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
    }
}

/// Raises the first flag and waits for the second, `trips` times.
#[inline]
fn lead(first: &AtomicU64, second: &AtomicU64, turn: u64, trips: u64) {
    for trip in turn + 1..=turn + trips {
        // Release and Acquire here and below: as a program would hand over data. Plain moves on x86-64.
        first.store(trip, Ordering::Release);
        while second.load(Ordering::Acquire) != trip {}
    }
}

/// Waits for the first flag and raises the second, `trips` times.
#[inline]
fn follow(first: &AtomicU64, second: &AtomicU64, turn: u64, trips: u64) {
    for trip in turn + 1..=turn + trips {
        while first.load(Ordering::Acquire) != trip {}
        second.store(trip, Ordering::Release);
    }
}

/// Bits of a message that hold its number; the others hold the time: 2⁵⁶ ns are two years.
const NUMBER_BITS: u32 = 8;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// Writes the time, with the message's number, since two times of a coarse clock may be the same.
#[inline]
fn send(line: &AtomicU64, clock: Clock, message: u64) {
    let sent = clock.now();
    // Release pairs with the Acquire of `receive`.
    line.store(sent.0 << NUMBER_BITS | message & NUMBER, Ordering::Release);
}

/// Waits for a message and says how long it was under way by the clock.
#[inline]
fn receive(line: &AtomicU64, clock: Clock, message: u64) -> i64 {
    loop {
        let word = line.load(Ordering::Acquire);
        if word & NUMBER == message & NUMBER {
            let received = clock.now();
            return received.0 as i64 - (word >> NUMBER_BITS) as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_takes_turns_and_goes_on_where_it_stopped() {
        let words: Vec<AtomicU64> = (0..PAGE_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let clock = Clock::start();
        let play = |leads: bool| {
            let mut end = End::new(leads, &words, clock);
            let mut under_way_ns = 0;
            for trips in [1, 300, 2] {
                for protocol in Protocol::ALL {
                    let trips = end.exchange(protocol, trips);
                    assert!(trips.start <= trips.finish);
                    under_way_ns += trips.under_way_ns;
                }
            }
            (end.flags, end.messages, under_way_ns)
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| play(false));
            (play(true), other.join().unwrap())
        });
        assert_eq!((one.0, one.1), (303, 303));
        assert_eq!((other.0, other.1), (303, 303));
        assert!(one.2 > 0 && other.2 > 0, "the kernel's clock is one for all threads: {one:?} {other:?}");
    }
}
