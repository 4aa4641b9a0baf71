//! Every usable row against the definition, on seeded and extreme blocks that lie flush with an inaccessible page.

use super::block::{Q4K, Q6K, Q8_0};
use super::{ActivationType, Dot, WeightType, oracle, portable};
use crate::error::{Error, Result};
use crate::kernel::check::Place;
use crate::memory::{Buffer, Line, Pages, split_mix};
use crate::units::Bytes;
use std::mem::offset_of;

/// Blocks of a row: none, all around one and two rounds of the kernels' loops, and a few longer ones.
const BLOCKS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 33];
/// Weights of a row where each is a block of its own: the same for vectors of 8 to 32 weights, and none of them.
const SHORTS: [usize; 18] = [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 513, 1031];
/// Rows of one call.
const ROWS: [usize; 2] = [1, 3];

/// Offsets in bytes, ends first as for the other kernels.
const PLACES: [Place; 6] = [
    Place::BeforeEnd(0),
    Place::BeforeEnd(1),
    Place::BeforeEnd(2),
    Place::AfterStart(0),
    Place::AfterStart(1),
    Place::AfterStart(34),
];

/// What weights to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    /// Those of [`WeightType::fill`].
    Plausible,
    /// Under plausible scales, bytes and nibbles at the ends of their range.
    Extreme,
    /// All scales (16-bit types: all weights) these bits: zero of both signs, the smallest, large ones.
    Scale(u16),
}

impl Weights {
    const BITS: [u16; 6] = [0x0000, 0x8000, 0x0001, 0x83ff, 0x7000, 0xf000];

    /// Fills rows with such weights.
    fn make(self, kind: WeightType, bytes: &mut [u8], seed: u64) {
        kind.fill(bytes, 0, seed);
        let (block_bytes, _) = kind.block();
        let ends = [0x80, 0x7f, 0xff, 0x00, 0x88, 0x77, 0x81, 0xf0];
        for (number, block) in bytes.chunks_mut(block_bytes).enumerate() {
            let scales: &[usize] = match kind {
                WeightType::Q8_0 => &[offset_of!(Q8_0, d)],
                WeightType::Q4_K => &[offset_of!(Q4K, d), offset_of!(Q4K, dmin)],
                WeightType::Q6_K => &[offset_of!(Q6K, d)],
                WeightType::F16 | WeightType::BF16 => &[0],
                WeightType::MXFP4 => &[],
            };
            match self {
                Weights::Plausible => {}
                Weights::Extreme if matches!(kind, WeightType::F16 | WeightType::BF16) => {}
                Weights::Extreme => {
                    // The same end in a whole block every other time: sums are then as large as they get.
                    let random = split_mix(!seed, number as u64);
                    for (place, byte) in block.iter_mut().enumerate() {
                        let is_scale = scales.iter().any(|scale| (*scale..scale + 2).contains(&place));
                        if !is_scale && (kind != WeightType::MXFP4 || place > 0) {
                            let pick = if number % 2 == 0 { random } else { random.rotate_left(place as u32 * 3) };
                            *byte = ends[(pick % 8) as usize];
                        }
                    }
                }
                Weights::Scale(bits) => {
                    for scale in scales {
                        block[*scale..scale + 2].copy_from_slice(&bits.to_le_bytes());
                    }
                    if kind == WeightType::MXFP4 {
                        // The two subnormal ones, and others that leave room for a sum.
                        block[0] = (bits % 200) as u8;
                    }
                }
            }
        }
    }
}

/// What activations to make, before they are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activations {
    /// From -1 to 1.
    Plausible,
    /// -1 or 1: quants of -127 and 127.
    Extreme,
    /// 0: a block without a largest value.
    Zero,
}

impl Activations {
    fn make(self, values: usize, seed: u64) -> Vec<f32> {
        let value = |index: usize| {
            let random = split_mix(seed, index as u64);
            match self {
                Activations::Plausible => (random >> 40) as f32 / (1 << 23) as f32 - 1.0,
                Activations::Extreme => [-1.0, 1.0][(random % 2) as usize],
                Activations::Zero => 0.0,
            }
        };
        (0..values).map(value).collect()
    }
}

/// Compares `dot` with the definition over lengths, numbers of rows, places and extreme values, and what it quantises with
/// the portable quantisation.
///
/// A kernel that loads bytes beyond its rows or its activation meets an inaccessible page: the process then dies of
/// SIGSEGV.
///
/// # Errors
/// Names the kernel, the case and what differed.
pub fn check(dot: Dot) -> Result<()> {
    let kind = dot.row().weights;
    let (block_bytes, in_block) = kind.block();
    let lengths: &[usize] = if in_block == 1 { &SHORTS } else { &BLOCKS };
    let longest = lengths.iter().max().copied().unwrap_or(0);
    let reserve = |bytes: usize| Buffer::reserve(Bytes(bytes as u64 + Line::BYTES), Pages::Default);
    let mut weights = reserve(longest * block_bytes * ROWS[1])?;
    let mut activation = reserve(longest * kind.activation().block().0)?;
    let mut cases = vec![
        (Weights::Plausible, Activations::Plausible),
        (Weights::Plausible, Activations::Zero),
        (Weights::Extreme, Activations::Extreme),
        (Weights::Extreme, Activations::Plausible),
    ];
    cases.extend(Weights::BITS.map(|bits| (Weights::Scale(bits), Activations::Plausible)));
    for blocks in lengths {
        for (weights_made, activations_made) in &cases {
            let case = Case { blocks: *blocks, weights: *weights_made, activations: *activations_made };
            case.compare(dot, &mut weights, &mut activation)?;
        }
    }
    Ok(())
}

/// One length with one kind of values.
#[derive(Clone, Copy, Debug)]
struct Case {
    blocks: usize,
    weights: Weights,
    activations: Activations,
}

impl Case {
    fn compare(self, dot: Dot, weights: &mut Buffer, activation: &mut Buffer) -> Result<()> {
        let kind = dot.row().weights;
        let refused = |place: String, difference: String| {
            let Case { blocks, weights, activations } = self;
            Error::refused(
                format!(
                    "verify kernel '{}' with blocks={blocks} weights={weights:?} activations={activations:?}{place}",
                    dot.row().name
                ),
                difference,
                "use none of its numbers; choose another kernel and report this",
            )
        };
        let (block_bytes, in_block) = kind.block();
        let seed = (self.blocks as u64) << 32;
        let mut made = vec![0; self.blocks * block_bytes * ROWS[1]];
        self.weights.make(kind, &mut made, seed);
        let values = self.activations.make(self.blocks * in_block, seed ^ 1);
        let mut quantised = vec![0; self.blocks * kind.activation().block().0];
        let mut portably = quantised.clone();
        dot.quantise(&values, &mut quantised)?;
        quantise_portably(kind.activation(), &values, &mut portably);
        if let Some(place) = quantised.iter().zip(&portably).position(|(ours, portable)| ours != portable) {
            let (ours, portable) = (quantised[place], portably[place]);
            let difference = format!("byte {place} of the activation is {ours:#x}, the reference says {portable:#x}");
            return Err(refused(String::new(), difference));
        }
        let row_bytes = (self.blocks * block_bytes).max(1);
        let mut expected: Vec<_> = made.chunks(row_bytes).map(|row| oracle::dot(kind, row, &quantised)).collect();
        // Rows without weights have sums too.
        expected.resize(ROWS[1], (0.0, 0.0));
        for rows in ROWS {
            for place in PLACES {
                let (weights, activation) =
                    (Line::bytes_mut(weights.lines_mut()), Line::bytes_mut(activation.lines_mut()));
                let at_weights = place.range(weights.len(), self.blocks * block_bytes * rows);
                let at_activation = place.range(activation.len(), quantised.len());
                weights[at_weights.clone()].copy_from_slice(&made[..at_weights.len()]);
                activation[at_activation.clone()].copy_from_slice(&quantised);
                let mut sums = [f32::NAN; ROWS[1]];
                dot.rows(&weights[at_weights], &activation[at_activation], &mut sums[..rows])?;
                for (row, (sum, (exact, magnitude))) in sums[..rows].iter().zip(&expected).enumerate() {
                    let off = (f64::from(*sum) - exact).abs();
                    if off.is_nan() || off > oracle::tolerance(self.blocks * in_block, *magnitude) {
                        let difference = format!("its sum of row {row} is {sum:e}, the reference says {exact:e}");
                        return Err(refused(format!(" rows={rows} place={place:?}"), difference));
                    }
                }
            }
        }
        Ok(())
    }
}

fn quantise_portably(kind: ActivationType, values: &[f32], activation: &mut [u8]) {
    // SAFETY: plain Rust needs nothing of the processor.
    unsafe { portable::QUANTISE[kind as usize](values, activation) };
}

#[cfg(test)]
mod tests {
    use super::super::{Flavour, Row};
    use super::*;
    use crate::machine::{Isa, IsaSet};

    #[test]
    fn every_usable_row_passes() {
        let isa = IsaSet::detect();
        for row in Dot::table() {
            match Dot::new(row, &isa) {
                Ok(dot) => check(dot).unwrap(),
                Err(reason) => println!("{}: not run, {reason}", row.name),
            }
        }
    }

    /// The portable row of this type with other code.
    fn broken(weights: WeightType, rows: unsafe fn(&[u8], &[u8], &mut [f32])) -> Dot {
        let quantise = portable::QUANTISE[weights.activation() as usize];
        let (flavour, isa) = (Flavour::Engine, Isa::Rust);
        let row = Row { name: "broken", weights, flavour, isa, extensions: &[], vector_bytes: None, rows, quantise };
        Dot { row: Box::leak(Box::new(row)) }
    }

    fn refusal(weights: WeightType, rows: unsafe fn(&[u8], &[u8], &mut [f32])) -> String {
        let text = check(broken(weights, rows)).unwrap_err().to_string();
        assert!(text.starts_with("could not verify kernel 'broken' with blocks="), "{text}");
        text
    }

    #[test]
    fn wrong_sums_are_found() {
        fn right(weights: &[u8], activation: &[u8], sums: &mut [f32]) {
            portable::dot_q8_0_engine_rust(weights, activation, sums);
        }
        fn nothing(_: &[u8], _: &[u8], _: &mut [f32]) {}
        fn all_but_the_last_block(weights: &[u8], activation: &[u8], sums: &mut [f32]) {
            let mut activation = activation.to_vec();
            // A scale of 0.
            let last = activation.len().saturating_sub(34);
            activation[last..].iter_mut().take(2).for_each(|byte| *byte = 0);
            right(weights, &activation, sums);
        }
        fn all_but_the_last_weight(weights: &[u8], activation: &[u8], sums: &mut [f32]) {
            let mut activation = activation.to_vec();
            if let Some(last) = activation.last_mut() {
                *last = 0;
            }
            right(weights, &activation, sums);
        }
        fn the_first_row_alone(weights: &[u8], activation: &[u8], sums: &mut [f32]) {
            right(weights, activation, sums);
            let first = sums[0];
            sums.fill(first);
        }
        assert!(check(broken(WeightType::Q8_0, right)).is_ok());
        assert!(refusal(WeightType::Q8_0, nothing).contains("blocks=0 "));
        assert!(refusal(WeightType::Q8_0, all_but_the_last_block).contains("blocks=1 "));
        assert!(refusal(WeightType::Q8_0, all_but_the_last_weight).contains("blocks=1 "));
        assert!(refusal(WeightType::Q8_0, the_first_row_alone).contains("rows=3 "));
    }
}
