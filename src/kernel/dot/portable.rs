//! The rows of any architecture, in plain Rust that the compiler vectorises, and the quantisation of activations.

use super::block::{FP4, Mxfp4, Q4K, Q6K, Q8_0, Q8K, Short, blocks_mut};
use super::float::{from_brain, from_exponent, from_half, to_brain, to_half};
use super::{Quantise, rows};
use std::array;

rows! {
    dot_q8_0_engine_rust: Q8_0 x Q8_0, q8_0, _;
    dot_q4_k_engine_rust: Q4K x Q8K, q4_k, _;
    dot_q6_k_engine_rust: Q6K x Q8K, q6_k, _;
    dot_mxfp4_engine_rust: Mxfp4 x Q8_0, mxfp4, _;
    dot_f16_engine_rust: Short x Short, f16, _;
    dot_bf16_engine_rust: Short x Short, bf16, _;
}

/// Of each activation type, in the order of their declaration.
pub(super) const QUANTISE: [Quantise; 4] = [quantise_q8_0, quantise_q8_k, quantise_f16, quantise_bf16];

/// Sum of products of signed bytes.
#[inline]
fn products(weights: impl Iterator<Item = i8>, activations: &[u8]) -> i32 {
    weights.zip(activations).map(|(weight, activation)| i32::from(weight) * i32::from(*activation as i8)).sum()
}

fn q8_0(weights: &[Q8_0], activation: &[Q8_0]) -> f32 {
    let block = |(w, a): (&Q8_0, &Q8_0)| {
        products(w.quants.iter().map(|quant| *quant as i8), &a.quants) as f32 * (from_half(w.d) * from_half(a.d))
    };
    weights.iter().zip(activation).map(block).sum()
}

fn mxfp4(weights: &[Mxfp4], activation: &[Q8_0]) -> f32 {
    let block = |(w, a): (&Mxfp4, &Q8_0)| {
        let (first, second) = a.quants.split_at(16);
        let low = products(w.quants.iter().map(|quants| FP4[usize::from(quants & 15)]), first);
        let high = products(w.quants.iter().map(|quants| FP4[usize::from(quants >> 4)]), second);
        (low + high) as f32 * (from_exponent(w.exponent) * from_half(a.d))
    };
    weights.iter().zip(activation).map(block).sum()
}

/// Sums of the quants of a block of activations, 16 each.
fn sums(activation: &Q8K) -> [i32; 16] {
    array::from_fn(|index| i32::from(i16::from_le_bytes([activation.sums[2 * index], activation.sums[2 * index + 1]])))
}

fn q4_k(weights: &[Q4K], activation: &[Q8K]) -> f32 {
    let block = |(w, a): (&Q4K, &Q8K)| {
        let (scales, minima) = w.scales_and_minima();
        let (scales, minima) = (scales.map(u32::to_le_bytes), minima.map(u32::to_le_bytes));
        let (scales, minima) = (scales.as_flattened(), minima.as_flattened());
        let sums = sums(a);
        let (mut product, mut offset) = (0, 0);
        // 32 bytes of quants are two groups.
        for (pair, (quants, activations)) in w.quants.chunks(32).zip(a.quants.chunks(64)).enumerate() {
            let (first, second) = activations.split_at(32);
            product += i32::from(scales[2 * pair]) * products(quants.iter().map(|quant| (quant & 15) as i8), first);
            product +=
                i32::from(scales[2 * pair + 1]) * products(quants.iter().map(|quant| (quant >> 4) as i8), second);
        }
        for (minimum, sums) in minima.iter().zip(sums.chunks(2)) {
            offset += i32::from(*minimum) * (sums[0] + sums[1]);
        }
        a.scale() * (from_half(w.d) * product as f32 - from_half(w.dmin) * offset as f32)
    };
    weights.iter().zip(activation).map(block).sum()
}

fn q6_k(weights: &[Q6K], activation: &[Q8K]) -> f32 {
    let block = |(w, a): (&Q6K, &Q8K)| {
        let mut product = 0;
        for (group, activations) in a.quants.chunks(16).enumerate() {
            // Eight groups share 64 bytes of low bits and 32 of high ones: four in the low nibbles, four in the high ones.
            let (half, place) = (group / 8, group % 8);
            let low = &w.low[64 * half + 16 * (place % 4)..][..16];
            let high = &w.high[32 * half + 16 * (place % 2)..][..16];
            let (low_shift, high_shift) = (place / 4 * 4, place / 2 * 2);
            let quants =
                low.iter().zip(high).map(|(low, high)| (low >> low_shift & 15 | (high >> high_shift & 3) << 4) as i8);
            product += i32::from(w.scales[group] as i8) * products(quants.map(|quant| quant - 32), activations);
        }
        from_half(w.d) * a.scale() * product as f32
    };
    weights.iter().zip(activation).map(block).sum()
}

/// Sums that run beside each other, as many as a few vectors hold.
const LANES: usize = 16;

#[inline(always)]
fn shorts(weights: &[Short], activation: &[Short], widen: impl Fn([u8; 2]) -> f32) -> f32 {
    let (weights, last_weights) = weights.as_chunks::<LANES>();
    let (activation, last_activation) = activation.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (weights, activation) in weights.iter().zip(activation) {
        for (sum, (w, a)) in sums.iter_mut().zip(weights.iter().zip(activation)) {
            *sum += widen(w.bits) * widen(a.bits);
        }
    }
    let last: f32 = last_weights.iter().zip(last_activation).map(|(w, a)| widen(w.bits) * widen(a.bits)).sum();
    sums.iter().sum::<f32>() + last
}

fn f16(weights: &[Short], activation: &[Short]) -> f32 {
    shorts(weights, activation, from_half)
}

fn bf16(weights: &[Short], activation: &[Short]) -> f32 {
    shorts(weights, activation, from_brain)
}

/// Added to a float of less than 2^22 it leaves the nearest whole number, ties to even, in the low bits.
const WHOLE: f32 = 1.5 * (1 << 23) as f32;

/// Of values that times `inverse` lie in -127…127 the nearest whole numbers, as signed bytes.
#[inline(always)]
fn quants(values: &[f32], inverse: f32, quants: &mut [u8]) {
    for (value, quant) in values.iter().zip(quants) {
        *quant = (value * inverse + WHOLE).to_bits() as u8;
    }
}

/// The largest magnitude becomes 127. The scale is then rounded to a half, which the quants do not follow: ggml's way.
fn quantise_q8_0(values: &[f32], activation: &mut [u8]) {
    for (values, block) in values.as_chunks::<32>().0.iter().zip(blocks_mut::<Q8_0>(activation)) {
        let largest = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        block.d = to_half(largest / 127.0);
        quants(values, if largest == 0.0 { 0.0 } else { 127.0 / largest }, &mut block.quants);
    }
}

/// The value of the largest magnitude becomes -127, so the scale may be negative.
#[inline(always)]
pub(super) fn quantise_q8_k(values: &[f32], activation: &mut [u8]) {
    for (values, block) in values.as_chunks::<256>().0.iter().zip(blocks_mut::<Q8K>(activation)) {
        // One after another, as llama.cpp does on x86 too.
        let (mut largest, mut magnitude) = (0.0f32, 0.0);
        for value in values {
            if value.abs() > magnitude {
                (largest, magnitude) = (*value, value.abs());
            }
        }
        let inverse = if magnitude == 0.0 { 0.0 } else { -127.0 / largest };
        let scale = if magnitude == 0.0 { 0.0 } else { 1.0 / inverse };
        block.d = scale.to_le_bytes();
        quants(values, inverse, &mut block.quants);
        for (sum, quants) in block.sums.as_chunks_mut::<2>().0.iter_mut().zip(block.quants.as_chunks::<16>().0) {
            *sum = quants.iter().map(|quant| i16::from(*quant as i8)).sum::<i16>().to_le_bytes();
        }
    }
}

fn quantise_f16(values: &[f32], activation: &mut [u8]) {
    for (value, short) in values.iter().zip(blocks_mut::<Short>(activation)) {
        short.bits = to_half(*value);
    }
}

#[inline(always)]
pub(super) fn quantise_bf16(values: &[f32], activation: &mut [u8]) {
    for (value, short) in values.iter().zip(blocks_mut::<Short>(activation)) {
        short.bits = to_brain(*value);
    }
}
