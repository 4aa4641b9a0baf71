//! What a token's products need besides weights: a kernel for each type, and activations to multiply with.

use crate::error::{Error, Result};
use crate::kernel::dot::{ActivationType, Dot, Flavour, WeightType, check};
use crate::machine::IsaSet;
use crate::memory::split_mix;
use crate::workload::Weight;
use crate::workload::decode::Token;

/// A kernel for each type of weights that has one.
#[derive(Clone, Debug)]
pub struct Dots([Option<Dot>; WeightType::ALL.len()]);

/// How a matrix is multiplied.
#[derive(Clone, Copy, Debug)]
pub struct Multiply {
    dot: Dot,
    /// Bytes of the activation vector that goes with a row.
    activation_bytes: u32,
}

impl Dots {
    /// The kernels of a flavour that `isa` allows, those that `tokens` need checked against the oracle.
    ///
    /// # Errors
    /// When one of them computes something else.
    pub fn new<'a>(flavour: Flavour, isa: &IsaSet, tokens: impl Iterator<Item = &'a Token>) -> Result<Dots> {
        let dots = Dots(WeightType::ALL.map(|kind| Dot::find(kind, flavour, isa)));
        let mut needed = [false; WeightType::ALL.len()];
        for weight in tokens.flat_map(products) {
            if let Some(kind) = weight.block.and_then(|block| block.weight_type()) {
                needed[kind as usize] = true;
            }
        }
        for (dot, _) in dots.0.iter().flatten().zip(needed).filter(|(_, needed)| *needed) {
            check(*dot)?;
        }
        Ok(dots)
    }

    /// How to multiply rows of these weights; `None` where there is no kernel for their type.
    pub fn multiply(&self, weight: &Weight) -> Option<Multiply> {
        let dot = self.0[weight.block?.weight_type()? as usize]?;
        let bytes = dot.row().weights.activation().vector_bytes(weight.columns()? as usize)?;
        Some(Multiply { dot, activation_bytes: bytes as u32 })
    }
}

/// Weights that a token multiplies with.
fn products(token: &Token) -> impl Iterator<Item = &Weight> {
    token.phases.iter().filter(|phase| phase.is_matmul()).filter_map(|phase| phase.weight.as_ref())
}

/// Rows that are multiplied by one call.
const ROWS_AT_ONCE: usize = 64;

impl Multiply {
    /// Blocks of so many bytes of converted activations.
    pub fn blocks_of(&self, bytes: u64) -> u64 {
        let (block_bytes, _) = self.kind().block();
        bytes / block_bytes as u64
    }

    fn kind(&self) -> ActivationType {
        self.dot.row().weights.activation()
    }

    /// Multiplies rows of so many bytes each. Returns the sum of the products' bits, which does not depend on who
    /// multiplied which rows; `None` when rows do not fit.
    #[inline]
    pub fn rows(&self, weights: &[u8], row_bytes: usize, vectors: &Vectors) -> Option<u64> {
        let activation = vectors.quantised[self.kind() as usize].get(..self.activation_bytes as usize)?;
        let mut products = [0f32; ROWS_AT_ONCE];
        let mut sum = 0u64;
        for weights in weights.chunks(ROWS_AT_ONCE * row_bytes) {
            let products = &mut products[..weights.len() / row_bytes];
            self.dot.rows(weights, activation, products).ok()?;
            sum = products.iter().fold(sum, |sum, product| sum.wrapping_add(u64::from(product.to_bits())));
        }
        Some(sum)
    }

    /// Converts blocks of activations, as each thread does with its part before a product.
    #[inline]
    pub fn quantise(&self, first: u32, blocks: u32, vectors: &mut Vectors) {
        let (block_bytes, in_block) = self.kind().block();
        let (first, blocks) = (first as usize, blocks as usize);
        let values = vectors.values.get(first * in_block..(first + blocks) * in_block);
        let copy = vectors.copy.get_mut(first * block_bytes..(first + blocks) * block_bytes);
        if let (Some(values), Some(copy)) = (values, copy) {
            // Lengths are those of whole blocks, the only thing that it refuses.
            let _ = self.dot.quantise(values, copy);
        }
    }
}

/// A thread's own activations: the same for all threads and tokens, so that the products of a token do not depend on who
/// computed them. What moves between threads is in [`Activations`](crate::run::activation::Activations).
#[derive(Debug)]
pub struct Vectors {
    values: Vec<f32>,
    /// By activation type, as long as the longest row needs.
    quantised: [Vec<u8>; 4],
    /// Where conversions are written.
    copy: Vec<u8>,
}

impl Vectors {
    /// Those that a token's products need.
    ///
    /// # Errors
    /// When a kernel refuses to convert them.
    pub fn new(token: &Token, dots: &Dots) -> Result<Vectors> {
        let mut lengths = [0usize; 4];
        let (mut values, mut copy) = (0, 0);
        for phase in token.phases.iter().filter(|phase| phase.is_matmul()) {
            let Some(weight) = &phase.weight else { continue };
            let Some(multiply) = dots.multiply(weight) else { continue };
            let (block_bytes, in_block) = multiply.kind().block();
            let length = &mut lengths[multiply.kind() as usize];
            let row_blocks = multiply.activation_bytes as usize / block_bytes;
            *length = row_blocks.max(*length);
            let blocks = row_blocks.max(multiply.blocks_of(phase.copy_bytes) as usize);
            values = values.max(blocks * in_block);
            copy = copy.max(blocks * block_bytes);
        }
        // In -1…1 and varying.
        let value = |index: usize| (split_mix(1, index as u64) >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        let mut vectors = Vectors {
            values: (0..values).map(value).collect(),
            quantised: [const { Vec::new() }; 4],
            copy: vec![0; copy],
        };
        for dot in dots.0.iter().flatten() {
            let kind = dot.row().weights.activation();
            let (block_bytes, in_block) = kind.block();
            let blocks = lengths[kind as usize];
            let quantised = &mut vectors.quantised[kind as usize];
            if quantised.is_empty() && blocks > 0 {
                quantised.resize(blocks * block_bytes, 0);
                let values = vectors.values.get(..blocks * in_block).ok_or_else(too_short)?;
                dot.quantise(values, quantised)?;
            }
        }
        Ok(vectors)
    }
}

fn too_short() -> Error {
    Error::refused("convert activations", "they are shorter than a row of weights", "report this as a bug")
}
