//! Lines that hold the position of the next one: one cycle through all of them, for pointer chasing.

use super::{Line, split_mix};
use std::hint::black_box;
use std::ops::Range;

/// Bytes of a block. The order hops from block to block at every step, so that with 4 KiB pages every step needs the
/// translation of another page; the same order over huge pages shows what translations cost.
pub const BLOCK_BYTES: u64 = 4096;
/// Lines in a block.
const LINES: u64 = BLOCK_BYTES / Line::BYTES;
/// Words in a line.
const WORDS: u64 = Line::BYTES / 8;

/// The order of a cycle through all lines of some blocks.
///
/// The blocks are cut into zones of equal size, which are visited one after another. A zone is visited in 64 rounds; a
/// round takes all its blocks in the zone's random order (Fisher and Yates, seeded) and one line of each: the round's
/// element of a permutation of the block's lines, which a hash of seed and block picks. So each line has one successor,
/// which is found without a table of lines, and threads can write their own blocks one by one.
#[derive(Debug)]
pub struct Chain {
    seed: u64,
    /// Blocks in visiting order, zone by zone.
    order: Vec<u32>,
    /// Where in `order` each block stands.
    position: Vec<u32>,
    zones: Vec<Range<usize>>,
}

impl Chain {
    /// A cycle through `blocks` blocks (at least one) in this many zones (fewer where blocks are few).
    pub fn new(blocks: usize, zones: usize, seed: u64) -> Chain {
        let blocks = blocks.clamp(1, u32::MAX as usize);
        let count = zones.clamp(1, blocks);
        let zones: Vec<Range<usize>> =
            (0..count).map(|zone| blocks * zone / count..blocks * (zone + 1) / count).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut order: Vec<u32> = (0..blocks as u32).collect();
        for zone in &zones {
            random.shuffle(&mut order[zone.clone()]);
        }
        let mut position = vec![0; blocks];
        for (index, block) in order.iter().enumerate() {
            position[*block as usize] = index as u32;
        }
        Chain { seed, order, position, zones }
    }

    /// Blocks of each zone, in the order in which zones are visited.
    pub fn zones(&self) -> &[Range<usize>] {
        &self.zones
    }

    /// Lines in the cycle.
    pub fn lines(&self) -> u64 {
        self.order.len() as u64 * LINES
    }

    /// Where the first zone's visit begins, as [`chase`] takes it.
    pub fn start(&self) -> u64 {
        let first = self.order[0];
        self.word(first, self.key(first), 0)
    }

    /// Writes the lines of whole blocks, of which `first_block` is the first. All blocks must lie in one zone.
    pub fn write(&self, lines: &mut [Line], first_block: usize) {
        for (block, lines) in (first_block..self.order.len()).zip(lines.as_chunks_mut::<{ LINES as usize }>().0) {
            let index = self.position[block] as usize;
            let zone_index = self.zones.partition_point(|zone| zone.end <= index);
            let zone = &self.zones[zone_index];
            let next_zone = self.zones.get(zone_index + 1).unwrap_or(&self.zones[0]);
            let last = index + 1 == zone.end;
            let next = self.order[if last { zone.start } else { index + 1 }];
            let (key, next_key) = (self.key(block as u32), self.key(next));
            for round in 0..LINES {
                let successor = match (last, round + 1 == LINES) {
                    (false, _) => self.word(next, next_key, round),
                    (true, false) => self.word(next, next_key, round + 1),
                    (true, true) => {
                        let first = self.order[next_zone.start];
                        self.word(first, self.key(first), 0)
                    }
                };
                // The other words vary and are not zero, so that no two pages look the same to the kernel.
                let line = Line::from_words([successor, key, successor, key, successor, key, successor, key]);
                lines[line_of(key, round) as usize] = line;
            }
        }
    }

    fn key(&self, block: u32) -> u64 {
        split_mix(self.seed, u64::from(block)) | 1
    }

    /// Index of the first word of a block's line of a round.
    fn word(&self, block: u32, key: u64, round: u64) -> u64 {
        (u64::from(block) * LINES + line_of(key, round)) * WORDS
    }
}

/// Element number `round` of the permutation of a block's lines that `key` picks. Each step can be undone modulo 64 (a
/// product with an odd number, a sum, an exclusive or with higher bits), so all together is a permutation.
#[inline]
fn line_of(key: u64, round: u64) -> u64 {
    const MASK: u64 = LINES - 1;
    let mut line = (round ^ (key >> 1)) & MASK;
    line = (line * ((key >> 8) | 1)) & MASK;
    line ^= line >> 3;
    line = (line * ((key >> 16) | 1)).wrapping_add(key >> 24) & MASK;
    line ^= line >> 2;
    (line + (key >> 32)) & MASK
}

/// Writes a cycle through the lines of one block alone, in an order that a hash of seed and block picks: [`chase`] over these
/// lines, from [`block_start`], is back after as many steps.
pub fn write_block(lines: &mut [Line], block: u32, seed: u64) {
    let key = split_mix(seed, u64::from(block)) | 1;
    for round in 0..LINES {
        let successor = line_of(key, (round + 1) % LINES) * WORDS;
        if let Some(line) = lines.get_mut(line_of(key, round) as usize) {
            // As above: no two pages look the same to the kernel.
            *line = Line::from_words([successor, key, successor, key, successor, key, successor, key]);
        }
    }
}

/// Where the cycle of [`write_block`] begins, as [`chase`] takes it.
pub fn block_start(block: u32, seed: u64) -> u64 {
    line_of(split_mix(seed, u64::from(block)) | 1, 0) * WORDS
}

/// Goes `steps` steps along a chain that [`Chain::write`] or [`write_block`] left in `lines`, from word `at`, and returns where that ends.
/// Every load needs the result of the one before; the check of the bounds does not lie on that path.
#[inline(never)]
pub fn chase(lines: &[Line], at: u64, steps: u64) -> u64 {
    // SAFETY: a `Line` is 64 bytes without padding, aligned to more than a word, and every pattern is a valid word.
    let words = unsafe { std::slice::from_raw_parts(lines.as_ptr().cast::<u64>(), lines.len() * WORDS as usize) };
    let mut at = at;
    for _ in 0..steps {
        at = words[at as usize];
    }
    black_box(at)
}

/// Reads one word of each line, in order: fills caches faster than a chase would.
pub fn sweep(lines: &[Line]) {
    let sum = lines.iter().fold(0u64, |sum, line| sum.wrapping_add(line.words()[0]));
    black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn written(chain: &Chain, blocks: usize, pieces: usize) -> Vec<Line> {
        let mut lines = vec![Line([0; 64]); blocks * LINES as usize];
        for zone in chain.zones() {
            for piece in 0..pieces {
                let cut = |piece: usize| zone.start + zone.len() * piece / pieces;
                let range = cut(piece) * LINES as usize..cut(piece + 1) * LINES as usize;
                chain.write(&mut lines[range], cut(piece));
            }
        }
        lines
    }

    #[test]
    fn a_chain_is_one_cycle_through_all_lines() {
        for (blocks, zones, pieces) in [(1, 1, 1), (1, 4, 2), (2, 1, 2), (12, 1, 1), (37, 4, 3), (256, 4, 2)] {
            let chain = Chain::new(blocks, zones, 7);
            let lines = written(&chain, blocks, pieces);
            assert_eq!(chain.lines(), lines.len() as u64);
            let mut seen = BTreeSet::new();
            let mut at = chain.start();
            for _ in 0..lines.len() {
                assert_eq!(at % WORDS, 0);
                assert!(seen.insert(at), "{blocks} blocks: back at {at} after {}", seen.len());
                at = chase(&lines, at, 1);
            }
            assert_eq!(at, chain.start(), "{blocks} blocks");
            assert_eq!(chase(&lines, at, lines.len() as u64), at);
        }
    }

    #[test]
    fn a_block_is_one_cycle_of_its_own() {
        for block in [0, 1, 77] {
            let mut lines = vec![Line([0; 64]); LINES as usize];
            write_block(&mut lines, block, 9);
            let start = block_start(block, 9);
            let visited: BTreeSet<u64> = (0..LINES).map(|steps| chase(&lines, start, steps)).collect();
            assert_eq!((visited.len() as u64, chase(&lines, start, LINES)), (LINES, start));
        }
    }

    #[test]
    fn steps_leave_the_block_and_zones_come_one_after_another() {
        let (blocks, zones) = (64, 4);
        let chain = Chain::new(blocks, zones, 3);
        let lines = written(&chain, blocks, 1);
        let mut at = chain.start();
        for step in 0..lines.len() {
            let (block, line) = (at / WORDS / LINES, at / WORDS);
            assert_eq!(block as usize / 16, step / (lines.len() / zones), "step {step}");
            at = chase(&lines, at, 1);
            assert!(at / WORDS / LINES != block, "line {line} is followed by one of its own block");
        }
    }

    #[test]
    fn the_seed_decides_the_order_and_how_it_was_split_does_not() {
        let of = |seed, pieces| written(&Chain::new(32, 2, seed), 32, pieces);
        assert!(of(1, 1) == of(1, 3));
        assert!(of(1, 1) != of(2, 1));
        for key in [1, 3, 0x9e37_79b9_7f4a_7c15, u64::MAX] {
            let lines: BTreeSet<u64> = (0..LINES).map(|round| line_of(key, round)).collect();
            assert_eq!(lines.len() as u64, LINES);
        }
    }
}
