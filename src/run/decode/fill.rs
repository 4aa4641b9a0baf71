//! Fills the arena with weights that are plausible for their types.

use super::Replay;
use crate::error::Result;
use crate::kernel::dot::WeightType;
use crate::memory::{self, Line};
use crate::plan::experts::layout::lines_of;
use crate::run::Stop;
use crate::run::clock::Clock;
use crate::run::team;
use crate::units::CpuId;
use crate::workload::{BlockType, Reading};
use std::sync::Mutex;

/// Lines that are filled between two looks at whether to stop: 16 MiB.
const CHUNK: usize = 1 << 18;

/// Matrices of one type that lie one behind the other, each beginning on a line.
struct Segment {
    first: usize,
    lines: usize,
    /// Of one matrix.
    matrix_lines: usize,
    /// `None`: anything will do, since nothing multiplies it.
    kind: Option<WeightType>,
}

/// Touches the part of the arena that a model uses, in parallel. What nothing multiplies becomes words that are neither zero
/// nor all the same.
///
/// # Errors
/// As [`team::run`].
pub fn fill(replay: &Replay<'_>, cpus: &[CpuId], arena: &mut [Line], clock: Clock, stop: Stop<'_>) -> Result<()> {
    let segments = segments(replay);
    let seed = replay.seed;
    let lines = (replay.model.layout.lines() as usize).min(arena.len());
    let each = lines.div_ceil(cpus.len()).max(1);
    let parts: Vec<Mutex<&mut [Line]>> = arena[..lines].chunks_mut(each).map(Mutex::new).collect();
    team::run(cpus, clock, |seat| {
        // Each part has one thread, so the lock is always free.
        let Some(mut part) = parts.get(seat.index).and_then(|part| part.lock().ok()) else { return };
        for (index, chunk) in part.chunks_mut(CHUNK).enumerate() {
            // First touch is slow: nobody should wait for gigabytes of it after Ctrl-C.
            if stop.reason(seat.now()).is_some() {
                return;
            }
            fill_chunk(&segments, chunk, seat.index * each + index * CHUNK, seed);
        }
    })
    .map(|_| ())
}

/// What lies where, in order.
fn segments(replay: &Replay<'_>) -> Vec<Segment> {
    let weights = replay.model.token.phases.iter().zip(&replay.places);
    let mut segments: Vec<Segment> = weights
        .filter_map(|(phase, place)| {
            let (weight, place) = (phase.weight.as_ref()?, (*place)?);
            let matrix_lines = lines_of(weight.matrix_bytes()) as usize;
            let matrices = match weight.reading {
                Reading::OneRow => return None,
                Reading::All => 1,
                Reading::Experts { of, .. } => of as usize,
            };
            let kind = weight.block.and_then(BlockType::weight_type);
            Some(Segment { first: place as usize, lines: matrices * matrix_lines, matrix_lines, kind })
        })
        .collect();
    segments.sort_by_key(|segment| segment.first);
    // Layers that share memory are listed for each.
    segments.dedup_by_key(|segment| segment.first);
    segments
}

/// Fills the lines from `first` on, whichever segments they belong to.
fn fill_chunk(segments: &[Segment], chunk: &mut [Line], first: usize, seed: u64) {
    let mut at = first;
    let end = first + chunk.len();
    let begin = segments.partition_point(|segment| segment.first + segment.lines <= first);
    let words = |chunk: &mut [Line], from: usize, to: usize| {
        memory::fill_words(&mut chunk[from - first..to - first], from as u64, seed);
    };
    for segment in segments[begin..].iter().take_while(|segment| segment.first < end) {
        words(chunk, at, segment.first.max(at));
        at = at.max(segment.first);
        let stop = (segment.first + segment.lines).min(end);
        let Some(kind) = segment.kind else {
            words(chunk, at, stop);
            at = stop;
            continue;
        };
        while at < stop {
            let inside = at - segment.first;
            let row_start = inside % segment.matrix_lines;
            let until = (at - row_start + segment.matrix_lines).min(stop);
            let bytes = Line::bytes_mut(&mut chunk[at - first..until - first]);
            kind.fill(bytes, row_start as u64 * Line::BYTES, seed ^ (inside - row_start) as u64);
            at = until;
        }
    }
    words(chunk, at, end);
}
