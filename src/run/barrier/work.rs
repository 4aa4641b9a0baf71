//! What a thread does between two episodes, ready to run. Each kind is compiled into the timed loop.

use crate::caveat::Caveat;
use crate::error::Result;
use crate::kernel::Reader;
use crate::memory::{Buffer, Line, Pages, fill_words};
use crate::plan::barrier::Work;
use crate::plan::experts::layout::lines_of;
use crate::run::activation::{Activations, Area};
use crate::run::clock::Clock;
use crate::units::{Bytes, NodeId};
use std::hint::black_box;

/// A thread's work.
pub trait Between {
    /// Does what comes before one episode.
    fn act(&mut self);
}

/// None.
pub struct Nothing;

impl Between for Nothing {
    #[inline]
    fn act(&mut self) {}
}

/// Turns of a chain of dependent multiplications, which no memory and no other core can slow. Each time it goes on where it
/// stopped: two chains of their own would overlap where nothing waits between them.
pub struct Compute {
    turns: u64,
    value: u64,
}

impl Compute {
    /// As many turns as take `ns` here, by the least of a few trials.
    pub fn lasting(ns: u64, clock: Clock) -> Compute {
        const TURNS: u64 = 20_000;
        let mut value = 1;
        let trial = |_| {
            let start = clock.now();
            value = compute(TURNS, value);
            clock.now().0 - start.0
        };
        let least = (0..5).map(trial).min().unwrap_or(1).max(1);
        Compute { turns: ((ns as f64) * TURNS as f64 / least as f64).round() as u64, value }
    }
}

#[inline(never)]
fn compute(turns: u64, mut value: u64) -> u64 {
    for _ in 0..turns {
        value = (value ^ (value >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    black_box(value)
}

impl Between for Compute {
    #[inline]
    fn act(&mut self) {
        self.value = compute(self.turns, self.value);
    }
}

/// Reads on and on through memory of its own.
pub struct Stream<'a> {
    reader: Reader,
    lines: &'a [Line],
    take: usize,
    next: usize,
}

impl<'a> Stream<'a> {
    /// `bytes` at a time, of at most all lines.
    pub fn new(reader: Reader, lines: &'a [Line], bytes: Bytes) -> Stream<'a> {
        let take = (lines_of(bytes.0) as usize).min(lines.len());
        Stream { reader, lines, take, next: 0 }
    }
}

impl Between for Stream<'_> {
    #[inline]
    fn act(&mut self) {
        if self.next + self.take > self.lines.len() {
            self.next = 0;
        }
        black_box(self.reader.read(&self.lines[self.next..self.next + self.take]));
        self.next += self.take;
    }
}

/// Reads what all wrote before the last episode, and writes its part of the other vector: after the next barrier the two
/// change places, so that nobody writes what is being read.
pub struct Exchange<'a> {
    vectors: &'a Activations,
    all: u32,
    mine: (u32, u32),
    odd: bool,
    carried: u64,
}

impl<'a> Exchange<'a> {
    /// The part of thread `thread` of `threads` in a vector of `bytes`.
    pub fn new(vectors: &'a Activations, bytes: Bytes, thread: usize, threads: usize) -> Exchange<'a> {
        // The plan caps a vector far below what a u32 counts.
        let all = lines_of(bytes.0) as u32;
        let cut = |thread: usize| (u64::from(all) * thread as u64 / threads as u64) as u32;
        let mine = (cut(thread), cut(thread + 1) - cut(thread));
        Exchange { vectors, all, mine, odd: false, carried: 1 }
    }
}

impl Between for Exchange<'_> {
    #[inline]
    fn act(&mut self) {
        let (from, to) = if self.odd { (Area::Even, Area::Odd) } else { (Area::Odd, Area::Even) };
        self.carried = self.carried.wrapping_add(self.vectors.take(from, 0, self.all));
        self.vectors.put(to, self.mine.0, self.mine.1, self.carried);
        self.odd = !self.odd;
    }
}

/// A thread's own memory to stream, touched by itself, and what is wrong with where it lies.
pub fn own_memory(bytes: Bytes, thread: usize, node: Option<NodeId>) -> Result<(Buffer, Option<Caveat>)> {
    let mut buffer = Buffer::reserve(bytes, Pages::Default)?;
    let first = thread as u64 * (bytes.0 / Line::BYTES);
    fill_words(buffer.lines_mut(), first, 1);
    let caveat = match (node, buffer.nodes(0..buffer.lines().len(), 32)) {
        (Some(node), Ok(pages)) => {
            let share_there = pages.share(|other| other == node).unwrap_or(1.0);
            let asked = std::iter::once(node).collect();
            (share_there < 1.0).then_some(Caveat::PagesElsewhere { asked, share_there })
        }
        (_, Err(error)) => Some(Caveat::PlacementUnverified { reason: error.to_string() }),
        (None, Ok(_)) => None,
    };
    Ok((buffer, caveat))
}

/// One of the above.
pub enum Ready<'a> {
    /// Nothing.
    Nothing,
    /// Computes.
    Compute(Compute),
    /// Streams.
    Stream(Stream<'a>),
    /// Exchanges.
    Exchange(Exchange<'a>),
}

/// What work is made of.
pub struct Means<'a> {
    /// Which thread of how many.
    pub thread: (usize, usize),
    /// The common clock.
    pub clock: Clock,
    /// For work that streams.
    pub stream: Option<(Reader, &'a [Line])>,
    /// For work that exchanges.
    pub vectors: &'a Activations,
}

impl<'a> Ready<'a> {
    /// What `work` is for this thread.
    pub fn new(work: Work, means: &Means<'a>) -> Ready<'a> {
        let (thread, threads) = means.thread;
        match (work, means.stream) {
            (Work::Late(time), _) if thread == 0 => Ready::Compute(Compute::lasting(time.0, means.clock)),
            (Work::Compute(time), _) => Ready::Compute(Compute::lasting(time.0, means.clock)),
            (Work::Stream(bytes), Some((reader, lines))) => Ready::Stream(Stream::new(reader, lines, bytes)),
            (Work::Exchange(bytes), _) => Ready::Exchange(Exchange::new(means.vectors, bytes, thread, threads)),
            (Work::Nothing | Work::Late(_) | Work::Stream(_), _) => Ready::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_of_a_vector_are_written_and_read() {
        let bytes = Bytes(10 * Line::BYTES);
        let vectors = Activations::new(lines_of(bytes.0) as usize);
        let mut threads: Vec<Exchange<'_>> = (0..3).map(|thread| Exchange::new(&vectors, bytes, thread, 3)).collect();
        threads.iter_mut().for_each(Between::act);
        // Each read zeros and wrote ones; now each reads ten lines of eight ones.
        threads.iter_mut().for_each(Between::act);
        assert!(threads.iter().all(|thread| thread.carried == 81), "{:?}", threads[0].carried);
        assert_eq!(threads.iter().map(|thread| thread.mine.1).sum::<u32>(), 10);
    }

    #[test]
    fn a_stream_goes_round_and_takes_no_more_than_there_is() {
        let reader =
            crate::kernel::Kernel::best(crate::kernel::Operation::Read, None, &crate::machine::IsaSet::detect());
        let reader = reader.unwrap().reader().unwrap();
        let lines = vec![Line([1; 64]); 10];
        let mut stream = Stream::new(reader, &lines, Bytes(4 * Line::BYTES));
        let mut seen = Vec::new();
        for _ in 0..4 {
            stream.act();
            seen.push(stream.next);
        }
        assert_eq!(seen, [4, 8, 4, 8]);
        assert_eq!(Stream::new(reader, &lines, Bytes(1 << 20)).take, 10);
    }

    #[test]
    fn a_late_thread_is_the_first_one() {
        let vectors = Activations::new(0);
        let ready = |thread| {
            let means = Means { thread: (thread, 2), clock: Clock::start(), stream: None, vectors: &vectors };
            Ready::new(Work::Late(crate::units::Nanos(1000)), &means)
        };
        assert!(matches!(ready(0), Ready::Compute(Compute { turns, .. }) if turns > 0));
        assert!(matches!(ready(1), Ready::Nothing));
    }
}
