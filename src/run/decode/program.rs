//! What one thread does for one token: compiled before the clock starts into a flat list of small operations.

use crate::plan::experts::layout::{lines_of, read_lines, table_rows};
use crate::run::activation::Area;
use crate::workload::Arm;
use crate::workload::decode::{Phase, Token};
use crate::workload::{Reading, Weight};
use std::ops::Range;

/// One operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read these lines of the arena.
    Stream {
        /// First line.
        first: u64,
        /// How many.
        lines: u32,
    },
    /// Read this part of the matrix of each expert that the token picks.
    Experts {
        /// Line at which the part starts in expert 0.
        first: u64,
        /// How many lines in each.
        lines: u32,
        /// Lines from an expert to the next.
        stride: u32,
        /// The draw of picks: one a layer with experts.
        draw: u32,
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
}

/// Which kinds of operation an arm has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Weights are read.
    pub streams: bool,
    /// Barrier points are kept.
    pub barriers: bool,
    /// Activations move.
    pub activations: bool,
}

impl Parts {
    /// Those of an arm. `dot` and `traced` do not exist yet: `None`.
    pub fn of(arm: Arm) -> Option<Parts> {
        let (streams, barriers, activations) = match arm {
            Arm::Roof | Arm::Read => (true, false, false),
            Arm::Sync => (true, true, false),
            Arm::Full => (true, true, true),
            Arm::Barrier => (false, true, false),
            Arm::Dot | Arm::Traced => return None,
        };
        Some(Parts { streams, barriers, activations })
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

    /// The lines of its rows of a matrix. Cut at lines, so that each line is read by exactly one thread.
    fn of_rows(self, rows: u64, row_bytes: u64) -> Range<u64> {
        let rows = self.of(rows);
        lines_of(rows.start * row_bytes)..lines_of(rows.end * row_bytes)
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

/// The program of one thread for a token whose weights lie at `places`.
pub fn compile(token: &Token, places: &[Option<u64>], share: Share, parts: Parts) -> Vec<Op> {
    let mut program = Program { ops: Vec::new(), share, parts, area: Area::Even, draws: Draws::default() };
    for (phase, place) in token.phases.iter().zip(places) {
        program.phase(phase, *place);
    }
    program.ops
}

/// The roof's program of one thread: the same lines as a token's, in the longest slices that there are. All of them are
/// laid end to end and every thread has one contiguous share, with nothing to wait for.
pub fn compile_roof(token: &Token, places: &[Option<u64>], share: Share) -> Vec<Op> {
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
                ops.push(Op::Span { first: place, matrix, draw: draw as u16, start: from as u32, end: to as u32 });
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
    ops
}

/// Numbers the draws of a token: one a layer with experts.
#[derive(Default)]
struct Draws {
    /// The layer of the last draw, and its number.
    last: Option<(Option<u32>, u32)>,
}

impl Draws {
    /// The draw that a weight of this layer uses; 0 where it uses none.
    fn of(&mut self, layer: Option<u32>, weight: &Weight) -> u32 {
        let Reading::Experts { .. } = weight.reading else { return 0 };
        let draw = match self.last {
            None => 0,
            Some((last, draw)) => draw + u32::from(last != layer),
        };
        self.last = Some((layer, draw));
        draw
    }
}

struct Program {
    ops: Vec<Op>,
    share: Share,
    parts: Parts,
    /// Where the next phase finds its input.
    area: Area,
    draws: Draws,
}

impl Program {
    fn phase(&mut self, phase: &Phase, place: Option<u64>) {
        let (from, to) = (self.area, if self.area == Area::Even { Area::Odd } else { Area::Even });
        // A phase of one thread: thread 0 has all of it, the others nothing but the barrier.
        let share = match (phase.single_thread, self.share.thread) {
            (false, _) => Some(self.share),
            (true, 0) => Some(Share { thread: 0, threads: 1 }),
            (true, _) => None,
        };
        let input = lines_of(phase.in_bytes);
        let copy = lines_of(phase.copy_bytes);
        if let Some(share) = share {
            // A matrix product whose weights take the input as it is has nothing to convert.
            if !phase.is_matmul() || copy > 0 {
                self.take(from, share.of(input));
            }
            if copy > 0 {
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
                self.stream(phase, weight, place, share);
            }
            self.put(to, share.of(lines_of(phase.out_bytes)));
        }
        if phase.barriers > 0 {
            self.barrier();
        }
        // Every thread must agree where the next input is, also those that had no part in this phase.
        if phase.out_bytes > 0 {
            self.area = to;
        }
    }

    fn stream(&mut self, phase: &Phase, weight: &Weight, place: u64, share: Share) {
        let draw = self.draws.of(phase.layer, weight);
        if !self.parts.streams {
            return;
        }
        let part = share.of_rows(weight.rows, weight.row_bytes);
        let (first, lines) = (place + part.start, (part.end - part.start) as u32);
        let op = match weight.reading {
            Reading::All => Op::Stream { first, lines },
            Reading::Experts { .. } => {
                Op::Experts { first, lines, stride: lines_of(weight.matrix_bytes()) as u32, draw }
            }
            // One row: the first thread has all of it.
            Reading::OneRow if share.thread == 0 => {
                Op::Row { first: place, lines: lines_of(weight.row_bytes) as u32, rows: table_rows(weight) as u32 }
            }
            Reading::OneRow => return,
        };
        if !matches!(op, Op::Stream { lines: 0, .. } | Op::Experts { lines: 0, .. }) {
            self.ops.push(op);
        }
    }

    fn barrier(&mut self) {
        if self.parts.barriers {
            self.ops.push(Op::Barrier);
        }
    }

    fn take(&mut self, from: Area, lines: Range<u64>) {
        if self.parts.activations && !lines.is_empty() {
            self.ops.push(Op::Take { from, first: lines.start as u32, lines: (lines.end - lines.start) as u32 });
        }
    }

    fn put(&mut self, to: Area, lines: Range<u64>) {
        if self.parts.activations && !lines.is_empty() {
            self.ops.push(Op::Put { to, first: lines.start as u32, lines: (lines.end - lines.start) as u32 });
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

/// Calls `visit` with each range of lines that an operation reads for a token.
#[inline]
pub fn for_each_range(op: &Op, picks: &Picks, token: usize, mut visit: impl FnMut(Range<usize>)) {
    let range = |first: u64, lines: u32| first as usize..first as usize + lines as usize;
    match *op {
        Op::Stream { first, lines } => visit(range(first, lines)),
        Op::Experts { first, lines, stride, draw } => {
            for expert in picks.experts(token, draw) {
                visit(range(first + u64::from(*expert) * u64::from(stride), lines));
            }
        }
        Op::Row { first, lines, rows } => {
            visit(range(first + u64::from(picks.row(token, rows)) * u64::from(lines), lines));
        }
        Op::Span { first, matrix, draw, start, end } => {
            for (expert, from) in picks.experts(token, u32::from(draw)).iter().zip((0..).step_by(matrix as usize)) {
                let (low, high) = (start.max(from), end.min(from + matrix));
                if low < high {
                    visit(range(first + u64::from(*expert) * u64::from(matrix) + u64::from(low - from), high - low));
                }
            }
        }
        Op::Barrier | Op::Take { .. } | Op::Put { .. } => {}
    }
}

/// The ranges of whole matrices that a token reads, as the layout has them: computed without any slicing, to check it.
pub fn whole_ranges(token: &Token, places: &[Option<u64>], picks: &Picks, index: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut layers = Vec::new();
    for (phase, place) in token.phases.iter().zip(places) {
        let (Some(weight), Some(place)) = (&phase.weight, place) else { continue };
        let matrix = lines_of(weight.matrix_bytes());
        let mut add = |first: u64, lines: u64| ranges.push(first as usize..(first + lines) as usize);
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
