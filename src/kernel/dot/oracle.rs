//! What a dot product is, by definition: both sides as numbers, one at a time, multiplied and added in 64-bit floats.
//!
//! Written from the formats alone, with none of the kernels' code for unpacking: `gguf` (PyPI, the Python package of
//! llama.cpp's authors) reads the same numbers from the same bytes, which a test holds.

use super::float::{from_brain, from_half};
use super::{ActivationType, WeightType};

/// A weight as a product of a scale and a quant, less an offset. The parts are kept apart because a kernel's rounding
/// depends on their size, not on that of their difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    /// Scale times quant.
    pub product: f64,
    /// What is taken off.
    pub offset: f64,
}

fn half(bytes: &[u8], place: usize) -> f64 {
    from_half([bytes[place], bytes[place + 1]]).into()
}

/// Weight number `index` of one block.
pub(super) fn weight(kind: WeightType, block: &[u8], index: usize) -> Weight {
    let plain = |product: f64| Weight { product, offset: 0.0 };
    match kind {
        WeightType::Q8_0 => plain(half(block, 0) * f64::from(block[2 + index] as i8)),
        WeightType::F16 => plain(half(block, 0)),
        WeightType::BF16 => plain(from_brain([block[0], block[1]]).into()),
        WeightType::MXFP4 => {
            let nibble = block[1 + index % 16] >> (index / 16 * 4) & 15;
            // E2M1: a sign, two bits of exponent with bias 1, one of mantissa.
            let (exponent, mantissa) = (i32::from(nibble >> 1 & 3), f64::from(nibble & 1));
            let magnitude =
                if exponent == 0 { mantissa / 2.0 } else { (1.0 + mantissa / 2.0) * f64::powi(2.0, exponent - 1) };
            let sign = if nibble >> 3 == 1 { -1.0 } else { 1.0 };
            plain(sign * magnitude * f64::powi(2.0, i32::from(block[0]) - 127))
        }
        WeightType::Q4_K => {
            let (group, place) = (index / 32, index % 32);
            let packed = &block[4..16];
            let (scale, minimum) = if group < 4 {
                (packed[group] & 63, packed[group + 4] & 63)
            } else {
                let low = packed[group + 4];
                (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
            };
            let quant = block[16 + group / 2 * 32 + place] >> (group % 2 * 4) & 15;
            Weight {
                product: half(block, 0) * f64::from(scale) * f64::from(quant),
                offset: half(block, 2) * f64::from(minimum),
            }
        }
        WeightType::Q6_K => {
            let (part, place) = (index / 128, index % 128);
            let low = block[part * 64 + place % 64] >> (place / 64 * 4) & 15;
            let high = block[128 + part * 32 + place % 32] >> (place / 32 * 2) & 3;
            let scale = half(block, 208) * f64::from(block[192 + index / 16] as i8);
            Weight { product: scale * f64::from(high << 4 | low), offset: scale * 32.0 }
        }
    }
}

/// Activation number `index` of one block.
pub(super) fn activation(kind: ActivationType, block: &[u8], index: usize) -> f64 {
    match kind {
        ActivationType::Q8_0 => half(block, 0) * f64::from(block[2 + index] as i8),
        ActivationType::Q8_K => {
            let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
            f64::from(scale) * f64::from(block[4 + index] as i8)
        }
        ActivationType::F16 => half(block, 0),
        ActivationType::BF16 => from_brain([block[0], block[1]]).into(),
    }
}

/// The sum of products of one row, and the sum of the magnitudes of all their parts.
pub(super) fn dot(kind: WeightType, weights: &[u8], activations: &[u8]) -> (f64, f64) {
    let ((bytes, in_block), (activation_bytes, _)) = (kind.block(), kind.activation().block());
    let (mut sum, mut magnitude) = (0.0, 0.0);
    for (weights, activations) in weights.chunks(bytes).zip(activations.chunks(activation_bytes)) {
        for index in 0..in_block {
            let weight = weight(kind, weights, index);
            let activation = activation(kind.activation(), activations, index);
            sum += (weight.product - weight.offset) * activation;
            magnitude += (weight.product.abs() + weight.offset.abs()) * activation.abs();
        }
    }
    (sum, magnitude)
}

/// How far a kernel's sum may lie from the exact one: it adds 32-bit floats, one after another at most one for each 16 weights
/// and some dozens at the end, and each rounds by at most 2^-24 of what the sum may have grown to. A product below the
/// smallest normal number may count for nothing.
pub(super) fn tolerance(weights: usize, magnitude: f64) -> f64 {
    let weights = weights as f64;
    (weights / 16.0 + 64.0) * f64::powi(2.0, -24) * magnitude + weights * f64::from(f32::MIN_POSITIVE)
}
