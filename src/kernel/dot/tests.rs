use super::*;
use std::collections::BTreeSet;

fn usable() -> Vec<Dot> {
    let isa = IsaSet::detect();
    TABLE.iter().filter_map(|row| Dot::new(row, &isa).ok()).collect()
}

/// Seeded activations between -2 and 2.
fn values(count: usize) -> Vec<f32> {
    (0..count).map(|index| (crate::memory::split_mix(5, index as u64) >> 40) as f32 / (1 << 22) as f32 - 2.0).collect()
}

fn quantised(dot: Dot, values: &[f32]) -> Vec<u8> {
    let mut activation = vec![0; dot.row().weights.activation().vector_bytes(values.len()).unwrap()];
    dot.quantise(values, &mut activation).unwrap();
    activation
}

#[test]
fn names_are_unique_and_made_of_the_columns() {
    let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for row in TABLE {
        let last = row.extensions.last().map_or("", |extension| extension.name());
        let needs = if last.starts_with("avx512") { last } else { row.isa.name() };
        let weights = row.weights.name().to_lowercase();
        assert_eq!(row.name, format!("dot_{weights}_{}_{needs}", row.flavour.name()));
        assert_eq!(row.vector_bytes.is_none(), row.isa == Isa::Rust, "{}", row.name);
        assert!(row.extensions.iter().all(|extension| extension.level() <= row.isa), "{}", row.name);
    }
}

#[test]
fn rows_stand_by_type_then_what_they_need_then_flavour() {
    let place = |row: &Row| (row.weights, row.isa, row.extensions.len(), row.flavour == Best);
    assert!(TABLE.is_sorted_by_key(place));
}

#[test]
fn a_kernel_is_found_for_each_type_flavour_and_level() {
    for weights in WeightType::ALL {
        let name = |flavour, isa: &IsaSet| Dot::find(weights, flavour, isa).unwrap().row().name;
        let rust = IsaSet::detect().capped(Isa::Rust);
        assert_eq!(name(Engine, &rust), name(Best, &rust));
        assert!(name(Best, &rust).ends_with("_engine_rust"));
        for isa in [IsaSet::detect(), IsaSet::detect().capped(Isa::Avx2)] {
            let engine = Dot::find(weights, Engine, &isa).unwrap().row();
            assert_eq!((engine.weights, engine.flavour), (weights, Engine));
            let best = Dot::find(weights, Best, &isa).unwrap().row();
            assert!(best.weights == weights && best.isa >= engine.isa);
        }
    }
}

#[test]
fn what_is_missing_makes_no_kernel_and_is_named() {
    let rust = IsaSet::detect().capped(Isa::Rust);
    for row in TABLE {
        match Dot::new(row, &rust) {
            Ok(dot) => assert_eq!(dot.row().isa, Isa::Rust),
            Err(reason) => {
                let extensions: Vec<_> = row.extensions.iter().map(|extension| extension.name()).collect();
                assert_eq!(reason, format!("needs {}, {}", row.isa.name(), extensions.join(", ")));
            }
        }
    }
}

#[test]
fn blocks_hold_what_ggml_reads_from_them() {
    let block = |kind: WeightType| {
        let mut bytes: Vec<u8> = (0..kind.block().0).map(|index| (37 * index + 11) as u8).collect();
        let quarter_of_a_16th = 0x2400u16.to_le_bytes();
        match kind {
            WeightType::Q8_0 => bytes[..2].copy_from_slice(&quarter_of_a_16th),
            WeightType::Q4_K => {
                bytes[..2].copy_from_slice(&quarter_of_a_16th);
                bytes[2..4].copy_from_slice(&0x2000u16.to_le_bytes());
            }
            WeightType::Q6_K => bytes[208..].copy_from_slice(&quarter_of_a_16th),
            WeightType::MXFP4 => bytes[0] = 122,
            WeightType::F16 | WeightType::BF16 => {}
        }
        bytes
    };
    for (kind, places, expected) in GGUF {
        for (place, expected) in places.iter().zip(*expected) {
            let oracle::Weight { product, offset } = oracle::weight(*kind, &block(*kind), *place);
            assert_eq!(product - offset, *expected, "{} {place}", kind.name());
        }
    }
}

/// The places of some weights and the numbers that the Python package `gguf` 0.19.0 reads there from the block with bytes
/// 37·i + 11, its scale set to 2^-6 (and dmin to 2^-7, MXFP4's exponent to 122).
const GGUF: &[(WeightType, &[usize], &[f64])] = &[
    (WeightType::Q8_0, &[0, 1, 15, 16, 31], &[1.328125, 1.90625, -2.0, -1.421875, -0.75]),
    (
        WeightType::Q4_K,
        &[0, 1, 15, 16, 31, 32, 100, 131, 177, 255],
        &[4.9296875, -0.3984375, 2.5078125, 4.9296875, 2.5078125, 0.125, 1.484375, 6.0, 0.703125, 0.7578125],
    ),
    (
        WeightType::Q6_K,
        &[0, 1, 15, 16, 31, 32, 100, 131, 177, 255],
        &[-22.359375, 26.5, -4.96875, -6.75, -1.5, 3.609375, 39.421875, -2.03125, -49.0, -0.9375],
    ),
    (WeightType::MXFP4, &[0, 1, 15, 16, 31], &[0.0, 0.09375, -0.046875, 0.046875, 0.09375]),
    (WeightType::F16, &[0], &[0.1263427734375]),
    (WeightType::BF16, &[0], &[5.056790541857481e-10]),
];

#[test]
fn every_byte_of_the_weights_counts() {
    for dot in usable() {
        let kind = dot.row().weights;
        let (block_bytes, in_block) = kind.block();
        let blocks = if in_block == 1 { 100 } else { 9 };
        let activation = quantised(dot, &values(blocks * in_block));
        let mut weights = vec![0; blocks * block_bytes];
        kind.fill(&mut weights, 0, 3);
        let sum = |weights: &[u8]| {
            let mut sums = [0.0];
            dot.rows(weights, &activation, &mut sums).unwrap();
            sums[0]
        };
        let before = sum(&weights);
        // By place in a block: an activation or a scale of 0 hides some of them, but not in every block.
        let mut counted = vec![false; if in_block == 1 { weights.len() } else { block_bytes }];
        for place in 0..weights.len() {
            // A bit that moves the weight, its scale or its exponent by a good part of what it is.
            let bit = if in_block == 1 && place % 2 == 0 { 0x80 } else { 0x01 };
            weights[place] ^= bit;
            let (after, (exact, magnitude)) = (sum(&weights), oracle::dot(kind, &weights, &activation));
            assert!((f64::from(after) - exact).abs() <= oracle::tolerance(blocks * in_block, magnitude));
            let place_in_block = place % counted.len();
            counted[place_in_block] |= after != before;
            weights[place] ^= bit;
        }
        assert_eq!(counted.iter().position(|counted| !counted), None, "{}", dot.row().name);
    }
}

#[test]
fn quantised_activations_are_near_what_they_were() {
    for dot in usable() {
        let kind = dot.row().weights.activation();
        let (bytes, in_block) = kind.block();
        let values = values(5 * 256 + if in_block == 1 { 13 } else { 0 });
        let activation = quantised(dot, &values);
        for (block, values) in activation.chunks(bytes).zip(values.chunks(in_block)) {
            let largest = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            for (index, value) in values.iter().enumerate() {
                let near = match kind {
                    // Half a quant, and what the largest loses when the scale is rounded to a half.
                    ActivationType::Q8_0 => f64::from(largest) * (0.5 / 127.0 + f64::powi(2.0, -11)),
                    ActivationType::Q8_K => f64::from(largest) * 0.501 / 127.0,
                    ActivationType::F16 => f64::from(largest) * f64::powi(2.0, -11),
                    ActivationType::BF16 => f64::from(largest) * f64::powi(2.0, -8),
                };
                let off = (oracle::activation(kind, block, index) - f64::from(*value)).abs();
                assert!(off <= near * 1.001, "{}: {value} is off by {off}", dot.row().name);
            }
            if kind == ActivationType::Q8_K {
                for (group, sum) in block[260..].chunks(2).enumerate() {
                    let quants = &block[4 + 16 * group..][..16];
                    let right: i16 = quants.iter().map(|quant| i16::from(*quant as i8)).sum();
                    assert_eq!(i16::from_le_bytes([sum[0], sum[1]]), right);
                }
            }
            if matches!(kind, ActivationType::Q8_0 | ActivationType::Q8_K) {
                let quants = if kind == ActivationType::Q8_0 { &block[2..] } else { &block[4..260] };
                assert!(quants.contains(&127) || quants.contains(&(-127i8 as u8)), "the range is used");
                assert!(!quants.contains(&(-128i8 as u8)), "no kernel need cope with -128");
            }
        }
    }
}

#[test]
fn quantising_parts_is_quantising_the_whole() {
    for kind in WeightType::ALL {
        let dot = Dot::find(kind, Engine, &IsaSet::detect()).unwrap();
        let values = values(8 * 256);
        let whole = quantised(dot, &values);
        let parts: Vec<u8> = values.chunks(256).flat_map(|part| quantised(dot, part)).collect();
        assert_eq!(whole, parts);
    }
}

#[test]
fn filled_weights_are_ordinary_numbers() {
    for kind in WeightType::ALL {
        let (block_bytes, in_block) = kind.block();
        let row = kind.row_bytes(4096).unwrap();
        let mut weights = vec![0; 16 * row];
        kind.fill(&mut weights, 0, 1);
        let mut largest = 0.0f64;
        for block in weights.chunks(block_bytes) {
            for index in 0..in_block {
                let oracle::Weight { product, offset } = oracle::weight(kind, block, index);
                assert!(product.is_finite() && offset.is_finite());
                largest = largest.max(product.abs());
            }
        }
        assert!((0.02..300.0).contains(&largest), "{}: {largest}", kind.name());
        let mut seen = [0usize; 256];
        weights.iter().for_each(|byte| seen[usize::from(*byte)] += 1);
        let values_seen = seen.iter().filter(|count| **count > 0).count();
        // Of BF16 the upper bytes are one of two, and the lower ones have their top bit set.
        assert!(values_seen > 120 && seen.iter().all(|count| *count < weights.len() / 3), "{}", kind.name());
        for flavour in Flavour::ALL {
            let dot = Dot::find(kind, flavour, &IsaSet::detect()).unwrap();
            let mut sums = [0.0; 16];
            dot.rows(&weights, &quantised(dot, &values(4096)), &mut sums).unwrap();
            let distinct: BTreeSet<_> = sums.iter().map(|sum| sum.to_bits()).collect();
            assert!(sums.iter().all(|sum| sum.is_finite()) && distinct.len() == 16, "{sums:?}");
        }
    }
}

#[test]
fn filling_parts_is_filling_the_whole() {
    for kind in WeightType::ALL {
        let mut whole = vec![0; 5000];
        kind.fill(&mut whole, 0, 7);
        for part in [1, 64, 211, 4096] {
            let mut parts = vec![0; 5000];
            for (number, bytes) in parts.chunks_mut(part).enumerate() {
                kind.fill(bytes, (number * part) as u64, 7);
            }
            assert!(whole == parts, "{} in parts of {part}", kind.name());
        }
        let mut other = vec![0; 5000];
        kind.fill(&mut other, 0, 8);
        assert_ne!(whole, other);
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let dot = Dot::find(WeightType::Q8_0, Engine, &IsaSet::detect().capped(Isa::Rust)).unwrap();
    let weights = [0; 2 * 34 + 1];
    for (bytes, activation, rows) in [(69, 34, 2), (68, 34, 1), (34, 34, 2), (68, 35, 2), (34, 0, 1), (0, 68, 1)] {
        let multiplied = dot.rows(&weights[..bytes], &[0; 68][..activation], &mut [0.0; 2][..rows]);
        assert!(multiplied.is_err(), "{bytes} {activation} {rows}");
    }
    let error = dot.rows(&weights, &[0; 34], &mut [0.0; 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not multiply 2 rows with 'dot_q8_0_engine_rust': 69 bytes of weights do not go with 34 bytes of \
         activations; give it, for each 32 weights of a row, 34 bytes and 34 of activations"
    );
    assert!(dot.rows(&[], &[], &mut [1.0; 3]).is_ok());
    let error = dot.quantise(&[0.0; 33], &mut [0; 34]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not quantise 33 activations to Q8_0: they are to lie in 34 bytes; give it 34 bytes for each 32"
    );
    assert!(dot.quantise(&[0.0; 32], &mut [0; 33]).is_err());
}

#[test]
fn rows_are_whole_blocks() {
    assert_eq!(WeightType::Q4_K.row_bytes(4096), Some(16 * 144));
    assert_eq!(WeightType::Q6_K.row_bytes(512), Some(420));
    assert_eq!(WeightType::MXFP4.row_bytes(2880), Some(90 * 17));
    assert_eq!((WeightType::Q4_K.row_bytes(2880), WeightType::F16.row_bytes(3)), (None, Some(6)));
    assert_eq!(ActivationType::Q8_K.vector_bytes(512), Some(584));
    assert_eq!(ActivationType::Q8_0.vector_bytes(48), None);
}
