//! Dot kernels: rows of quantised weights times one activation vector, the arithmetic of a generated token.
//!
//! For each weight type there are two flavours. `engine` computes as llama.cpp b11434 does with one row at a time
//! (`ggml/src/ggml-cpu/arch/x86/quants.c` and `vec.cpp`, built for the processor it runs on): the same instructions a
//! block, the same accumulators, so the same rate; it predicts. `best` is what a better kernel would reach on the same
//! bytes. Layouts and activation types are ggml's, so rows of a GGUF file can be multiplied as they are.
//!
//! **Loads.** Rows are taken one after another in ascending order, blocks of a row too, and every byte of the weights is
//! loaded exactly once; no vectors overlap, no byte before or behind the rows is touched. Inside a block (at most 210
//! bytes) scales may be loaded before quants that lie in front of them, and the compiler may exchange neighbours. So
//! over a range of rows a dot touches the lines that `read` touches, in the same order but for that. The activation is
//! read anew for every row, from the core's own cache.
//!
//! **Numbers.** Products of integers are exact; sums over blocks are in 32-bit floats in an order of each kernel's own, so
//! two kernels differ in the last bits. Activations come from [`Dot::quantise`]: its quants lie in -127…127, and
//! -128 times a negative weight comes out wrong in kernels that multiply magnitudes, the engine's among them. Nothing here
//! panics or faults on any bytes; scales that are infinite or NaN give sums that are.

mod block;
mod check;
mod float;
mod oracle;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

pub use check::check;

use crate::error::{Error, Result};
use crate::machine::{Extension, Isa, IsaSet};
use Flavour::{Best, Engine};
use block::Pinned;

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(non_camel_case_types)]
pub enum WeightType {
    /// 8-bit, a 16-bit scale for 32.
    Q8_0,
    /// 4-bit, 6-bit scales and minima for 32, two 16-bit scales for 256.
    Q4_K,
    /// 6-bit, 8-bit scales for 16, a 16-bit scale for 256.
    Q6_K,
    /// 4-bit float, an exponent for 32.
    MXFP4,
    /// 16-bit float.
    F16,
    /// 16-bit brain float.
    BF16,
}

/// How the activations that an engine multiplies with them are stored. Source: `vec_dot_type` in llama.cpp's
/// `ggml/src/ggml-cpu/ggml-cpu.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(non_camel_case_types)]
pub enum ActivationType {
    /// 8-bit, a 16-bit scale for 32.
    Q8_0,
    /// 8-bit, a 32-bit scale for 256, and sums of 16.
    Q8_K,
    /// 16-bit float.
    F16,
    /// 16-bit brain float.
    BF16,
}

impl WeightType {
    /// All of them in the order of tables.
    pub const ALL: [WeightType; 6] =
        [WeightType::Q8_0, WeightType::Q4_K, WeightType::Q6_K, WeightType::MXFP4, WeightType::F16, WeightType::BF16];

    /// The name, as GGUF tools write it.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::Q8_0 => "Q8_0",
            WeightType::Q4_K => "Q4_K",
            WeightType::Q6_K => "Q6_K",
            WeightType::MXFP4 => "MXFP4",
            WeightType::F16 => "F16",
            WeightType::BF16 => "BF16",
        }
    }

    /// Bytes of a block, and the weights in it.
    pub fn block(self) -> (usize, usize) {
        match self {
            WeightType::Q8_0 => (size_of::<block::Q8_0>(), 32),
            WeightType::Q4_K => (size_of::<block::Q4K>(), 256),
            WeightType::Q6_K => (size_of::<block::Q6K>(), 256),
            WeightType::MXFP4 => (size_of::<block::Mxfp4>(), 32),
            WeightType::F16 | WeightType::BF16 => (size_of::<block::Short>(), 1),
        }
    }

    /// What its activations are quantised to.
    pub const fn activation(self) -> ActivationType {
        match self {
            WeightType::Q8_0 | WeightType::MXFP4 => ActivationType::Q8_0,
            WeightType::Q4_K | WeightType::Q6_K => ActivationType::Q8_K,
            WeightType::F16 => ActivationType::F16,
            WeightType::BF16 => ActivationType::BF16,
        }
    }

    /// Bytes of a row of this many weights; `None` when the row is no whole number of blocks.
    pub fn row_bytes(self, weights: usize) -> Option<usize> {
        let (bytes, in_block) = self.block();
        weights.is_multiple_of(in_block).then(|| weights / in_block * bytes)
    }

    /// Fills `bytes` with plausible weights: random quants under scales from 1/64 to 1/32 (16-bit types: random
    /// weights of that size and either sign). Random scales would be infinite, NaN or subnormal, the last of which some
    /// processors multiply more slowly. All sums of products with ordinary activations are finite.
    ///
    /// The bytes are those from `offset` on of an endless row that `seed` alone decides, which begins with a whole block: so
    /// threads can fill their parts of a matrix, from any byte on, and the whole does not depend on how it was split.
    pub fn fill(self, bytes: &mut [u8], offset: u64, seed: u64) {
        // Of four shorts sign and mantissa are random, and the exponent is that of 2^-6.
        let shorts = |random: u64, exponent: u64| (8, Pinned::Words(random * LANES, exponent * LANES));
        const LANES: u64 = 0x0001_0001_0001_0001;
        let (block_bytes, pinned) = match self {
            WeightType::Q8_0 => (self.block().0, Pinned::Halves(&[std::mem::offset_of!(block::Q8_0, d)])),
            WeightType::Q4_K => {
                let places = &[std::mem::offset_of!(block::Q4K, d), std::mem::offset_of!(block::Q4K, dmin)];
                (self.block().0, Pinned::Halves(places))
            }
            WeightType::Q6_K => (self.block().0, Pinned::Halves(&[std::mem::offset_of!(block::Q6K, d)])),
            WeightType::MXFP4 => (self.block().0, Pinned::Exponent),
            WeightType::F16 => shorts(0x83ff, 0x2400),
            WeightType::BF16 => shorts(0x807f, 0x3c80),
        };
        block::fill(bytes, offset, block_bytes, pinned, seed);
    }
}

impl ActivationType {
    /// The name, as ggml has it.
    pub fn name(self) -> &'static str {
        match self {
            ActivationType::Q8_0 => "Q8_0",
            ActivationType::Q8_K => "Q8_K",
            ActivationType::F16 => "F16",
            ActivationType::BF16 => "BF16",
        }
    }

    /// Bytes of a block, and the activations in it.
    pub fn block(self) -> (usize, usize) {
        match self {
            ActivationType::Q8_0 => (size_of::<block::Q8_0>(), 32),
            ActivationType::Q8_K => (size_of::<block::Q8K>(), 256),
            ActivationType::F16 | ActivationType::BF16 => (size_of::<block::Short>(), 1),
        }
    }

    /// Bytes of a vector of this many activations; `None` when it is no whole number of blocks.
    pub fn vector_bytes(self, activations: usize) -> Option<usize> {
        let (bytes, in_block) = self.block();
        activations.is_multiple_of(in_block).then(|| activations / in_block * bytes)
    }
}

/// What a dot kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// The algorithm and rate of today's engines: to predict them.
    Engine,
    /// The widest and leanest known here: what a better kernel would gain. Where there is none, the engine's.
    Best,
}

impl Flavour {
    /// Both.
    pub const ALL: [Flavour; 2] = [Engine, Best];

    /// The name in kernel names and lists.
    pub fn name(self) -> &'static str {
        match self {
            Engine => "engine",
            Best => "best",
        }
    }
}

/// One line of the table of dot kernels. It says what the kernel is; it cannot run.
#[derive(Debug)]
pub struct Row {
    /// `dot_<weights>_<flavour>_<isa>`: also the function's name.
    pub name: &'static str,
    /// The type of its weights, which decides that of its activations.
    pub weights: WeightType,
    /// What it is for.
    pub flavour: Flavour,
    /// The level it needs.
    pub isa: Isa,
    /// What it needs besides.
    pub extensions: &'static [Extension],
    /// Bytes of the vectors that it multiplies; of plain Rust the compiler decides.
    pub vector_bytes: Option<u32>,
    /// Multiplies. Private, so that only [`Dot::new`] gives the right to call it.
    rows: Rows,
    /// Quantises activations, in the same instructions. Private as well.
    quantise: Quantise,
}

/// The code of a row: contiguous rows of whole blocks, one vector of as many blocks, and a sum for each row.
///
/// # Safety
/// The processor must support what the row needs.
type Rows = unsafe fn(weights: &[u8], activation: &[u8], sums: &mut [f32]);

/// Quantises as many whole blocks as both hold.
///
/// # Safety
/// The processor must support what the row needs.
type Quantise = unsafe fn(values: &[f32], activation: &mut [u8]);

/// A row's function, behind the signature that all share: the loop over rows is compiled with the features of the product,
/// so that a slice of rows costs one indirect call.
macro_rules! rows {
    ($($name:ident: $weights:ident x $activation:ident, $product:expr, $features:tt;)*) => {$(
        $crate::kernel::dot::with_features! { $features
            pub(super) fn $name(weights: &[u8], activation: &[u8], sums: &mut [f32]) {
                let activation = $crate::kernel::dot::block::blocks::<$activation>(activation);
                let weights = $crate::kernel::dot::block::blocks::<$weights>(weights);
                // A chunk has at least one block; without any the sums are empty ones.
                let rows = weights.chunks_exact(activation.len().max(1));
                if activation.is_empty() {
                    sums.fill(0.0);
                }
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = $product(row, activation);
                }
            }
        }
    )*};
}

/// Enables features for a function, or none with `_`.
macro_rules! with_features {
    (_ $function:item) => {
        $function
    };
    ($features:literal $function:item) => {
        #[target_feature(enable = $features)]
        $function
    };
}

/// Takes the sums of a number known when compiled through `step(weights, activation, sum)`, block by block in turn, so that
/// a block need not wait for the one before; what is left of the last round goes to the first of them.
#[cfg(target_arch = "x86_64")]
macro_rules! in_turn {
    ($zero:expr, $sums:ident, $step:expr, $weights:expr, $activation:expr) => {{
        let mut sums = [$zero; $sums];
        let (weights, last_weights) = $weights.as_chunks::<$sums>();
        let (activation, last_activation) = $activation.as_chunks::<$sums>();
        for (weights, activation) in weights.iter().zip(activation) {
            for index in 0..$sums {
                sums[index] = $step(&weights[index], &activation[index], sums[index]);
            }
        }
        for (weights, activation) in last_weights.iter().zip(last_activation) {
            sums[0] = $step(weights, activation, sums[0]);
        }
        sums
    }};
}

#[cfg(target_arch = "x86_64")]
use in_turn;
use {rows, with_features};

/// The table of dot kernels. Columns: name, weights, flavour, ISA, extensions, bytes of a vector, module, the module that
/// quantises, architecture.
macro_rules! table {
    ($($name:ident, $weights:ident, $flavour:ident, $isa:ident, $extensions:expr, $vector:expr, $module:ident,
       $quantise:ident $(, $architecture:literal)?;)*) => {
        static TABLE: &[Row] = &[$(
            $(#[cfg(target_arch = $architecture)])?
            Row {
                name: stringify!($name),
                weights: WeightType::$weights,
                flavour: $flavour,
                isa: Isa::$isa,
                extensions: $extensions,
                vector_bytes: $vector,
                rows: $module::$name,
                quantise: $quantise::QUANTISE[WeightType::$weights.activation() as usize],
            },
        )*];
    };
}

/// What every processor with AVX2 but one has (VIA Nano QuadCore), under bits of its own.
#[cfg(target_arch = "x86_64")]
const FLOATS: &[Extension] = &[Extension::Fma, Extension::F16c];
/// The same and VNNI.
#[cfg(target_arch = "x86_64")]
const VNNI: &[Extension] = &[Extension::Fma, Extension::F16c, Extension::Avx512Vnni];
/// The same and brain floats.
#[cfg(target_arch = "x86_64")]
const BRAIN: &[Extension] = &[Extension::Fma, Extension::F16c, Extension::Avx512Bf16];

// By weights, then ISA and extensions, then flavour: `find` takes the last that can run. That order is by width, not by
// measured speed: which of two widths is faster differs between processors. A best row stands only where one was found that
// does less than the engine's; for F16 and with AVX2 there is none yet.
#[rustfmt::skip]
table! {
    dot_q8_0_engine_rust,         Q8_0,  Engine, Rust,   &[],    None,     portable, portable;
    dot_q8_0_engine_avx2,         Q8_0,  Engine, Avx2,   FLOATS, Some(32), avx2,     avx2,     "x86_64";
    dot_q8_0_engine_avx512_vnni,  Q8_0,  Engine, Avx512, VNNI,   Some(32), avx512,   avx2,     "x86_64";
    dot_q8_0_best_avx512_vnni,    Q8_0,  Best,   Avx512, VNNI,   Some(64), avx512,   avx2,     "x86_64";
    dot_q4_k_engine_rust,         Q4_K,  Engine, Rust,   &[],    None,     portable, portable;
    dot_q4_k_engine_avx2,         Q4_K,  Engine, Avx2,   FLOATS, Some(32), avx2,     avx2,     "x86_64";
    dot_q4_k_best_avx512_vnni,    Q4_K,  Best,   Avx512, VNNI,   Some(64), avx512,   avx2,     "x86_64";
    dot_q6_k_engine_rust,         Q6_K,  Engine, Rust,   &[],    None,     portable, portable;
    dot_q6_k_engine_avx2,         Q6_K,  Engine, Avx2,   FLOATS, Some(32), avx2,     avx2,     "x86_64";
    dot_q6_k_best_avx512_vnni,    Q6_K,  Best,   Avx512, VNNI,   Some(64), avx512,   avx2,     "x86_64";
    dot_mxfp4_engine_rust,        MXFP4, Engine, Rust,   &[],    None,     portable, portable;
    dot_mxfp4_engine_avx2,        MXFP4, Engine, Avx2,   FLOATS, Some(32), avx2,     avx2,     "x86_64";
    dot_mxfp4_best_avx512_vnni,   MXFP4, Best,   Avx512, VNNI,   Some(64), avx512,   avx2,     "x86_64";
    dot_f16_engine_rust,          F16,   Engine, Rust,   &[],    None,     portable, portable;
    dot_f16_engine_avx2,          F16,   Engine, Avx2,   FLOATS, Some(32), avx2,     avx2,     "x86_64";
    dot_f16_engine_avx512,        F16,   Engine, Avx512, FLOATS, Some(64), avx512,   avx2,     "x86_64";
    dot_bf16_engine_rust,         BF16,  Engine, Rust,   &[],    None,     portable, portable;
    dot_bf16_engine_avx2,         BF16,  Engine, Avx2,   FLOATS, Some(32), avx2,     avx2,     "x86_64";
    dot_bf16_engine_avx512,       BF16,  Engine, Avx512, FLOATS, Some(64), avx512,   avx2,     "x86_64";
    dot_bf16_engine_avx512_bf16,  BF16,  Engine, Avx512, BRAIN,  Some(64), avx512,   avx2,     "x86_64";
    dot_bf16_best_avx512_bf16,    BF16,  Best,   Avx512, BRAIN,  Some(64), avx512,   avx2,     "x86_64";
}

/// A dot kernel that this processor can run.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    row: &'static Row,
}

impl Dot {
    /// All rows, also those that cannot run here, in table order.
    pub fn table() -> &'static [Row] {
        TABLE
    }

    /// The row's kernel, when `isa` has what it needs; otherwise the reason in a few words ("needs avx512, avx512_vnni").
    pub fn new(row: &'static Row, isa: &IsaSet) -> std::result::Result<Dot, String> {
        let level = (!isa.contains(row.isa)).then_some(row.isa.name());
        let extensions = row.extensions.iter().filter(|extension| !isa.has(**extension)).map(|missing| missing.name());
        let missing: Vec<_> = level.into_iter().chain(extensions).collect();
        if missing.is_empty() { Ok(Dot { row }) } else { Err(format!("needs {}", missing.join(", "))) }
    }

    /// The kernel of a flavour that `isa` allows: the engine's as built for such a processor, or the best, which is the
    /// engine's where nothing better is known. The
    /// portable rows run everywhere, so there always is one.
    pub fn find(weights: WeightType, flavour: Flavour, isa: &IsaSet) -> Option<Dot> {
        let wanted = |row: &&Row| row.weights == weights && (flavour == Best || row.flavour == Engine);
        TABLE.iter().rev().filter(wanted).find_map(|row| Dot::new(row, isa).ok())
    }

    /// What it is.
    pub fn row(&self) -> &'static Row {
        self.row
    }

    /// Multiplies contiguous rows of weights with one activation vector, a sum for each row.
    ///
    /// `activation` is what [`Dot::quantise`] wrote and decides the length of a row; `weights` are `sums.len()` such rows, at
    /// any address. Allocates nothing.
    ///
    /// # Errors
    /// When `activation` is no whole number of blocks, or `weights` is not as long as these rows are.
    #[inline]
    pub fn rows(&self, weights: &[u8], activation: &[u8], sums: &mut [f32]) -> Result<()> {
        let (block_bytes, _) = self.row.weights.block();
        let (activation_bytes, _) = self.row.weights.activation().block();
        let row_bytes = activation.len() / activation_bytes * block_bytes;
        if !activation.len().is_multiple_of(activation_bytes)
            || row_bytes.checked_mul(sums.len()) != Some(weights.len())
        {
            return Err(self.misfit(weights.len(), activation.len(), sums.len()));
        }
        // SAFETY: `Dot::new` made this value, so the processor and the system support what the row needs.
        unsafe { (self.row.rows)(weights, activation, sums) };
        Ok(())
    }

    /// Quantises activations as the engine does: what it writes is an activation for [`Dot::rows`]. The blocks are
    /// independent, so threads can share a vector among them. Allocates nothing.
    ///
    /// # Errors
    /// When `values` is no whole number of blocks, or `activation` is not as long as these blocks are.
    pub fn quantise(&self, values: &[f32], activation: &mut [u8]) -> Result<()> {
        let kind = self.row.weights.activation();
        if kind.vector_bytes(values.len()) != Some(activation.len()) {
            let (bytes, in_block) = kind.block();
            return Err(Error::refused(
                format!("quantise {} activations to {}", values.len(), kind.name()),
                format!("they are to lie in {} bytes", activation.len()),
                format!("give it {bytes} bytes for each {in_block}"),
            ));
        }
        // SAFETY: as in `rows`.
        unsafe { (self.row.quantise)(values, activation) };
        Ok(())
    }

    #[cold]
    fn misfit(&self, weights: usize, activation: usize, rows: usize) -> Error {
        let Row { name, weights: kind, .. } = self.row;
        let (bytes, in_block) = kind.block();
        let (activation_bytes, _) = kind.activation().block();
        Error::refused(
            format!("multiply {rows} rows with '{name}'"),
            format!("{weights} bytes of weights do not go with {activation} bytes of activations"),
            format!(
                "give it, for each {in_block} weights of a row, {bytes} bytes and {activation_bytes} of activations"
            ),
        )
    }
}

#[cfg(test)]
mod tests;
