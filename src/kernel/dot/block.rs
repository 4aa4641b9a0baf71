//! The blocks that weights and activations lie in, byte for byte as ggml has them (`ggml/src/ggml-common.h` of llama.cpp
//! b11434; MXFP4 after the OCP Microscaling Formats specification 1.0), and memory full of plausible ones.

use crate::memory::split_mix;

/// A type of which any bytes are a value, at any address.
///
/// # Safety
/// It must consist of bytes alone: alignment 1, no padding, every pattern valid.
pub(super) unsafe trait Plain {}

// SAFETY: a byte.
unsafe impl Plain for u8 {}
// SAFETY: a byte.
unsafe impl Plain for i8 {}
// SAFETY: an array has no padding of its own.
unsafe impl<P: Plain, const N: usize> Plain for [P; N] {}

/// Declares blocks: structures of byte arrays in the order of memory.
macro_rules! blocks {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(super) struct $name { $($(#[$field_about])* pub(super) $field: $type,)* }

        // SAFETY: C layout of fields that are bytes and arrays of bytes, so without padding.
        unsafe impl Plain for $name {}
    )*};
}

blocks! {
    /// 32 values: quant × d.
    Q8_0 {
        /// Half.
        d: [u8; 2],
        /// Signed bytes.
        quants: [u8; 32],
    }
    /// 256 weights in 8 groups of 32: d × scale × quant − dmin × minimum.
    Q4K {
        /// Half.
        d: [u8; 2],
        /// Half.
        dmin: [u8; 2],
        /// 8 scales and 8 minima of 6 bits; [`Q4K::scales_and_minima`] says where each lies.
        scales: [u8; 12],
        /// Of each 32 bytes the low nibbles are one group and the high ones the next.
        quants: [u8; 128],
    }
    /// 256 weights in 16 groups of 16: d × scale × (quant − 32).
    Q6K {
        /// Of each 64 bytes the low nibbles hold the low 4 bits of 64 weights and the high ones those of the next 64.
        low: [u8; 128],
        /// Of each 32 bytes bits 0–1, 2–3, 4–5, 6–7 are the high 2 bits of four times 32 weights.
        high: [u8; 64],
        /// Signed bytes.
        scales: [u8; 16],
        /// Half.
        d: [u8; 2],
    }
    /// 32 weights: 2^(exponent − 128) × [`FP4`] of the quant.
    Mxfp4 {
        /// E8M0.
        exponent: u8,
        /// The low nibbles are the first 16 weights, the high ones the other 16.
        quants: [u8; 16],
    }
    /// 256 activations: quant × d.
    Q8K {
        /// 32-bit float.
        d: [u8; 4],
        /// Signed bytes.
        quants: [u8; 256],
        /// Sums of 16 quants each, 16-bit.
        sums: [u8; 32],
    }
    /// One 16-bit float, of either kind.
    Short {
        /// Its bits.
        bits: [u8; 2],
    }
}

/// The 16 values of a 4-bit float (E2M1), doubled so that they are whole.
pub(super) const FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

impl Q4K {
    /// The 8 scales and the 8 minima, a byte each, unpacked in words of four.
    ///
    /// The first 4 bytes hold in their low 6 bits scales 0–3, the next 4 minima 0–3; the last 4 hold the low 4 bits of scales
    /// 4–7 (low nibbles) and of minima 4–7 (high nibbles), whose high 2 bits top the first and the next 4 bytes.
    #[inline]
    pub(super) fn scales_and_minima(&self) -> ([u32; 2], [u32; 2]) {
        let word = |first: usize| u32::from_le_bytes(std::array::from_fn(|index| self.scales[first + index]));
        let (scales, minima, low) = (word(0), word(4), word(8));
        let top = |word: u32| word >> 2 & 0x3030_3030;
        let nibbles = |word: u32| word & 0x0f0f_0f0f;
        ([scales & 0x3f3f_3f3f, nibbles(low) | top(scales)], [minima & 0x3f3f_3f3f, nibbles(low >> 4) | top(minima)])
    }
}

impl Q8K {
    /// What a quant counts.
    #[inline]
    pub(super) fn scale(&self) -> f32 {
        f32::from_le_bytes(self.d)
    }
}

/// The whole blocks that these bytes begin with.
#[inline]
pub(super) fn blocks<B: Plain>(bytes: &[u8]) -> &[B] {
    let count = bytes.len() / size_of::<B>();
    // SAFETY: `B` is `Plain`: any bytes at any address are some; `count` of them fit.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), count) }
}

/// The whole blocks that these bytes begin with, for writing.
#[inline]
pub(super) fn blocks_mut<B: Plain>(bytes: &mut [u8]) -> &mut [B] {
    let count = bytes.len() / size_of::<B>();
    // SAFETY: as in `blocks`, and the bytes are borrowed for writing.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), count) }
}

/// The longest block of weights: Q6_K.
const LONGEST: usize = size_of::<Q6K>();

/// Which bits of a block are no free choice, so that its weights are numbers of ordinary size.
#[derive(Clone, Copy)]
pub(super) enum Pinned {
    /// Positive halves at these places, from 1/64 to 1/32.
    Halves(&'static [usize]),
    /// An exponent first: 1/64 or 1/32.
    Exponent,
    /// In every word the bits outside the first are the second.
    Words(u64, u64),
}

/// Fills `bytes` with blocks of `block_bytes` as if they began `offset` bytes into an endless row of them.
pub(super) fn fill(bytes: &mut [u8], offset: u64, block_bytes: usize, pinned: Pinned, seed: u64) {
    let mut block = [0u8; LONGEST];
    let (mut number, mut skipped) = (offset / block_bytes as u64, (offset % block_bytes as u64) as usize);
    let mut rest = bytes;
    while !rest.is_empty() {
        plausible(&mut block[..block_bytes], number, pinned, seed);
        let (part, behind) = rest.split_at_mut(rest.len().min(block_bytes - skipped));
        part.copy_from_slice(&block[skipped..skipped + part.len()]);
        (rest, number, skipped) = (behind, number.wrapping_add(1), 0);
    }
}

/// Block number `number`: random bits but for those that are pinned.
fn plausible(block: &mut [u8], number: u64, pinned: Pinned, seed: u64) {
    // So many random words for each block that no two share one.
    let first = number.wrapping_mul(LONGEST.div_ceil(8) as u64);
    let (free, fixed) = if let Pinned::Words(free, fixed) = pinned { (free, fixed) } else { (u64::MAX, 0) };
    for (index, bytes) in block.chunks_mut(8).enumerate() {
        let word = split_mix(seed, first.wrapping_add(index as u64)) & free | fixed;
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
    match pinned {
        Pinned::Halves(places) => {
            for place in places {
                // The upper byte of a half: no sign, exponent 9 (2^-6), two bits of the mantissa.
                block[place + 1] = block[place + 1] & 0x03 | 0x24;
            }
        }
        Pinned::Exponent => block[0] = 122 + (block[0] & 1),
        Pinned::Words(..) => {}
    }
}
