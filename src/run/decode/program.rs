//! What one thread does for one token: compiled before the clock starts into a flat list of small operations.

use super::arithmetic::{Dots, Multiply};
use crate::plan::experts::layout::{lines_of, read_lines, table_rows};
use crate::run::activation::Area;
use crate::workload::Arm;
use crate::workload::decode::{Phase, Token};
use crate::workload::{Cut, Reading, Slicing, Weight};
use std::ops::Range;

/// One operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read these lines of the arena: the roof's long slices.
    Stream {
        /// First line.
        first: u64,
        /// How many.
        lines: u32,
    },
    /// Read a range of the picked experts' matrices laid end to end: the roof's long slices.
    Span {
        /// First line of expert 0.
        first: u64,
        /// Lines of a matrix.
        matrix: u32,
        /// The draw of picks.
        draw: u16,
        /// Where the range starts.
        start: u32,
        /// And where it ends.
        end: u32,
    },
    /// Take these rows of a matrix, or of that of each expert that the token picks.
    Rows {
        /// Its number in the program.
        matrix: u32,
        /// First row.
        first: u32,
        /// How many.
        rows: u32,
    },
    /// Take chunks of a matrix as they come, or of that of each expert that the token picks.
    Chunks {
        /// Its number in the program.
        matrix: u32,
        /// Number of the counter that hands them out; experts have one each.
        counter: u32,
    },
    /// Read a row of a table.
    Row {
        /// First line of row 0.
        first: u64,
        /// Lines of a row.
        lines: u32,
        /// Rows that are resident.
        rows: u32,
    },
    /// Wait for everybody.
    Barrier,
    /// Read these lines of an activation buffer.
    Take {
        /// Which one.
        from: Area,
        /// First line.
        first: u32,
        /// How many.
        lines: u32,
    },
    /// Write these lines of an activation buffer.
    Put {
        /// Which one.
        to: Area,
        /// First line.
        first: u32,
        /// How many.
        lines: u32,
    },
    /// Read these lines of an activation buffer and take the mean square of their values, one after another.
    Norm {
        /// Which one.
        from: Area,
        /// First line.
        first: u32,
        /// How many.
        lines: u32,
    },
    /// Convert activations for a product with a matrix.
    Quantise {
        /// Its number in the program.
        matrix: u32,
        /// First block of the vector.
        first: u32,
        /// How many.
        blocks: u32,
    },
}

/// Which kinds of operation an arm has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Weights are read.
    pub streams: bool,
    /// And multiplied with activations, where their type has a kernel.
    pub dots: bool,
    /// Barrier points are kept.
    pub barriers: bool,
    /// Activations move.
    pub activations: bool,
}

impl Parts {
    /// Those of an arm.
    pub fn of(arm: Arm) -> Parts {
        let (streams, dots, barriers, activations) = match arm {
            Arm::Roof | Arm::Read => (true, false, false, false),
            Arm::Dot => (true, true, false, false),
            Arm::Sync => (true, true, true, false),
            Arm::Full | Arm::Traced => (true, true, true, true),
            Arm::Barrier => (false, false, true, false),
        };
        Parts { streams, dots, barriers, activations }
    }
}

/// One thread among several.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Its number.
    pub thread: usize,
    /// How many there are.
    pub threads: usize,
}

impl Share {
    /// Its contiguous part of `items`: everybody takes ⌈items/threads⌉ until there are none left, as llama.cpp does
    /// when chunking is off. So what is too small for all goes to the first threads.
    pub fn of(self, items: u64) -> Range<u64> {
        let each = items.div_ceil(self.threads as u64);
        let at = |thread: usize| (each * thread as u64).min(items);
        at(self.thread)..at(self.thread + 1)
    }

    /// Its lines of a vector that is split by rows, or as finely as by lines.
    fn of_vector(self, bytes: u64, rows: Option<u64>) -> Range<u64> {
        match rows.filter(|rows| *rows < lines_of(bytes)) {
            None => self.of(lines_of(bytes)),
            Some(rows) => {
                let mine = self.of(rows);
                let at = |row: u64| {
                    if row == rows { lines_of(bytes) } else { bytes * row / rows / crate::memory::Line::BYTES }
                };
                at(mine.start)..at(mine.end)
            }
        }
    }
}

/// Draws of picks, in the order of the layers with experts: how many experts there are and how many are picked.
pub fn draws(token: &Token) -> Vec<(u64, u64)> {
    let mut draws = Vec::new();
    let mut last = None;
    for phase in &token.phases {
        if let (Some(weight), true) = (&phase.weight, phase.layer != last)
            && let Reading::Experts { of, picked } = weight.reading
        {
            draws.push((of, picked));
            last = phase.layer;
        }
    }
    draws
}

/// A matrix as threads split it, or one for each expert.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// First line, of expert 0 where it is one of experts.
    first: u64,
    /// Lines from an expert to the next.
    stride: u32,
    /// Which draw picks the experts; `None` where there is one matrix.
    draw: Option<u32>,
    rows: u64,
    row_bytes: u64,
    cut: Cut,
    /// How it is multiplied; `None`: it is read.
    pub multiply: Option<Multiply>,
}

impl Matrix {
    /// Bytes that these rows begin and end at, from the first line of the matrix on.
    pub fn bytes(&self, rows: &Range<u64>) -> Range<usize> {
        (rows.start * self.row_bytes) as usize..(rows.end * self.row_bytes) as usize
    }

    /// Lines that these rows begin in, so that each line belongs to exactly one thread.
    pub fn lines(&self, rows: &Range<u64>) -> Range<usize> {
        lines_of(rows.start * self.row_bytes) as usize..lines_of(rows.end * self.row_bytes) as usize
    }
}

/// What one thread does.
#[derive(Debug, Default)]
pub struct Program {
    /// In order.
    pub ops: Vec<Op>,
    /// Those that `ops` name.
    pub matrices: Vec<Matrix>,
    /// Counters that hand out chunks: the same number for all threads.
    pub counters: u32,
}

impl Program {
    /// Whether threads take chunks as they come: then tokens must not overlap, or a counter would serve two of them.
    pub fn shares_counters(&self) -> bool {
        self.counters > 0
    }
}

/// What programs are made of.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The token.
    pub token: &'a Token,
    /// Where its weights lie.
    pub places: &'a [Option<u64>],
    /// How rows are split.
    pub slicing: Slicing,
    /// How they are multiplied.
    pub dots: &'a Dots,
}

/// The program of one thread.
pub fn compile(source: Source<'_>, share: Share, parts: Parts) -> Program {
    let mut compiler =
        Compiler { program: Program::default(), source, share, parts, area: Area::Even, draws: Draws::default() };
    for (phase, place) in source.token.phases.iter().zip(source.places) {
        compiler.phase(phase, *place);
    }
    // The arms without barriers meet after each token where they share counters.
    if !parts.barriers && compiler.program.shares_counters() {
        compiler.program.ops.push(Op::Barrier);
    }
    compiler.program
}

/// The roof's program of one thread: the same lines as a token's, in the longest slices that there are. All of them are
/// laid end to end and every thread has one contiguous share, with nothing to wait for.
pub fn compile_roof(token: &Token, places: &[Option<u64>], share: Share) -> Program {
    let weights = || {
        token.phases.iter().zip(places).filter_map(|(phase, place)| Some((phase, phase.weight.as_ref()?, (*place)?)))
    };
    let mine = share.of(weights().map(|(_, weight, _)| read_lines(weight)).sum());
    let mut ops: Vec<Op> = Vec::new();
    let mut position = 0;
    let mut draws = Draws::default();
    for (phase, weight, place) in weights() {
        let draw = draws.of(phase.layer, weight);
        let lines = read_lines(weight);
        let (start, end) = (mine.start.max(position), mine.end.min(position + lines));
        let begins_here = mine.contains(&position);
        let (from, to) = (start.saturating_sub(position), end.saturating_sub(position));
        position += lines;
        match weight.reading {
            // A row is not cut: it belongs to whoever has its first line.
            Reading::OneRow if begins_here => {
                ops.push(Op::Row { first: place, lines: lines as u32, rows: table_rows(weight) as u32 });
            }
            Reading::OneRow => {}
            _ if start >= end => {}
            Reading::Experts { .. } => {
                let matrix = lines_of(weight.matrix_bytes()) as u32;
                let draw = draw.unwrap_or(0) as u16;
                ops.push(Op::Span { first: place, matrix, draw, start: from as u32, end: to as u32 });
            }
            Reading::All => match ops.last_mut() {
                // Neighbours in memory are one slice.
                Some(Op::Stream { first, lines }) if *first + u64::from(*lines) == place + from => {
                    *lines += (to - from) as u32;
                }
                _ => ops.push(Op::Stream { first: place + from, lines: (to - from) as u32 }),
            },
        }
    }
    Program { ops, ..Program::default() }
}

/// Numbers the draws of a token: one a layer with experts.
#[derive(Default)]
struct Draws {
    /// The layer of the last draw, and its number.
    last: Option<(Option<u32>, u32)>,
}

impl Draws {
    /// The draw that a weight of this layer uses; `None` where it uses none.
    fn of(&mut self, layer: Option<u32>, weight: &Weight) -> Option<u32> {
        let Reading::Experts { .. } = weight.reading else { return None };
        let draw = match self.last {
            None => 0,
            Some((last, draw)) => draw + u32::from(last != layer),
        };
        self.last = Some((layer, draw));
        Some(draw)
    }
}

struct Compiler<'a> {
    program: Program,
    source: Source<'a>,
    share: Share,
    parts: Parts,
    /// Where the next phase finds its input.
    area: Area,
    draws: Draws,
}

impl Compiler<'_> {
    fn phase(&mut self, phase: &Phase, place: Option<u64>) {
        let (from, to) = (self.area, if self.area == Area::Even { Area::Odd } else { Area::Even });
        // A phase of one thread: thread 0 has all of it, the others nothing but the barrier.
        let share = match (phase.single_thread, self.share.thread) {
            (false, _) => Some(self.share),
            (true, 0) => Some(Share { thread: 0, threads: 1 }),
            (true, _) => None,
        };
        let matrix = place.and_then(|place| self.matrix(phase, place));
        let input = lines_of(phase.in_bytes);
        let copy = lines_of(phase.copy_bytes);
        if let Some(share) = share {
            // A matrix product whose weights take the input as it is has nothing to convert.
            if phase.is_norm() {
                self.norm(from, share.of_vector(phase.in_bytes, phase.rows));
            } else if !phase.is_matmul() || copy > 0 {
                self.take(from, share.of_vector(phase.in_bytes, phase.rows));
            }
            if copy > 0 {
                self.quantise(phase, matrix, share);
                self.put(Area::Copy, share.of(copy));
            }
        }
        for _ in 1..phase.barriers {
            self.barrier();
        }
        if let Some(share) = share {
            if copy > 0 {
                self.take(Area::Copy, 0..copy);
            } else if phase.is_matmul() {
                self.take(from, 0..input);
            }
            if let (Some(weight), Some(place)) = (&phase.weight, place) {
                self.stream(weight, place, matrix, share);
            }
            self.put(to, share.of_vector(phase.out_bytes, phase.rows));
        }
        if phase.barriers > 0 {
            self.barrier();
        }
        // Every thread must agree where the next input is, also those that had no part in this phase.
        if phase.out_bytes > 0 {
            self.area = to;
        }
    }

    /// The number of the matrix that a phase streams; `None` where that is a row of a table.
    fn matrix(&mut self, phase: &Phase, place: u64) -> Option<u32> {
        let weight = phase.weight.as_ref()?;
        let draw = self.draws.of(phase.layer, weight);
        if !self.parts.streams || weight.reading == Reading::OneRow {
            return None;
        }
        let threads = if phase.single_thread { 1 } else { self.share.threads as u64 };
        let cut = match phase.is_matmul() {
            true => self.source.slicing.cut(weight.rows, weight.block, draw.is_some(), threads),
            false => Slicing::Static.cut(weight.rows, weight.block, false, threads),
        };
        let dots = Some(self.source.dots).filter(|_| self.parts.dots && phase.is_matmul());
        self.program.matrices.push(Matrix {
            first: place,
            stride: lines_of(weight.matrix_bytes()) as u32,
            draw,
            rows: weight.rows,
            row_bytes: weight.row_bytes,
            cut,
            multiply: dots.and_then(|dots| dots.multiply(weight)),
        });
        Some(self.program.matrices.len() as u32 - 1)
    }

    fn stream(&mut self, weight: &Weight, place: u64, matrix: Option<u32>, share: Share) {
        let Some(matrix) = matrix else {
            // One row: the first thread has all of it.
            if self.parts.streams && share.thread == 0 {
                let (lines, rows) = (lines_of(weight.row_bytes) as u32, table_rows(weight) as u32);
                self.program.ops.push(Op::Row { first: place, lines, rows });
            }
            return;
        };
        let cut = self.program.matrices[matrix as usize].cut;
        if let Cut::Chunks { .. } = cut {
            let counter = self.program.counters;
            self.program.counters += match weight.reading {
                Reading::Experts { picked, .. } => picked as u32,
                Reading::All | Reading::OneRow => 1,
            };
            self.program.ops.push(Op::Chunks { matrix, counter });
            return;
        }
        let rows = cut.first(weight.rows, share.thread as u64, share.threads as u64);
        if !rows.is_empty() {
            self.program.ops.push(Op::Rows { matrix, first: rows.start as u32, rows: (rows.end - rows.start) as u32 });
        }
    }

    /// The thread's blocks of the copy of a product's input.
    fn quantise(&mut self, phase: &Phase, matrix: Option<u32>, share: Share) {
        let Some(matrix) = matrix.filter(|_| self.parts.activations) else { return };
        let Some(multiply) = self.program.matrices[matrix as usize].multiply else { return };
        let blocks = share.of(multiply.blocks_of(phase.copy_bytes));
        if !blocks.is_empty() {
            let (first, blocks) = (blocks.start as u32, (blocks.end - blocks.start) as u32);
            self.program.ops.push(Op::Quantise { matrix, first, blocks });
        }
    }

    fn barrier(&mut self) {
        if self.parts.barriers {
            self.program.ops.push(Op::Barrier);
        }
    }

    fn norm(&mut self, from: Area, lines: Range<u64>) {
        if self.parts.activations && !lines.is_empty() {
            let (first, lines) = (lines.start as u32, (lines.end - lines.start) as u32);
            self.program.ops.push(Op::Norm { from, first, lines });
        }
    }

    fn take(&mut self, from: Area, lines: Range<u64>) {
        if self.parts.activations && !lines.is_empty() {
            let (first, lines) = (lines.start as u32, (lines.end - lines.start) as u32);
            self.program.ops.push(Op::Take { from, first, lines });
        }
    }

    fn put(&mut self, to: Area, lines: Range<u64>) {
        if self.parts.activations && !lines.is_empty() {
            let (first, lines) = (lines.start as u32, (lines.end - lines.start) as u32);
            self.program.ops.push(Op::Put { to, first, lines });
        }
    }
}

/// What the router would pick, and which rows a token would look up: drawn before the clock starts.
#[derive(Debug)]
pub struct Picks {
    /// By token and draw, ascending in each.
    picks: Vec<Range<u32>>,
    experts: Vec<u16>,
    rows: Vec<u32>,
    draws: usize,
}

impl Picks {
    /// Tokens with picks of their own; later ones repeat them. A guess: enough that repeats are far apart.
    pub const TOKENS: usize = 64;

    /// Uniform picks without replacement. Real routers may be less even, which would reread more.
    pub fn new(token: &Token, seed: u64) -> Picks {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = draws(token);
        let mut table = Picks { picks: Vec::new(), experts: Vec::new(), rows: Vec::new(), draws: layers.len() };
        for _ in 0..Picks::TOKENS {
            table.rows.push(random.u32(..));
            for (of, picked) in &layers {
                let start = table.experts.len() as u32;
                let mut picks = random.choose_multiple(0..*of as u16, *picked as usize);
                picks.sort_unstable();
                table.experts.extend(picks);
                table.picks.push(start..table.experts.len() as u32);
            }
        }
        table
    }

    /// Experts picked by a token in a draw, ascending.
    #[inline]
    pub fn experts(&self, token: usize, draw: u32) -> &[u16] {
        let range = &self.picks[token % Picks::TOKENS * self.draws + draw as usize];
        &self.experts[range.start as usize..range.end as usize]
    }

    /// The row that a token looks up in a table of `rows`.
    #[inline]
    pub fn row(&self, token: usize, rows: u32) -> u32 {
        self.rows[token % Picks::TOKENS] % rows.max(1)
    }
}

/// Lines that the activation buffers need.
pub fn activation_lines(token: &Token) -> usize {
    let largest = token.phases.iter().map(|phase| phase.in_bytes.max(phase.out_bytes).max(phase.copy_bytes));
    lines_of(largest.max().unwrap_or(0)) as usize
}

/// What an operation reads of the arena at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Lines, by their numbers.
    Lines(Range<usize>),
    /// Rows of the matrix that begins at a line.
    Rows(usize, Range<u64>),
}

impl Program {
    /// Calls `visit` with each piece that an operation of `thread` reads for a token. `next` hands out the chunks of a
    /// counter: a number below the count of chunks, or any above when there are none left.
    #[inline]
    pub fn for_each_piece(
        &self,
        op: &Op,
        (picks, token): (&Picks, usize),
        share: Share,
        next: impl Fn(u32, u64) -> u64,
        mut visit: impl FnMut(Option<&Matrix>, Piece),
    ) {
        let range = |first: u64, lines: u32| Piece::Lines(first as usize..first as usize + lines as usize);
        match *op {
            Op::Stream { first, lines } => visit(None, range(first, lines)),
            Op::Rows { matrix, first, rows } => {
                let matrix = &self.matrices[matrix as usize];
                let rows = u64::from(first)..u64::from(first) + u64::from(rows);
                matrix.for_each(picks, token, |_, line| visit(Some(matrix), Piece::Rows(line, rows.clone())));
            }
            Op::Chunks { matrix, counter } => {
                let matrix = &self.matrices[matrix as usize];
                let Cut::Chunks { count, .. } = matrix.cut else { return };
                matrix.for_each(picks, token, |index, line| {
                    let mut chunk = share.thread as u64;
                    while chunk < count {
                        visit(Some(matrix), Piece::Rows(line, matrix.cut.first(matrix.rows, chunk, count)));
                        chunk = next(counter + index, count);
                    }
                });
            }
            Op::Row { first, lines, rows } => {
                visit(None, range(first + u64::from(picks.row(token, rows)) * u64::from(lines), lines));
            }
            Op::Span { first, matrix, draw, start, end } => {
                for (expert, from) in picks.experts(token, u32::from(draw)).iter().zip((0..).step_by(matrix as usize)) {
                    let (low, high) = (start.max(from), end.min(from + matrix));
                    if low < high {
                        let first = first + u64::from(*expert) * u64::from(matrix) + u64::from(low - from);
                        visit(None, range(first, high - low));
                    }
                }
            }
            Op::Barrier | Op::Take { .. } | Op::Put { .. } | Op::Norm { .. } | Op::Quantise { .. } => {}
        }
    }
}

impl Matrix {
    /// Calls `visit` with the number and the first line of the matrix, or of each expert's that a token picks.
    #[inline]
    fn for_each(&self, picks: &Picks, token: usize, mut visit: impl FnMut(u32, usize)) {
        match self.draw {
            None => visit(0, self.first as usize),
            Some(draw) => {
                for (index, expert) in (0..).zip(picks.experts(token, draw)) {
                    visit(index, (self.first + u64::from(*expert) * u64::from(self.stride)) as usize);
                }
            }
        }
    }
}

/// The ranges of whole matrices that a token reads, as the layout has them: computed without any slicing, to check it.
/// With each the weight, by its phase.
pub fn whole_ranges(token: &Token, places: &[Option<u64>], picks: &Picks, index: usize) -> Vec<(usize, Range<usize>)> {
    let mut ranges = Vec::new();
    let mut layers = Vec::new();
    for (number, (phase, place)) in token.phases.iter().zip(places).enumerate() {
        let (Some(weight), Some(place)) = (&phase.weight, place) else { continue };
        let matrix = lines_of(weight.matrix_bytes());
        let mut add = |first: u64, lines: u64| ranges.push((number, first as usize..(first + lines) as usize));
        match weight.reading {
            Reading::All => add(*place, matrix),
            Reading::Experts { .. } => {
                if layers.last() != Some(&phase.layer) {
                    layers.push(phase.layer);
                }
                for expert in picks.experts(index, layers.len() as u32 - 1) {
                    add(place + u64::from(*expert) * matrix, matrix);
                }
            }
            Reading::OneRow => {
                let row = lines_of(weight.row_bytes);
                add(place + u64::from(picks.row(index, table_rows(weight) as u32)) * row, row);
            }
        }
    }
    ranges
}
