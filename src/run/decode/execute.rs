//! The token loop: compiled once for each barrier algorithm, so that an episode has no dispatch.

use super::arithmetic::Vectors;
use super::program::{Matrix, Op, Parts, Picks, Piece, Program, Share, Source, compile, compile_roof};
use super::trace::Stamp;
use crate::barrier::{Barrier, WithBarrier};
use crate::error::Result;
use crate::kernel::Reader;
use crate::memory::Line;
use crate::run::activation::Activations;
use crate::run::clock::Clock;
use crate::run::team::{self, Crew, StdThreads, TeamOutcome};
use crate::units::{CpuId, Nanos};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// What programs are made of.
    pub source: Source<'a>,
    /// What its router picks.
    pub picks: &'a Picks,
    /// What is left in.
    pub parts: Parts,
    /// Whether weights are read in the longest slices that there are instead of the engine's: the roof.
    pub long_slices: bool,
    /// Whether each thread notes when it comes to a barrier and when it leaves.
    pub traced: bool,
    /// Number of the first token, for the picks.
    pub first_token: usize,
    /// How many tokens.
    pub tokens: u64,
}

/// What one thread brings back.
#[derive(Clone, Debug)]
pub struct ThreadResult {
    /// By the common clock.
    pub start: Nanos,
    /// By the common clock.
    pub finish: Nanos,
    /// What it took of the weights.
    pub tally: Tally,
    /// Of a traced arm, at each barrier.
    pub stamps: Vec<Stamp>,
}

/// What was taken of the weights. Sums of all threads do not depend on who took what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Wrapping sum of the 64-bit words that were read, and of the bits of the products.
    pub sum: u64,
    /// Bytes of whole lines that were read, and of the rows that were multiplied.
    pub bytes: u64,
}

impl Tally {
    /// Adds what another thread took.
    pub fn add(self, other: Tally) -> Tally {
        Tally { sum: self.sum.wrapping_add(other.sum), bytes: self.bytes.wrapping_add(other.bytes) }
    }

    /// Reads lines.
    #[inline]
    pub fn read(&mut self, lines: &[Line], reader: Reader) {
        self.sum = self.sum.wrapping_add(reader.read(lines));
        self.bytes += size_of_val(lines) as u64;
    }
}

/// One thread's part of an arm.
struct Worker<'a, B: Barrier> {
    run: ArmRun<'a>,
    program: Program,
    share: Share,
    /// Of the whole team.
    counters: &'a [CachePadded<AtomicU64>],
    vectors: Vectors,
    barrier: &'a B,
    tally: Tally,
    stamps: Vec<Stamp>,
}

impl WithBarrier for ArmRun<'_> {
    type Output = Result<TeamOutcome<ThreadResult>>;

    fn call<B: Barrier>(self, barrier: &B) -> Self::Output {
        self.run_by(&StdThreads, barrier)
    }
}

impl ArmRun<'_> {
    /// Runs it on threads that `crew` starts.
    ///
    /// # Errors
    /// As [`team::run_by`].
    pub fn run_by<B: Barrier>(self, crew: &impl Crew, barrier: &B) -> Result<TeamOutcome<ThreadResult>> {
        let compiled = |thread| {
            let share = Share { thread, threads: self.cpus.len() };
            let program = match self.long_slices {
                true => compile_roof(self.source.token, self.source.places, share),
                false => compile(self.source, share, self.parts),
            };
            (share, program)
        };
        let counters: Vec<_> = (0..compiled(0).1.counters).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        // Made before, so that a refusal ends the run; each thread makes its own, so that it lies near.
        Vectors::new(self.source.token, self.source.dots)?;
        team::run_by(crew, self.cpus, self.clock, |seat| {
            let (share, program) = compiled(seat.index);
            let vectors = Vectors::new(self.source.token, self.source.dots).ok();
            let meets = program.ops.iter().filter(|op| **op == Op::Barrier).count() * self.tokens as usize;
            let stamps = if self.traced { Vec::with_capacity(meets) } else { Vec::new() };
            let mut member = barrier.member(seat.index);
            seat.meet();
            let start = seat.now();
            let mut worker = vectors.map(|vectors| Worker {
                run: self,
                program,
                share,
                counters: &counters,
                vectors,
                barrier,
                tally: Tally::default(),
                stamps,
            });
            if let Some(worker) = &mut worker {
                for index in 0..self.tokens as usize {
                    match self.traced {
                        true => worker.one_token::<true>(index, &mut member),
                        false => worker.one_token::<false>(index, &mut member),
                    }
                }
            }
            let finish = seat.now();
            let (tally, stamps) = worker.map(|worker| (worker.tally, worker.stamps)).unwrap_or_default();
            ThreadResult { start, finish, tally, stamps }
        })
    }
}

impl<B: Barrier> Worker<'_, B> {
    /// One token of one thread.
    #[inline]
    fn one_token<const TRACED: bool>(&mut self, index: usize, member: &mut B::Member) {
        let Worker { run, program, share, counters, vectors, barrier, tally, stamps } = self;
        // Carried from what is read to what is written, so that neither can be left out.
        let mut carried = index as u64;
        // Each counter gave out as many numbers as there are chunks for every token before.
        let next = |counter: u32, count: u64| {
            let given = counters[counter as usize].fetch_add(1, Ordering::Relaxed);
            given.wrapping_sub(index as u64 * count).wrapping_add(share.threads as u64)
        };
        for op in &program.ops {
            match *op {
                Op::Barrier if TRACED => {
                    let came = run.clock.now();
                    barrier.wait(member);
                    stamps.push((came, run.clock.now()));
                }
                Op::Barrier => barrier.wait(member),
                Op::Take { from, first, lines } => {
                    carried = carried.wrapping_add(run.activations.take(from, first, lines));
                }
                Op::Norm { from, first, lines } => {
                    carried = carried.wrapping_add(run.activations.norm(from, first, lines));
                }
                Op::Put { to, first, lines } => {
                    run.activations.put(to, first, lines, carried.wrapping_add(tally.sum));
                }
                Op::Quantise { matrix, first, blocks } => {
                    if let Some(multiply) = program.matrices[matrix as usize].multiply {
                        multiply.quantise(first, blocks, vectors);
                    }
                }
                Op::Stream { .. } | Op::Span { .. } | Op::Rows { .. } | Op::Chunks { .. } | Op::Row { .. } => {
                    let token = (run.picks, run.first_token + index);
                    program.for_each_piece(op, token, *share, next, |matrix, piece| {
                        tally.take(run.arena, run.reader, matrix, piece, vectors);
                    });
                }
            }
        }
        std::hint::black_box(carried);
    }
}

impl Tally {
    /// Reads a piece, or multiplies it where its matrix says how.
    #[inline]
    fn take(&mut self, arena: &[Line], reader: Reader, matrix: Option<&Matrix>, piece: Piece, vectors: &Vectors) {
        match (piece, matrix) {
            (Piece::Lines(lines), _) => self.read(&arena[lines], reader),
            (Piece::Rows(line, rows), Some(matrix)) => match matrix.multiply {
                None => {
                    let lines = matrix.lines(&rows);
                    self.read(&arena[line + lines.start..line + lines.end], reader);
                }
                Some(multiply) => {
                    let bytes = matrix.bytes(&rows);
                    let row_bytes = bytes.len() / (rows.end - rows.start).max(1) as usize;
                    let weights = &Line::bytes(&arena[line..])[bytes];
                    // Rows that do not fit count for nothing, which the check of a token notices.
                    if let Some(sum) = multiply.rows(weights, row_bytes, vectors) {
                        self.sum = self.sum.wrapping_add(sum);
                        self.bytes += weights.len() as u64;
                    }
                }
            },
            (Piece::Rows(..), None) => {}
        }
    }
}
