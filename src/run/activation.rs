//! Activation vectors: written by the threads that compute them, read by all.

use crate::memory::Line;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a line.
const LINE_WORDS: usize = Line::BYTES as usize / size_of::<u64>();

/// An activation buffer. A phase reads one of the first two and writes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// First.
    Even,
    /// Second.
    Odd,
    /// The copy of a matrix product's input, in the type that its weights are multiplied with.
    Copy,
}

/// Words of a line of activations. Written by one thread and read by others with a barrier between; relaxed atomics
/// make that safe Rust. They compile to plain moves, one word each: vector code would spend fewer instructions on a line,
/// which matters only where the line is in the core's own cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ActivationLine([AtomicU64; LINE_WORDS]);

/// Activations that all threads share.
#[derive(Debug)]
pub struct Activations {
    areas: [Box<[ActivationLine]>; 3],
}

impl Activations {
    /// Buffers of this many lines. The thread that calls this touches them first, as an engine's main thread does.
    pub fn new(lines: usize) -> Activations {
        let area = || (0..lines).map(|_| ActivationLine::default()).collect();
        Activations { areas: [area(), area(), area()] }
    }

    #[inline]
    fn lines(&self, area: Area, first: u32, lines: u32) -> &[ActivationLine] {
        &self.areas[area as usize][first as usize..first as usize + lines as usize]
    }

    /// Reads every word; the sum inside a line is a tree, so that it does not outlast the loads.
    #[inline]
    pub fn take(&self, area: Area, first: u32, lines: u32) -> u64 {
        let mut sum = 0u64;
        for ActivationLine(words) in self.lines(area, first, lines) {
            let word = |index: usize| words[index].load(Ordering::Relaxed);
            let pair = |index: usize| word(index).wrapping_add(word(index + 1));
            sum = sum.wrapping_add(pair(0).wrapping_add(pair(2)).wrapping_add(pair(4).wrapping_add(pair(6))));
        }
        sum
    }

    /// Reads every word and adds up the squares of its 32-bit values one after another, each sum after the one before, as
    /// llama.cpp does for a norm. Their exponents are set, as a subnormal number would be multiplied more slowly.
    #[inline]
    pub fn norm(&self, area: Area, first: u32, lines: u32) -> u64 {
        const MANTISSA: u32 = 0x007f_ffff;
        let value = |bits: u32| f32::from_bits(bits & MANTISSA | 1f32.to_bits());
        let mut sum = 0f64;
        for ActivationLine(words) in self.lines(area, first, lines) {
            for word in words {
                let bits = word.load(Ordering::Relaxed);
                let (low, high) = (value(bits as u32), value((bits >> 32) as u32));
                sum += f64::from(low * low);
                sum += f64::from(high * high);
            }
        }
        sum.to_bits()
    }

    /// Writes every word with a value that depends on `value`.
    #[inline]
    pub fn put(&self, area: Area, first: u32, lines: u32, value: u64) {
        for ActivationLine(words) in self.lines(area, first, lines) {
            for word in words {
                word.store(value, Ordering::Relaxed);
            }
        }
    }
}
