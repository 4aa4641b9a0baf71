//! Rows for AVX-512 F, BW, DQ and VL, some with VNNI or brain floats. The engine's Q8_0 row has vectors of 256 bits here
//! too: llama.cpp changes only the instruction.

use super::avx2::{
    self, bf16_rest, f16_rest, half, halves, load, load_half, offsets, q6_k_offsets, sum, sum_half, wide_scales,
};
use super::block::{FP4, Mxfp4, Plain, Q4K, Q6K, Q8_0, Q8K, Short};
use super::float::from_exponent;
use super::{in_turn, rows};
use std::arch::x86_64::*;

rows! {
    dot_q8_0_engine_avx512_vnni: Q8_0 x Q8_0, q8_0_engine, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    dot_q8_0_best_avx512_vnni: Q8_0 x Q8_0, q8_0, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    dot_q4_k_best_avx512_vnni: Q4K x Q8K, q4_k, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    dot_q6_k_best_avx512_vnni: Q6K x Q8K, q6_k, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    dot_mxfp4_best_avx512_vnni: Mxfp4 x Q8_0, mxfp4, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    dot_f16_engine_avx512: Short x Short, f16::<4>, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c";
    dot_bf16_engine_avx512: Short x Short, bf16::<2>, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c";
    dot_bf16_engine_avx512_bf16: Short x Short, bf16_pairs::<2>,
        "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c";
    dot_bf16_best_avx512_bf16: Short x Short, bf16_pairs::<8>,
        "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c";
}

/// Sums of the wide rows, enough that none waits for the one before.
const SUMS: usize = 4;

/// 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn load_wide<P: Plain>(from: &P) -> __m512i {
    const { assert!(size_of::<P>() == 64) };
    // SAFETY: 64 bytes are there, any of which make a vector, and the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(std::ptr::from_ref(from).cast()) }
}

/// Two halves of a vector, each loaded where it lies.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn load_two(low: &[u8; 32], high: &[u8; 32]) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(load(low)), load(high))
}

/// The first number in the lower eight lanes and the second in the upper ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn spread_two(both: __m128) -> __m512 {
    let upper = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    _mm512_permutexvar_ps(upper, _mm512_castps128_ps512(both))
}

/// Two 16-bit floats.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn two_halves(first: [u8; 2], second: [u8; 2]) -> __m128 {
    halves(u32::from(u16::from_le_bytes(second)) << 16 | u32::from(u16::from_le_bytes(first)))
}

/// The sum of several vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn sum_all<const SUMS: usize>(sums: [__m512; SUMS]) -> f32 {
    let mut all = sums[0];
    for other in &sums[1..] {
        all = _mm512_add_ps(all, *other);
    }
    _mm512_reduce_add_ps(all)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q8_0_engine(weights: &[Q8_0], activation: &[Q8_0]) -> f32 {
    let mut sums = _mm256_setzero_ps();
    for (w, a) in weights.iter().zip(activation) {
        let (weights, activations) = (load(&w.quants), load(&a.quants));
        let magnitudes = _mm256_sign_epi8(weights, weights);
        let signed = _mm256_sign_epi8(activations, weights);
        let products = _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), magnitudes, signed));
        sums = _mm256_fmadd_ps(_mm256_set1_ps(half(w.d) * half(a.d)), products, sums);
    }
    sum(sums)
}

/// Products of bytes, added by fours: of weights that are `offset` too large, so that they are unsigned.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn products(weights: __m512i, offset: __m512i, activations: __m512i) -> __m512 {
    let zero = _mm512_setzero_si512();
    let excess = _mm512_dpbusd_epi32(zero, offset, activations);
    _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_dpbusd_epi32(zero, weights, activations), excess))
}

/// Two blocks a vector. A bit flipped makes a signed byte an unsigned one, 128 too large.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q8_0(weights: &[Q8_0], activation: &[Q8_0]) -> f32 {
    let top = _mm512_set1_epi8(i8::MIN);
    let blocks = |[w0, w1]: &[Q8_0; 2], [a0, a1]: &[Q8_0; 2], sum: __m512| {
        let scales = spread_two(_mm_mul_ps(two_halves(w0.d, w1.d), two_halves(a0.d, a1.d)));
        let weights = _mm512_xor_si512(load_two(&w0.quants, &w1.quants), top);
        _mm512_fmadd_ps(scales, products(weights, top, load_two(&a0.quants, &a1.quants)), sum)
    };
    let (weights, last_weights) = weights.as_chunks::<2>();
    let (activation, last_activation) = activation.as_chunks::<2>();
    let sums = in_turn!(_mm512_setzero_ps(), SUMS, blocks, weights, activation);
    sum_all(sums) + q8_0_engine(last_weights, last_activation)
}

/// What makes the values of [`FP4`] unsigned.
const LIFT: i8 = 12;
/// Those values.
const LIFTED: [i8; 16] = {
    let (mut lifted, mut index) = (FP4, 0);
    while index < lifted.len() {
        lifted[index] += LIFT;
        index += 1;
    }
    lifted
};

/// Two blocks a vector. Their values are made 12 too large, so that they are unsigned.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn mxfp4(weights: &[Mxfp4], activation: &[Q8_0]) -> f32 {
    const NIBBLE: i64 = 0x0004_0004_0004_0004;
    let values = _mm512_broadcast_i32x4(load_half(&LIFTED));
    let (lift, nibble) = (_mm512_set1_epi8(LIFT), _mm512_set1_epi8(15));
    // By 16 bytes: the low nibbles of a block, its high ones, and those of the next.
    let shifts = _mm512_setr_epi64(0, 0, NIBBLE, NIBBLE, 0, 0, NIBBLE, NIBBLE);
    let blocks = |[w0, w1]: &[Mxfp4; 2], [a0, a1]: &[Q8_0; 2], sum: __m512| {
        let first = _mm256_broadcastsi128_si256(load_half(&w0.quants));
        let second = _mm256_broadcastsi128_si256(load_half(&w1.quants));
        let quants = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
        let weights = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srlv_epi16(quants, shifts), nibble));
        let exponents = _mm_setr_ps(from_exponent(w0.exponent), from_exponent(w1.exponent), 0.0, 0.0);
        let scales = spread_two(_mm_mul_ps(exponents, two_halves(a0.d, a1.d)));
        _mm512_fmadd_ps(scales, products(weights, lift, load_two(&a0.quants, &a1.quants)), sum)
    };
    let (weights, last_weights) = weights.as_chunks::<2>();
    let (activation, last_activation) = activation.as_chunks::<2>();
    let sums = in_turn!(_mm512_setzero_ps(), SUMS, blocks, weights, activation);
    sum_all(sums) + avx2::mxfp4::<1>(last_weights, last_activation)
}

/// 32-bit lane `first` in the lower half and `second` in the upper one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn spread_lanes(lanes: __m512i, first: i32, second: i32) -> __m512i {
    let (f, s) = (first, second);
    _mm512_permutexvar_epi32(_mm512_setr_epi32(f, f, f, f, f, f, f, f, s, s, s, s, s, s, s, s), lanes)
}

/// 64 bytes of quants at a time: four groups of 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q4_k(weights: &[Q4K], activation: &[Q8K]) -> f32 {
    let nibble = _mm512_set1_epi8(15);
    let zero = _mm512_setzero_si512();
    let (mut sums, mut off) = (_mm512_setzero_ps(), _mm_setzero_ps());
    for (w, a) in weights.iter().zip(activation) {
        let (d, dmin) = (a.scale() * half(w.d), a.scale() * half(w.dmin));
        let (scales, minima) = w.scales_and_minima();
        let wide = |[first, second]: [u32; 2]| _mm_cvtsi64_si128(i64::from(second) << 32 | i64::from(first));
        off = _mm_fmadd_ps(_mm_set1_ps(dmin), offsets(_mm_cvtepu8_epi16(wide(minima)), a), off);
        let scales = _mm512_castsi256_si512(_mm256_cvtepu8_epi32(wide(scales)));
        let mut product = zero;
        let activations = a.quants.as_chunks::<64>().0.as_chunks::<2>().0;
        for (part, (quants, [first, second])) in w.quants.as_chunks::<64>().0.iter().zip(activations).enumerate() {
            let quants = load_wide(quants);
            let (first, second) = (load_wide(first), load_wide(second));
            // Low nibbles are groups 0 and 2, high ones 1 and 3.
            let even = _mm512_shuffle_i64x2::<0b01_00_01_00>(first, second);
            let odd = _mm512_shuffle_i64x2::<0b11_10_11_10>(first, second);
            let low = _mm512_dpbusd_epi32(zero, _mm512_and_si512(quants, nibble), even);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(quants), nibble);
            let high = _mm512_dpbusd_epi32(zero, high, odd);
            // Four products are at most 4·15·128, which fits 16 bits, and a scale has no upper half: so the product of
            // 16-bit pairs is that of 32-bit numbers.
            let group = 4 * part as i32;
            let low = _mm512_madd_epi16(low, spread_lanes(scales, group, group + 2));
            let high = _mm512_madd_epi16(high, spread_lanes(scales, group + 1, group + 3));
            product = _mm512_add_epi32(product, _mm512_add_epi32(low, high));
        }
        sums = _mm512_fmadd_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(product), sums);
    }
    _mm512_reduce_add_ps(sums) - sum_half(off)
}

/// 128 weights at a time, 64 a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q6_k(weights: &[Q6K], activation: &[Q8K]) -> f32 {
    let nibble = _mm512_set1_epi8(15);
    let top = _mm512_set1_epi8(0x30);
    let zero = _mm512_setzero_si512();
    // Bits 0–1 and 2–3 go up to 4–5 by 4 and 2, bits 4–5 and 6–7 by none and down by 2.
    let up = _mm512_inserti64x4::<1>(_mm512_set1_epi16(4), _mm256_set1_epi16(2));
    let down = _mm512_inserti64x4::<1>(zero, _mm256_set1_epi16(2));
    let mut sums = _mm512_setzero_ps();
    for (w, a) in weights.iter().zip(activation) {
        let wide = wide_scales(w);
        let offsets = _mm512_zextsi256_si512(q6_k_offsets(wide, a));
        // 16 bits of sign and value in the lower half of each lane, as the product of pairs below wants them.
        let scales = _mm512_cvtepu16_epi32(wide);
        let mut product = zero;
        let lows = w.low.as_chunks::<64>().0;
        let highs = w.high.as_chunks::<32>().0;
        let activations = a.quants.as_chunks::<64>().0.as_chunks::<2>().0;
        for (part, ((low, high), [first, second])) in lows.iter().zip(highs).zip(activations).enumerate() {
            let low = load_wide(low);
            let high = _mm512_broadcast_i64x4(load(high));
            let high0 = _mm512_and_si512(_mm512_sllv_epi16(high, up), top);
            let high1 = _mm512_and_si512(_mm512_srlv_epi16(high, down), top);
            let quants0 = _mm512_or_si512(_mm512_and_si512(low, nibble), high0);
            let quants1 = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16::<4>(low), nibble), high1);
            let products0 = _mm512_dpbusd_epi32(zero, quants0, load_wide(first));
            let products1 = _mm512_dpbusd_epi32(zero, quants1, load_wide(second));
            // Four products are at most 4·63·128, which fits 16 bits. Four lanes share a scale.
            let group = _mm512_set1_epi32(8 * part as i32);
            let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
            let places0 = _mm512_add_epi32(lanes, group);
            let places1 = _mm512_add_epi32(places0, _mm512_set1_epi32(4));
            let products0 = _mm512_madd_epi16(products0, _mm512_permutexvar_epi32(places0, scales));
            let products1 = _mm512_madd_epi16(products1, _mm512_permutexvar_epi32(places1, scales));
            product = _mm512_add_epi32(product, _mm512_add_epi32(products0, products1));
        }
        let product = _mm512_cvtepi32_ps(_mm512_sub_epi32(product, offsets));
        sums = _mm512_fmadd_ps(_mm512_set1_ps(a.scale() * half(w.d)), product, sums);
    }
    _mm512_reduce_add_ps(sums)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn f16_block(w: &[Short; 16], a: &[Short; 16], sum: __m512) -> __m512 {
    _mm512_fmadd_ps(_mm512_cvtph_ps(load(w)), _mm512_cvtph_ps(load(a)), sum)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn f16<const SUMS: usize>(weights: &[Short], activation: &[Short]) -> f32 {
    let (weights, last_weights) = weights.as_chunks::<16>();
    let (activation, last_activation) = activation.as_chunks::<16>();
    let sums = in_turn!(_mm512_setzero_ps(), SUMS, f16_block, weights, activation);
    sum_all(sums) + f16_rest(last_weights, last_activation)
}

/// Sixteen brain floats: their bits, moved up.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn brains(from: &[Short; 16]) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load(from))))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn bf16_block(w: &[Short; 16], a: &[Short; 16], sum: __m512) -> __m512 {
    _mm512_fmadd_ps(brains(w), brains(a), sum)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn bf16<const SUMS: usize>(weights: &[Short], activation: &[Short]) -> f32 {
    let (weights, last_weights) = weights.as_chunks::<16>();
    let (activation, last_activation) = activation.as_chunks::<16>();
    let sums = in_turn!(_mm512_setzero_ps(), SUMS, bf16_block, weights, activation);
    sum_all(sums) + bf16_rest(last_weights, last_activation)
}

/// The instruction multiplies 32 pairs and adds them by twos; it takes subnormal numbers for zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
fn bf16_pairs_block(w: &[Short; 32], a: &[Short; 32], sum: __m512) -> __m512 {
    // SAFETY: both types are 64 bytes of any pattern.
    let [w, a] = [load_wide(w), load_wide(a)].map(|bytes| unsafe { std::mem::transmute::<__m512i, __m512bh>(bytes) });
    _mm512_dpbf16_ps(sum, w, a)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
fn bf16_pairs<const SUMS: usize>(weights: &[Short], activation: &[Short]) -> f32 {
    let (weights, last_weights) = weights.as_chunks::<32>();
    let (activation, last_activation) = activation.as_chunks::<32>();
    let sums = in_turn!(_mm512_setzero_ps(), SUMS, bf16_pairs_block, weights, activation);
    sum_all(sums) + bf16::<1>(last_weights, last_activation)
}
