//! The token loop: compiled once for each barrier algorithm, so that an episode has no dispatch.

use super::program::{Op, Parts, Picks, Share, compile, compile_roof, for_each_range};
use crate::barrier::{Barrier, WithBarrier};
use crate::error::Result;
use crate::kernel::Reader;
use crate::memory::Line;
use crate::run::activation::Activations;
use crate::run::clock::Clock;
use crate::run::team::{self, TeamOutcome};
use crate::units::{CpuId, Nanos};
use crate::workload::decode::Token;

/// One arm of one configuration, ready to run.
#[derive(Clone, Copy)]
pub struct ArmRun<'a> {
    /// The threads' CPUs.
    pub cpus: &'a [CpuId],
    /// The common clock.
    pub clock: Clock,
    /// What is read.
    pub arena: &'a [Line],
    /// How it is read.
    pub reader: Reader,
    /// Shared activations.
    pub activations: &'a Activations,
    /// The token.
    pub token: &'a Token,
    /// Where its weights lie.
    pub places: &'a [Option<u64>],
    /// What its router picks.
    pub picks: &'a Picks,
    /// What is left in.
    pub parts: Parts,
    /// Whether weights are read in the longest slices that there are instead of the engine's: the roof.
    pub long_slices: bool,
    /// Number of the first token, for the picks.
    pub first_token: usize,
    /// How many tokens.
    pub tokens: u64,
}

/// What one thread brings back.
#[derive(Clone, Copy, Debug)]
pub struct ThreadResult {
    /// By the common clock.
    pub start: Nanos,
    /// By the common clock.
    pub finish: Nanos,
    /// Wrapping sum of the 64-bit words that it streamed.
    pub sum: u64,
    /// Lines that it was to stream, from its program.
    pub lines: u64,
}

impl ArmRun<'_> {
    /// Lines that a program streams for one token: the same for every token, as all pick the same number of experts.
    fn lines(&self, program: &[Op]) -> u64 {
        let mut lines = 0;
        for op in program {
            for_each_range(op, self.picks, self.first_token, |range| lines += range.len() as u64);
        }
        lines
    }
}

impl WithBarrier for ArmRun<'_> {
    type Output = Result<TeamOutcome<ThreadResult>>;

    fn call<B: Barrier>(self, barrier: &B) -> Self::Output {
        team::run(self.cpus, self.clock, |seat| {
            let share = Share { thread: seat.index, threads: self.cpus.len() };
            // Compiled by the thread that runs it, so that it lies near.
            let program = if self.long_slices {
                compile_roof(self.token, self.places, share)
            } else {
                compile(self.token, self.places, share, self.parts)
            };
            let mut member = barrier.member(seat.index);
            seat.meet();
            let start = seat.now();
            let mut sum = 0u64;
            for index in 0..self.tokens as usize {
                sum = sum.wrapping_add(self.one_token(&program, self.first_token + index, barrier, &mut member));
            }
            let finish = seat.now();
            let lines = self.lines(&program) * self.tokens;
            ThreadResult { start, finish, sum, lines }
        })
    }
}

impl ArmRun<'_> {
    /// One token of one thread. Returns the sum of what it streamed.
    #[inline]
    fn one_token<B: Barrier>(&self, program: &[Op], token: usize, barrier: &B, member: &mut B::Member) -> u64 {
        let mut sum = 0u64;
        // Carried from what is read to what is written, so that neither can be left out.
        let mut carried = token as u64;
        for op in program {
            match *op {
                Op::Barrier => barrier.wait(member),
                Op::Take { from, first, lines } => {
                    carried = carried.wrapping_add(self.activations.take(from, first, lines));
                }
                Op::Put { to, first, lines } => self.activations.put(to, first, lines, carried.wrapping_add(sum)),
                Op::Stream { .. } | Op::Experts { .. } | Op::Span { .. } | Op::Row { .. } => {
                    for_each_range(op, self.picks, token, |range| {
                        sum = sum.wrapping_add(self.reader.read(&self.arena[range]));
                    });
                }
            }
        }
        std::hint::black_box(carried);
        sum
    }
}
