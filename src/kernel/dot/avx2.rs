//! Rows for AVX2 with FMA and F16C. All loads go through [`load`] and [`load_half`], which take a reference to what they
//! load, so no load can reach beyond its block.

use super::block::{FP4, Mxfp4, Plain, Q4K, Q6K, Q8_0, Q8K, Short, blocks_mut};
use super::float::{from_brain, from_exponent};
use super::{Quantise, in_turn, portable, rows};
use std::arch::x86_64::*;
use std::hint::black_box;

rows! {
    dot_q8_0_engine_avx2: Q8_0 x Q8_0, q8_0, "avx2,fma,f16c";
    dot_q4_k_engine_avx2: Q4K x Q8K, q4_k, "avx2,fma,f16c";
    dot_q6_k_engine_avx2: Q6K x Q8K, q6_k, "avx2,fma,f16c";
    dot_mxfp4_engine_avx2: Mxfp4 x Q8_0, mxfp4::<2>, "avx2,fma,f16c";
    dot_f16_engine_avx2: Short x Short, f16::<4>, "avx2,fma,f16c";
    dot_bf16_engine_avx2: Short x Short, bf16::<4>, "avx2,fma,f16c";
}

/// Of each activation type, in the order of their declaration.
pub(super) const QUANTISE: [Quantise; 4] = [quantise_q8_0, quantise_q8_k, quantise_f16, quantise_bf16];

/// 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load<P: Plain>(from: &P) -> __m256i {
    const { assert!(size_of::<P>() == 32) };
    // SAFETY: 32 bytes are there, any of which make a vector, and the instruction asks for no alignment.
    unsafe { _mm256_loadu_si256(std::ptr::from_ref(from).cast()) }
}

/// 16 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load_half<P: Plain>(from: &P) -> __m128i {
    const { assert!(size_of::<P>() == 16) };
    // SAFETY: as in `load`, with 16 bytes.
    unsafe { _mm_loadu_si128(std::ptr::from_ref(from).cast()) }
}

/// Up to two 16-bit floats, in the low bits of an integer.
///
/// Assembly, because the compiler would insert the number into whichever register is free, and be it the sum's: as the rest
/// of that register stays, each block would wait for the sum of the one before. gcc moves it as is done here.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn halves(bits: u32) -> __m128 {
    let floats;
    // SAFETY: the instructions come with the features; they touch nothing but their operands.
    unsafe {
        std::arch::asm!(
            "vmovd {floats}, {bits:e}",
            "vcvtph2ps {floats}, {floats}",
            bits = in(reg) bits,
            floats = lateout(xmm_reg) floats,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    floats
}

/// A 16-bit float.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn half(bytes: [u8; 2]) -> f32 {
    _mm_cvtss_f32(halves(u16::from_le_bytes(bytes).into()))
}

/// The sum of a vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sum(lanes: __m256) -> f32 {
    sum_half(_mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sum_half(lanes: __m128) -> f32 {
    let pairs = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
}

/// The sum of several.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_all<const SUMS: usize>(sums: [__m256; SUMS]) -> f32 {
    let mut all = sums[0];
    for other in &sums[1..] {
        all = _mm256_add_ps(all, *other);
    }
    sum(all)
}

/// Products of signed bytes, added by twos to 16 bits: the instruction wants its first operand unsigned, so it gets the
/// magnitudes, and the second one the signs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn signed_products(weights: __m256i, activations: __m256i) -> __m256i {
    _mm256_maddubs_epi16(_mm256_sign_epi8(weights, weights), _mm256_sign_epi8(activations, weights))
}

/// Sums by twos, as floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pairs(products: __m256i) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_madd_epi16(products, _mm256_set1_epi16(1)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0(weights: &[Q8_0], activation: &[Q8_0]) -> f32 {
    let mut sums = _mm256_setzero_ps();
    for (w, a) in weights.iter().zip(activation) {
        let scale = _mm256_set1_ps(half(w.d) * half(a.d));
        sums = _mm256_fmadd_ps(scale, pairs(signed_products(load(&w.quants), load(&a.quants))), sums);
    }
    sum(sums)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn mxfp4<const SUMS: usize>(weights: &[Mxfp4], activation: &[Q8_0]) -> f32 {
    let values = load_half(&FP4);
    let nibble = _mm_set1_epi8(15);
    let block = |w: &Mxfp4, a: &Q8_0, sum: __m256| {
        let quants = load_half(&w.quants);
        let low = _mm_shuffle_epi8(values, _mm_and_si128(quants, nibble));
        let high = _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16::<4>(quants), nibble));
        let products = signed_products(_mm256_set_m128i(high, low), load(&a.quants));
        _mm256_fmadd_ps(_mm256_set1_ps(half(a.d) * from_exponent(w.exponent)), pairs(products), sum)
    };
    sum_all(in_turn!(_mm256_setzero_ps(), SUMS, block, weights, activation))
}

/// The scales and the minima of a block, 16 bits each, minima in the upper half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scales_and_minima(w: &Q4K) -> __m256i {
    let (scales, minima) = w.scales_and_minima();
    let [s0, s1, m0, m1] = [scales[0], scales[1], minima[0], minima[1]].map(u32::cast_signed);
    _mm256_cvtepu8_epi16(_mm_set_epi32(m1, m0, s1, s0))
}

/// The minima, 16 bits each, times the activations' sums, in four parts that are to be added.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn offsets(minima: __m128i, a: &Q8K) -> __m128 {
    let sums = load(&a.sums);
    let sums = _mm_hadd_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    _mm_cvtepi32_ps(_mm_madd_epi16(minima, sums))
}

/// For each group of Q4_K the bytes of its 16-bit scale, over and over.
static GROUPS: [[u8; 32]; 8] = {
    let (mut places, mut index) = ([[0; 32]; 8], 0);
    while index < 8 * 32 {
        places[index / 32][index % 32] = (2 * (index / 32) + index % 2) as u8;
        index += 1;
    }
    places
};

/// For each two groups of Q6_K the bytes of their scales, eight of the first and eight of the second.
static PAIRS: [[u8; 16]; 8] = {
    let (mut places, mut index) = ([[0; 16]; 8], 0);
    while index < 8 * 16 {
        places[index / 16][index % 16] = (2 * (index / 16) + index % 16 / 8) as u8;
        index += 1;
    }
    places
};

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q4_k(weights: &[Q4K], activation: &[Q8K]) -> f32 {
    // What the compiler knew, it would turn into several shuffles without a table, and the engine has one.
    let groups = black_box(&GROUPS);
    let nibble = _mm256_set1_epi8(15);
    let (mut sums, mut off) = (_mm256_setzero_ps(), _mm_setzero_ps());
    for (w, a) in weights.iter().zip(activation) {
        let (d, dmin) = (a.scale() * half(w.d), a.scale() * half(w.dmin));
        let both = scales_and_minima(w);
        off = _mm_fmadd_ps(_mm_set1_ps(dmin), offsets(_mm256_extracti128_si256::<1>(both), a), off);
        let scales = _mm256_permute2x128_si256::<0>(both, both);
        let mut product = _mm256_setzero_si256();
        let activations = a.quants.as_chunks::<32>().0.as_chunks::<2>().0;
        for (pair, (quants, [first, second])) in w.quants.as_chunks::<32>().0.iter().zip(activations).enumerate() {
            let quants = load(quants);
            let low = _mm256_maddubs_epi16(_mm256_and_si256(quants, nibble), load(first));
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(quants), nibble);
            let high = _mm256_maddubs_epi16(high, load(second));
            let low = _mm256_madd_epi16(_mm256_shuffle_epi8(scales, load(&groups[2 * pair])), low);
            let high = _mm256_madd_epi16(_mm256_shuffle_epi8(scales, load(&groups[2 * pair + 1])), high);
            product = _mm256_add_epi32(product, _mm256_add_epi32(low, high));
        }
        sums = _mm256_fmadd_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(product), sums);
    }
    sum(sums) - sum_half(off)
}

/// The scales, 16 bits each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn wide_scales(w: &Q6K) -> __m256i {
    _mm256_cvtepi8_epi16(load_half(&w.scales))
}

/// What the quants' offset of 32 adds to the products: 32 × scale × sum, in eight parts.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn q6_k_offsets(wide_scales: __m256i, a: &Q8K) -> __m256i {
    _mm256_slli_epi32::<5>(_mm256_madd_epi16(load(&a.sums), wide_scales))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q6_k(weights: &[Q6K], activation: &[Q8K]) -> f32 {
    // Hidden as in `q4_k`.
    let pairs = black_box(&PAIRS);
    let nibble = _mm256_set1_epi8(15);
    let mut sums = _mm256_setzero_ps();
    for (w, a) in weights.iter().zip(activation) {
        let scales = load_half(&w.scales);
        let offsets = q6_k_offsets(_mm256_cvtepi8_epi16(scales), a);
        let mut product = _mm256_setzero_si256();
        let lows = w.low.as_chunks::<32>().0.as_chunks::<2>().0;
        let highs = w.high.as_chunks::<32>().0;
        let activations = a.quants.as_chunks::<32>().0.as_chunks::<4>().0;
        for (part, ((lows, high), activations)) in lows.iter().zip(highs).zip(activations).enumerate() {
            let (low0, low1, high) = (load(&lows[0]), load(&lows[1]), load(high));
            let top = |shifted: __m256i, mask: i8| _mm256_and_si256(shifted, _mm256_set1_epi8(mask));
            let quants = [
                (_mm256_and_si256(low0, nibble), _mm256_slli_epi16::<4>(top(high, 0x03))),
                (_mm256_and_si256(low1, nibble), _mm256_slli_epi16::<2>(top(high, 0x0c))),
                (_mm256_and_si256(_mm256_srli_epi16::<4>(low0), nibble), top(high, 0x30)),
                (_mm256_and_si256(_mm256_srli_epi16::<4>(low1), nibble), _mm256_srli_epi16::<2>(top(high, -64))),
            ];
            for (quarter, ((low, high), activations)) in quants.into_iter().zip(activations).enumerate() {
                let products = _mm256_maddubs_epi16(_mm256_or_si256(low, high), load(activations));
                let places = load_half(&pairs[4 * part + quarter]);
                let scale = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, places));
                product = _mm256_add_epi32(product, _mm256_madd_epi16(scale, products));
            }
        }
        let product = _mm256_cvtepi32_ps(_mm256_sub_epi32(product, offsets));
        sums = _mm256_fmadd_ps(_mm256_set1_ps(a.scale() * half(w.d)), product, sums);
    }
    sum(sums)
}

/// What is left behind the last whole vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f16_rest(weights: &[Short], activation: &[Short]) -> f32 {
    weights.iter().zip(activation).map(|(w, a)| half(w.bits) * half(a.bits)).sum()
}

/// The same of brain floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn bf16_rest(weights: &[Short], activation: &[Short]) -> f32 {
    weights.iter().zip(activation).map(|(w, a)| from_brain(w.bits) * from_brain(a.bits)).sum()
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn f16_block(w: &[Short; 8], a: &[Short; 8], sum: __m256) -> __m256 {
    _mm256_fmadd_ps(_mm256_cvtph_ps(load_half(w)), _mm256_cvtph_ps(load_half(a)), sum)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn f16<const SUMS: usize>(weights: &[Short], activation: &[Short]) -> f32 {
    let (weights, last_weights) = weights.as_chunks::<8>();
    let (activation, last_activation) = activation.as_chunks::<8>();
    let sums = in_turn!(_mm256_setzero_ps(), SUMS, f16_block, weights, activation);
    sum_all(sums) + f16_rest(last_weights, last_activation)
}

/// Eight brain floats: their bits, moved up.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn brains(from: &[Short; 8]) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_half(from))))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bf16_block(w: &[Short; 8], a: &[Short; 8], sum: __m256) -> __m256 {
    // gcc fuses llama.cpp's product and sum as well.
    _mm256_fmadd_ps(brains(w), brains(a), sum)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bf16<const SUMS: usize>(weights: &[Short], activation: &[Short]) -> f32 {
    let (weights, last_weights) = weights.as_chunks::<8>();
    let (activation, last_activation) = activation.as_chunks::<8>();
    let sums = in_turn!(_mm256_setzero_ps(), SUMS, bf16_block, weights, activation);
    sum_all(sums) + bf16_rest(last_weights, last_activation)
}

/// Bit for bit what the portable one writes.
#[target_feature(enable = "avx2,fma,f16c")]
fn quantise_q8_0(values: &[f32], activation: &mut [u8]) {
    for (values, block) in values.as_chunks::<32>().0.iter().zip(blocks_mut::<Q8_0>(activation)) {
        let mut vectors = [_mm256_setzero_ps(); 4];
        let mut largest = _mm256_setzero_ps();
        for (vector, values) in vectors.iter_mut().zip(values.as_chunks::<8>().0) {
            // SAFETY: eight floats are there, and the instruction asks for no alignment.
            *vector = unsafe { _mm256_loadu_ps(values.as_ptr()) };
            largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0), *vector));
        }
        let largest = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps::<1>(largest));
        let largest = _mm_max_ps(largest, _mm_movehl_ps(largest, largest));
        let largest = _mm_cvtss_f32(_mm_max_ss(largest, _mm_movehdup_ps(largest)));
        let scale = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(largest / 127.0));
        block.d = (_mm_cvtsi128_si32(scale) as u16).to_le_bytes();
        let inverse = _mm256_set1_ps(if largest == 0.0 { 0.0 } else { 127.0 / largest });
        // The conversion rounds to the nearest, ties to even: the mode that every thread starts with.
        let [q0, q1, q2, q3] = vectors.map(|vector| _mm256_cvtps_epi32(_mm256_mul_ps(vector, inverse)));
        // Packing takes 16 bytes of each operand in turn, so fours of quants come out of order.
        let packed = _mm256_packs_epi16(_mm256_packs_epi32(q0, q1), _mm256_packs_epi32(q2, q3));
        let quants = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        // SAFETY: 32 bytes are there, borrowed for writing, and the instruction asks for no alignment.
        unsafe { _mm256_storeu_si256(block.quants.as_mut_ptr().cast(), quants) };
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantise_q8_k(values: &[f32], activation: &mut [u8]) {
    portable::quantise_q8_k(values, activation);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantise_f16(values: &[f32], activation: &mut [u8]) {
    let (eights, rest) = values.as_chunks::<8>();
    let (shorts, last) = blocks_mut::<Short>(activation).as_chunks_mut::<8>();
    for (values, shorts) in eights.iter().zip(shorts) {
        // SAFETY: eight floats are there, and eight shorts, borrowed for writing; neither needs alignment.
        unsafe {
            let shorts_of = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(values.as_ptr()));
            _mm_storeu_si128(shorts.as_mut_ptr().cast(), shorts_of);
        }
    }
    for (value, short) in rest.iter().zip(last) {
        let half = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(*value));
        short.bits = (_mm_cvtsi128_si32(half) as u16).to_le_bytes();
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantise_bf16(values: &[f32], activation: &mut [u8]) {
    portable::quantise_bf16(values, activation);
}
