//! How a tensor's weights are stored: the type numbers of GGUF files.

use crate::workload::BlockType;
use std::fmt;

/// The type of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One that the catalogue has as well.
    Block(BlockType),
    /// Another one whose size is known.
    Other(&'static Row),
    /// A number that nobody explained to us: its tensors are as large as their place in the file.
    Unknown(u32),
}

/// A type that only files have.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    id: u32,
    name: &'static str,
    /// Bytes of a block, and the weights in it.
    block: (u64, u64),
    /// Bytes that a row has besides its blocks (a scale for all of it).
    row_extra: u64,
    /// Bytes and values of a block of the copy that activations are multiplied from, as
    /// [`BlockType::multiplicand_bytes`].
    multiplicand: (u64, u64),
}

/// Numbers of the catalogue's types. Source: `ggml/include/ggml.h` of llama.cpp b11434.
const BLOCKS: [(u32, BlockType); 14] = [
    (0, BlockType::F32),
    (1, BlockType::F16),
    (2, BlockType::Q4_0),
    (6, BlockType::Q5_0),
    (7, BlockType::Q5_1),
    (8, BlockType::Q8_0),
    (12, BlockType::Q4_K),
    (13, BlockType::Q5_K),
    (14, BlockType::Q6_K),
    (20, BlockType::IQ4_NL),
    (23, BlockType::IQ4_XS),
    (26, BlockType::I32),
    (30, BlockType::BF16),
    (39, BlockType::MXFP4),
];

/// Not multiplied with.
const NONE: (u64, u64) = (0, 1);
const Q8_0: (u64, u64) = (34, 32);
const Q8_1: (u64, u64) = (36, 32);
const Q8_K: (u64, u64) = (292, 256);

const fn row(id: u32, name: &'static str, block: (u64, u64), row_extra: u64, multiplicand: (u64, u64)) -> Row {
    Row { id, name, block, row_extra, multiplicand }
}

/// The other types. Sources: `gguf-py/gguf/constants.py` of llama.cpp for those below 97; `ggml/include/ggml.h`,
/// `ggml/src/ggml.c` and `ggml/src/ggml-common.h` of ik_llama.cpp at 8337e4cd for those from 97 on, whose multiplicands
/// are those of the plain types (it takes others on some processors). I2_S (36) is left out: its size is no function of
/// a row.
static OTHERS: [Row; 78] = [
    row(3, "Q4_1", (20, 32), 0, Q8_1),
    row(9, "Q8_1", (36, 32), 0, Q8_1),
    row(10, "Q2_K", (84, 256), 0, Q8_K),
    row(11, "Q3_K", (110, 256), 0, Q8_K),
    row(15, "Q8_K", (292, 256), 0, Q8_K),
    row(16, "IQ2_XXS", (66, 256), 0, Q8_K),
    row(17, "IQ2_XS", (74, 256), 0, Q8_K),
    row(18, "IQ3_XXS", (98, 256), 0, Q8_K),
    row(19, "IQ1_S", (50, 256), 0, Q8_K),
    row(21, "IQ3_S", (110, 256), 0, Q8_K),
    row(22, "IQ2_S", (82, 256), 0, Q8_K),
    row(24, "I8", (1, 1), 0, NONE),
    row(25, "I16", (2, 1), 0, NONE),
    row(27, "I64", (8, 1), 0, NONE),
    row(28, "F64", (8, 1), 0, NONE),
    row(29, "IQ1_M", (56, 256), 0, Q8_K),
    row(31, "Q4_0_4_4", (18, 32), 0, Q8_0),
    row(32, "Q4_0_4_8", (18, 32), 0, Q8_0),
    row(33, "Q4_0_8_8", (18, 32), 0, Q8_0),
    row(34, "TQ1_0", (54, 256), 0, Q8_K),
    row(35, "TQ2_0", (66, 256), 0, Q8_K),
    row(40, "NVFP4", (36, 64), 0, Q8_0),
    row(41, "Q1_0", (18, 128), 0, Q8_0),
    row(97, "Q8_0_X4", (34, 32), 0, Q8_0),
    row(98, "Q8_1_X4", (36, 32), 0, Q8_1),
    row(99, "Q8_2_X4", (36, 32), 0, Q8_1),
    row(133, "Q6_0", (26, 32), 0, Q8_0),
    row(134, "IQ1_BN", (13, 64), 2, Q8_0),
    row(135, "IQ2_BN", (16, 64), 4, Q8_0),
    row(136, "Q8_K64", (68, 64), 0, Q8_K),
    row(137, "IQ2_K", (76, 256), 0, Q8_K),
    row(138, "IQ3_K", (110, 256), 0, Q8_K),
    row(139, "IQ4_K", (144, 256), 0, Q8_K),
    row(140, "IQ5_K", (176, 256), 0, Q8_K),
    row(141, "IQ6_K", (212, 256), 0, Q8_K),
    row(144, "IQ4_KS", (136, 256), 4, Q8_K),
    row(145, "IQ2_KS", (70, 256), 2, Q8_K),
    row(146, "IQ4_KSS", (128, 256), 4, Q8_K),
    row(147, "Q8_K16", (64, 64), 20, Q8_K),
    row(148, "Q8_K32", (292, 256), 0, Q8_K),
    row(149, "Q8_KR8", (292, 256), 0, Q8_K),
    row(150, "Q8_K128", (140, 128), 0, Q8_K),
    row(151, "Q8_KV", (32, 32), 8, Q8_0),
    row(152, "IQ5_KS", (168, 256), 4, Q8_K),
    row(153, "IQ2_KT", (68, 256), 4, Q8_0),
    row(154, "IQ3_KT", (100, 256), 4, Q8_0),
    row(155, "IQ4_KT", (128, 256), 4, Q8_0),
    row(156, "IQ3_KS", (102, 256), 2, Q8_K),
    row(157, "IQ2_KL", (86, 256), 2, Q8_K),
    row(158, "IQ1_KT", (56, 256), 4, Q8_0),
    row(202, "Q4_0_R8", (18, 32), 0, Q8_0),
    row(206, "Q5_0_R4", (22, 32), 0, Q8_0),
    row(208, "Q8_0_R8", (34, 32), 0, Q8_0),
    row(210, "Q2_K_R4", (84, 256), 0, Q8_K),
    row(211, "Q3_K_R4", (110, 256), 0, Q8_K),
    row(212, "Q4_K_R4", (144, 256), 0, Q8_K),
    row(213, "Q5_K_R4", (176, 256), 0, Q8_K),
    row(214, "Q6_K_R4", (210, 256), 0, Q8_K),
    row(216, "IQ2_XXS_R4", (66, 256), 0, Q8_K),
    row(217, "IQ2_XS_R4", (74, 256), 0, Q8_K),
    row(218, "IQ3_XXS_R4", (98, 256), 0, Q8_K),
    row(219, "IQ1_S_R4", (6, 32), 2, Q8_K),
    row(220, "IQ4_NL_R4", (18, 32), 0, Q8_0),
    row(221, "IQ3_S_R4", (110, 256), 0, Q8_K),
    row(222, "IQ2_S_R4", (82, 256), 0, Q8_K),
    row(223, "IQ4_XS_R8", (136, 256), 0, Q8_K),
    row(229, "IQ1_M_R4", (7, 32), 2, Q8_K),
    row(230, "BF16_R16", (2, 1), 0, (2, 1)),
    row(233, "Q6_0_R4", (26, 32), 0, Q8_0),
    row(335, "IQ2_BN_R4", (16, 64), 4, Q8_0),
    row(337, "IQ2_K_R4", (76, 256), 0, Q8_K),
    row(338, "IQ3_K_R4", (110, 256), 0, Q8_K),
    row(339, "IQ4_K_R4", (144, 256), 0, Q8_K),
    row(340, "IQ5_K_R4", (176, 256), 0, Q8_K),
    row(344, "IQ4_KS_R4", (136, 256), 4, Q8_K),
    row(352, "IQ5_KS_R4", (168, 256), 4, Q8_K),
    row(353, "MXFP4_R8", (17, 32), 0, Q8_0),
    row(399, "Q8_K_R8", (258, 256), 0, Q8_K),
];

impl Storage {
    /// The type as the catalogue knows it; `None` for one that only files have.
    pub fn block(self) -> Option<BlockType> {
        match self {
            Storage::Block(block) => Some(block),
            Storage::Other(_) | Storage::Unknown(_) => None,
        }
    }

    /// The type of a number.
    pub fn of(id: u32) -> Storage {
        if let Some((_, block)) = BLOCKS.iter().find(|(known, _)| *known == id) {
            return Storage::Block(*block);
        }
        OTHERS.iter().find(|row| row.id == id).map_or(Storage::Unknown(id), Storage::Other)
    }

    /// Bytes of a row of this many weights; `None` when it is no whole number of blocks or the type is unknown.
    pub fn row_bytes(self, weights: u64) -> Option<u64> {
        match self {
            Storage::Block(block) => block.row_bytes(weights),
            Storage::Other(row) => {
                let (bytes, in_block) = row.block;
                weights.is_multiple_of(in_block).then(|| weights / in_block * bytes + row.row_extra)
            }
            Storage::Unknown(_) => None,
        }
    }

    /// Bytes of the copy of `values` activations that a product makes, as [`BlockType::multiplicand_bytes`]; of an unknown
    /// type they are taken as 8 bit wide, like those of most.
    pub fn multiplicand_bytes(self, values: u64) -> u64 {
        let (bytes, in_block) = match self {
            Storage::Block(block) => return block.multiplicand_bytes(values),
            Storage::Other(row) => row.multiplicand,
            Storage::Unknown(_) => Q8_0,
        };
        (values * bytes).div_ceil(in_block)
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The variants are called what ggml calls them.
            Storage::Block(block) => write!(f, "{block:?}"),
            Storage::Other(row) => f.write_str(row.name),
            Storage::Unknown(id) => write!(f, "type {id}"),
        }
    }
}
