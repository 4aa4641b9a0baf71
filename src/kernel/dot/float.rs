//! Floats of fewer bits as `f32` and back, bit by bit: what the portable rows use, and exact enough to be the definition.

/// A 16-bit float (IEEE 754 binary16), little endian as in GGUF.
#[inline]
pub(super) fn from_half(bytes: [u8; 2]) -> f32 {
    let half = u32::from(u16::from_le_bytes(bytes));
    let (sign, magnitude) = ((half & 0x8000) << 16, half & 0x7fff);
    // With its bits where those of an `f32` are, the exponent is 127 - 15 = 112 too low; the product is exact, also where
    // the half is subnormal.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((112 + 127) << 23);
    let special = magnitude >= 0x7c00;
    f32::from_bits(sign | if special { magnitude << 13 | 0x7f80_0000 } else { scaled.to_bits() })
}

/// To the nearest 16-bit float, ties to even.
#[inline]
pub(super) fn to_half(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let half = if magnitude > 0x7f80_0000 {
        0x7e00
    } else if magnitude >= 0x477f_f000 {
        // 65520 and more: half a step above the largest.
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Below 2^-14 a half counts steps of 2^-24, which are those of an `f32` from one half to one: the sum rounds.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        (magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13
    };
    ((sign | half) as u16).to_le_bytes()
}

/// A brain float: the upper half of an `f32`.
#[inline]
pub(super) fn from_brain(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// To the nearest brain float, ties to even. NaN stays NaN.
#[inline]
pub(super) fn to_brain(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let rounded = if value.is_nan() { bits | 1 << 22 } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) };
    ((rounded >> 16) as u16).to_le_bytes()
}

/// Half of the power of two that an E8M0 exponent stands for: 2^(e - 128). The half belongs to the doubled values of
/// [`super::block::FP4`]. 255, the format's NaN, comes out as 2^127, as in ggml; from a table, as there.
#[inline]
pub(super) fn from_exponent(exponent: u8) -> f32 {
    EXPONENTS[usize::from(exponent)]
}

/// All of them; the first two are subnormal.
static EXPONENTS: [f32; 256] = {
    let (mut floats, mut exponent) = ([0.0; 256], 0);
    while exponent < 256 {
        floats[exponent] =
            f32::from_bits(if exponent < 2 { 1 << (21 + exponent) } else { (exponent as u32 - 1) << 23 });
        exponent += 1;
    }
    floats
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_what_the_standard_says() {
        let half = |bits: u16| from_half(bits.to_le_bytes());
        assert_eq!([half(0x3c00), half(0xc000), half(0x7bff), half(0x2400)], [1.0, -2.0, 65504.0, 1.0 / 64.0]);
        assert_eq!(
            [half(0x0001), half(0x03ff), half(0x0400)],
            [2f32.powi(-24), 1023.0 * 2f32.powi(-24), 2f32.powi(-14)]
        );
        assert_eq!([half(0x7c00), half(0xfc00)], [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(half(0x7c01).is_nan() && half(0x8000).is_sign_negative());
    }

    #[test]
    fn every_half_survives_the_way_there_and_back() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7fff <= 0x7c00) {
            assert_eq!(to_half(from_half(bits.to_le_bytes())), bits.to_le_bytes());
            let brain = bits.to_le_bytes();
            assert_eq!(to_brain(from_brain(brain)), brain);
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_to_even() {
        let half = |value: f32| u16::from_le_bytes(to_half(value));
        // Between 1 and the next half lie 2^13 steps of an f32.
        let above_one = |steps: u32| f32::from_bits(1f32.to_bits() + steps);
        assert_eq!(
            [4096, 4097, 8192 + 4095, 8192 + 4096].map(|steps| half(above_one(steps))),
            [0x3c00, 0x3c01, 0x3c01, 0x3c02]
        );
        assert_eq!([65519.9, 65520.0, f32::INFINITY].map(half), [0x7bff, 0x7c00, 0x7c00]);
        let step = 2f32.powi(-24);
        assert_eq!([0.5 * step, 0.51 * step, 1.5 * step, -2.4 * step].map(half), [0, 1, 2, 0x8002]);
        assert!(from_half(to_half(f32::NAN)).is_nan() && from_brain(to_brain(f32::NAN)).is_nan());
        let brain = |steps: u32| u16::from_le_bytes(to_brain(above_one(steps)));
        assert_eq!([0x8000, 0x8001, 0x1_8000].map(brain), [0x3f80, 0x3f81, 0x3f82]);
    }

    #[test]
    fn exponents_are_halved_powers_of_two() {
        assert_eq!([128, 127, 129, 120].map(from_exponent), [1.0, 0.5, 2.0, 2f32.powi(-8)]);
        assert_eq!([0, 1, 2].map(from_exponent).map(f64::from), [-128, -127, -126].map(|power| 2f64.powi(power)));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_processor_converts_the_same() {
        use std::arch::x86_64::*;
        if !std::is_x86_feature_detected!("f16c") {
            return;
        }
        #[target_feature(enable = "f16c")]
        fn both(value: f32, half: u16) -> (u16, f32) {
            let to = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(value));
            (_mm_cvtsi128_si32(to) as u16, _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half.into()))))
        }
        for half in 0..=u16::MAX {
            // Upper halves near, at and beside a tie of the lower one.
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0xffff] {
                let value = f32::from_bits(u32::from(half) << 16 | low);
                // SAFETY: F16C was found above.
                let (to, from) = unsafe { both(value, half) };
                if !value.is_nan() {
                    assert_eq!(u16::from_le_bytes(to_half(value)), to, "{value:e}");
                }
                let ours = from_half(half.to_le_bytes());
                assert!(ours.to_bits() == from.to_bits() || ours.is_nan() && from.is_nan(), "{half:#x}");
            }
        }
    }
}
