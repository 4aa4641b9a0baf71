//! The plain Rust meaning of each operation, twice: [`word`] is the oracle that every row is checked against, the
//! functions named as rows are those that run on any architecture, written so that the compiler vectorises them.

use super::{Operands, Operation};
use crate::memory::Line;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

/// STREAM's scalar.
const SCALAR: f64 = 3.0;

/// The word that `operation` leaves in the destination for the word there and those of its sources, one at a time and
/// by definition.
fn word(operation: Operation, d: u64, a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    match operation {
        Operation::Read => d,
        Operation::Copy => a,
        Operation::Scale => (SCALAR * x).to_bits(),
        Operation::Add => (x + y).to_bits(),
        Operation::Triad => (x + SCALAR * y).to_bits(),
        Operation::Fill => SCALAR.to_bits(),
        Operation::Mix11 => !d,
        Operation::Mix21 => d ^ a,
        Operation::Mix31 => d ^ a ^ b,
    }
}

/// The line that one pass of `operation` leaves in the destination, which held `d`, for these lines of its sources,
/// word by word from the definition. What several passes leave is this so many times over.
pub fn expected_line(operation: Operation, d: &Line, a: &Line, b: &Line) -> Line {
    let (d, a, b) = (d.words(), a.words(), b.words());
    Line::from_words(std::array::from_fn(|index| word(operation, d[index], a[index], b[index])))
}

/// The checksum that a `read` of these lines returns, from the definition.
pub fn expected_sum(lines: &[Line]) -> u64 {
    lines.iter().flat_map(|line| line.words()).fold(0, u64::wrapping_add)
}

/// Lines of one turn of `read_rust`: with one accumulator a word, as many as fit the registers of any architecture.
const TURN: usize = 2;

pub(super) fn read_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..passes {
        // An accumulator for each word of a turn, or the additions would wait for each other. The box hides that every
        // pass reads the same.
        let (turns, rest) = black_box(operands.a).as_chunks::<TURN>();
        let mut sums = [[0u64; 8]; TURN];
        for turn in turns {
            add_lines(&mut sums, turn);
        }
        add_lines(&mut sums, rest);
        sum = sums.as_flattened().iter().fold(0u64, |sum, part| sum.wrapping_add(*part));
    }
    sum
}

#[inline(always)]
fn add_lines(sums: &mut [[u64; 8]; TURN], lines: &[Line]) {
    for (sums, line) in sums.iter_mut().zip(lines) {
        for (sum, word) in sums.iter_mut().zip(line.words()) {
            *sum = sum.wrapping_add(word);
        }
    }
}

pub(super) fn copy_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    for _ in 0..passes {
        for (d, a) in operands.dst.iter_mut().zip(black_box(operands.a)) {
            *d = *a;
            // Without it the loop becomes one memcpy, which is `copy_libc` and not an ordinary store any more.
            compiler_fence(Ordering::SeqCst);
        }
    }
    0
}

/// One memcpy a pass: what gcc makes of STREAM's copy loop. glibc decides by the length whether it stores past the
/// caches (on x86 above its tunable x86_non_temporal_threshold, derived from the cache sizes), and fences such stores.
pub(super) fn copy_libc(operands: &mut Operands<'_>, passes: u64) -> u64 {
    for _ in 0..passes {
        operands.dst.copy_from_slice(operands.a);
        // Somebody might look at the copy, so the next pass cannot be left out.
        black_box(&mut *operands.dst);
    }
    0
}

pub(super) fn scale_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    map_one(operands, passes, |a| SCALAR * a)
}

pub(super) fn add_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    map_two(operands, passes, |a, b| a + b)
}

pub(super) fn triad_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    map_two(operands, passes, |a, b| a + SCALAR * b)
}

pub(super) fn fill_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    for _ in 0..passes {
        let line = Line::from_words([SCALAR.to_bits(); 8]);
        for d in black_box(&mut *operands.dst) {
            *d = line;
        }
    }
    0
}

#[inline(always)]
fn map_one(operands: &mut Operands<'_>, passes: u64, formula: impl Fn(f64) -> f64) -> u64 {
    for _ in 0..passes {
        for (d, a) in operands.dst.iter_mut().zip(black_box(operands.a)) {
            let mut words = a.words();
            for word in &mut words {
                *word = formula(f64::from_bits(*word)).to_bits();
            }
            *d = Line::from_words(words);
        }
    }
    0
}

#[inline(always)]
fn map_two(operands: &mut Operands<'_>, passes: u64, formula: impl Fn(f64, f64) -> f64) -> u64 {
    for _ in 0..passes {
        for ((d, a), b) in operands.dst.iter_mut().zip(black_box(operands.a)).zip(black_box(operands.b)) {
            let mut words = a.words();
            for (word, other) in words.iter_mut().zip(b.words()) {
                *word = formula(f64::from_bits(*word), f64::from_bits(other)).to_bits();
            }
            *d = Line::from_words(words);
        }
    }
    0
}

pub(super) fn mix_1_1_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    for _ in 0..passes {
        for d in black_box(&mut *operands.dst) {
            *d = Line::from_words(d.words().map(|word| !word));
        }
    }
    0
}

pub(super) fn mix_2_1_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    for _ in 0..passes {
        for (d, a) in operands.dst.iter_mut().zip(black_box(operands.a)) {
            *d = xor(d, a);
        }
    }
    0
}

pub(super) fn mix_3_1_rust(operands: &mut Operands<'_>, passes: u64) -> u64 {
    for _ in 0..passes {
        for ((d, a), b) in operands.dst.iter_mut().zip(black_box(operands.a)).zip(black_box(operands.b)) {
            *d = xor(d, &xor(a, b));
        }
    }
    0
}

#[inline(always)]
fn xor(a: &Line, b: &Line) -> Line {
    let mut words = a.words();
    for (word, other) in words.iter_mut().zip(b.words()) {
        *word ^= other;
    }
    Line::from_words(words)
}
