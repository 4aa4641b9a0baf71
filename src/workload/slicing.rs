//! How an engine splits the rows of a matrix over threads.
//!
//! Source: `ggml/src/ggml-cpu/ggml-cpu.c` (`ggml_compute_forward_mul_mat`, `…_mul_mat_id`) and `repack.cpp`
//! (`forward_mul_mat`, `forward_mul_mat_id`) of llama.cpp b11434, for one activation row.

use super::BlockType;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A rule for splitting rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slicing {
    /// One contiguous slice a thread: llama.cpp on several memory nodes (`--numa`).
    Static,
    /// Chunks of 64 rows that threads take as they come, where there are at least four a thread; else as `Static`.
    Chunks,
    /// Tensors that llama.cpp repacks by eight rows (`--repack 1`, its default): four chunks a thread, and of experts one
    /// slice a thread, cut at multiples of eight rows. Other tensors as `Chunks`. Their bytes and their arithmetic are
    /// those of the plain layout.
    Repacked,
}

/// How the rows of one matrix are split among a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Thread n has the n-th slice of so many rows; of what is too small for all, the first threads have everything.
    Slices {
        /// Rows of a slice.
        rows: u64,
    },
    /// Thread n of t has rows from n/t to (n + 1)/t of all, rounded up to multiples.
    Granules {
        /// The multiple.
        rows: u64,
    },
    /// Thread n begins with chunk n and then takes the next that nobody has.
    Chunks {
        /// Rows of a chunk.
        rows: u64,
        /// Chunks that there are; at least four a thread, or one each.
        count: u64,
    },
}

/// Rows of a chunk where there is one activation row.
const CHUNK_ROWS: u64 = 64;
/// Chunks a thread below which there is no chunking, and that a repacked matrix is cut into.
const CHUNKS_PER_THREAD: u64 = 4;
/// Rows that are interleaved in a repacked tensor.
const REPACKED_ROWS: u64 = 8;

impl Slicing {
    /// All of them.
    pub const ALL: [Slicing; 3] = [Slicing::Static, Slicing::Chunks, Slicing::Repacked];

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Slicing::Static => "static",
            Slicing::Chunks => "chunks",
            Slicing::Repacked => "repacked",
        }
    }

    /// The rule of that name.
    ///
    /// # Errors
    /// A usage error that lists the names.
    pub fn find(name: &str) -> Result<Slicing> {
        Slicing::ALL.into_iter().find(|slicing| slicing.name() == name).ok_or_else(|| {
            let names = Slicing::ALL.map(Slicing::name).join(", ");
            Error::usage(
                format!("split matrices by '{name}'"),
                "it is no rule that is known",
                format!("name one of {names}"),
            )
        })
    }

    /// How a matrix of so many rows is split over threads, one activation row each.
    pub fn cut(self, rows: u64, block: Option<BlockType>, of_experts: bool, threads: u64) -> Cut {
        let slices = Cut::Slices { rows: rows.div_ceil(threads).max(1) };
        let is_repacked =
            self == Slicing::Repacked && rows.is_multiple_of(REPACKED_ROWS) && block.is_some_and(is_repacked);
        match (self, is_repacked, of_experts) {
            (Slicing::Static, ..) => slices,
            (_, true, true) => Cut::Granules { rows: REPACKED_ROWS },
            (_, true, false) if threads == 1 => slices,
            (_, true, false) => {
                let chunk = rows.div_ceil(CHUNKS_PER_THREAD * threads).next_multiple_of(REPACKED_ROWS);
                Cut::Chunks { rows: chunk, count: rows.div_ceil(chunk) }
            }
            (_, false, _) => {
                let count = rows.div_ceil(CHUNK_ROWS);
                if count < CHUNKS_PER_THREAD * threads {
                    return slices;
                }
                Cut::Chunks { rows: rows.div_ceil(count), count }
            }
        }
    }
}

/// Types for which x86 processors with AVX2 have repacked kernels.
fn is_repacked(block: BlockType) -> bool {
    matches!(block, BlockType::Q4_0 | BlockType::Q4_K | BlockType::IQ4_NL | BlockType::MXFP4)
}

impl Cut {
    /// The rows of a thread that are known before it starts: its slice, or its first chunk.
    pub fn first(self, rows: u64, thread: u64, threads: u64) -> Range<u64> {
        match self {
            Cut::Slices { rows: each } | Cut::Chunks { rows: each, .. } => {
                (each * thread).min(rows)..(each * (thread + 1)).min(rows)
            }
            Cut::Granules { rows: granule } => {
                let at = |thread: u64| (thread * rows / threads).next_multiple_of(granule).min(rows);
                at(thread)..at(thread + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_cpp_chunks_only_where_there_are_four_a_thread() {
        let cut = |rows, threads| Slicing::Chunks.cut(rows, Some(BlockType::Q8_0), false, threads);
        // Facts of docs/workload.md: 4096 rows up to 16 threads, 11008 up to 43, 2048 up to 8, 768 up to 3.
        for (rows, most) in [(4096, 16), (11008, 43), (2880, 11), (2048, 8), (768, 3)] {
            assert!(matches!(cut(rows, most), Cut::Chunks { .. }), "{rows} rows");
            assert_eq!(cut(rows, most + 1), Cut::Slices { rows: rows.div_ceil(most + 1) });
        }
        assert_eq!(cut(2880, 2), Cut::Chunks { rows: 64, count: 45 });
        assert_eq!(cut(151_936, 372), Cut::Chunks { rows: 64, count: 2374 });
        // 300 rows are five chunks of 60, not four of 64 and a rest.
        assert_eq!(cut(300, 1), Cut::Chunks { rows: 60, count: 5 });
    }

    #[test]
    fn repacked_experts_are_cut_at_eight_rows() {
        let mxfp4 = Some(BlockType::MXFP4);
        let cut = Slicing::Repacked.cut(2880, mxfp4, true, 32);
        let slices: Vec<u64> =
            (0..32).map(|thread| cut.first(2880, thread, 32)).map(|rows| rows.end - rows.start).collect();
        // 360 granules over 32 threads: 11.25 in the mean, 12 for some.
        assert_eq!(slices.iter().sum::<u64>(), 2880);
        assert_eq!((slices.iter().min(), slices.iter().max()), (Some(&88), Some(&96)));
        assert_eq!(Slicing::Repacked.cut(4096, mxfp4, false, 2), Cut::Chunks { rows: 512, count: 8 });
        assert!(matches!(Slicing::Repacked.cut(4096, Some(BlockType::Q8_0), false, 2), Cut::Chunks { rows: 64, .. }));
    }

    #[test]
    fn all_rows_belong_to_exactly_one_thread() {
        for slicing in Slicing::ALL {
            for (rows, threads) in [(1, 1), (1, 5), (7, 3), (2880, 7), (768, 61), (4096, 372)] {
                let cut = slicing.cut(rows, Some(BlockType::MXFP4), true, threads);
                let mut next = 0;
                let parts = match cut {
                    Cut::Chunks { count, .. } => count,
                    _ => threads,
                };
                for part in 0..parts {
                    let slice = cut.first(rows, part, threads);
                    if !slice.is_empty() {
                        assert_eq!(slice.start, next, "{slicing:?} {rows} rows, {threads} threads");
                        next = slice.end;
                    }
                }
                assert_eq!(next, rows, "{slicing:?} {rows} rows, {threads} threads");
            }
        }
        assert!(Slicing::find("dynamic").unwrap_err().to_string().contains("static, chunks, repacked"));
    }
}
