//! Where a model's weights lie in memory when it holds fewer layers than the model has.
//!
//! Layers whose tensors have the same sizes are interchangeable for memory, so they share slots and take them in turn.
//! What comes before and after the layers is there in full, apart from tables of which a token reads one row.

use crate::memory::Line;
use crate::units::Bytes;
use crate::workload::decode::{Phase, Token};
use crate::workload::{Reading, Weight};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of the embedding (and of other tables read by the row) that are resident. A guess: enough that rows drawn at
/// random are rarely the last ones again, few enough that nobody minds the memory.
pub const TABLE_ROWS: u64 = 4096;

/// Where each weight of a token lies, in lines from the start of the arena.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layout {
    /// Layers by shape.
    pub kinds: Vec<LayerKind>,
    /// What belongs to no layer: head, norms, rows of the embedding.
    pub outside_bytes: Bytes,
    /// All of it.
    pub resident_bytes: Bytes,
    /// The least that is read between two readings of the same slot.
    pub reuse_bytes: Bytes,
}

/// Layers whose weights have the same sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerKind {
    /// Layer numbers. The first takes slot 0, the next slot 1, and so on in turn.
    pub layers: Vec<u32>,
    /// Distinct layers in memory.
    pub slots: u64,
    /// Size of one.
    pub slot_bytes: Bytes,
    #[serde(skip)]
    first_line: u64,
}

impl LayerKind {
    /// The number of slots, at most `fewer` below the present one, for which a slot rests longest. When the layers are no
    /// multiple of the slots, the last turn is short, and the next token comes back to the first slots after only that many
    /// layers.
    fn evenly_used(&self, fewer: u64) -> u64 {
        let layers = self.layers.len() as u64;
        let rest = |slots: &u64| if layers.is_multiple_of(*slots) { *slots } else { layers % slots };
        let least = self.slots.saturating_sub(fewer).max(1);
        (least..=self.slots).max_by_key(rest).unwrap_or(self.slots)
    }
}

/// Lines that hold this many bytes.
pub fn lines_of(bytes: u64) -> u64 {
    bytes.div_ceil(Line::BYTES)
}

/// Lines of memory that a weight takes. Each expert, and each row of a table, starts on a line.
fn resident_lines(weight: &Weight) -> u64 {
    match weight.reading {
        Reading::All => lines_of(weight.matrix_bytes()),
        Reading::Experts { of, .. } => of * lines_of(weight.matrix_bytes()),
        Reading::OneRow => table_rows(weight) * lines_of(weight.row_bytes),
    }
}

/// Rows of a table that are resident.
pub fn table_rows(weight: &Weight) -> u64 {
    weight.rows.min(TABLE_ROWS)
}

/// Lines of a weight that one token reads: what all threads together must stream, no more and no less.
pub fn read_lines(weight: &Weight) -> u64 {
    match weight.reading {
        Reading::All => lines_of(weight.matrix_bytes()),
        Reading::Experts { picked, .. } => picked * lines_of(weight.matrix_bytes()),
        Reading::OneRow => lines_of(weight.row_bytes),
    }
}

impl Layout {
    /// Gives each kind of layer one slot, then more in proportion to its layers: until `at_least` is held, whatever it
    /// takes, and then while another slot keeps the whole within `at_most`.
    pub fn new(token: &Token, at_least: Bytes, at_most: Bytes) -> Layout {
        let mut outside = 0;
        let mut layers: BTreeMap<u32, Vec<&Weight>> = BTreeMap::new();
        for Phase { layer, weight, .. } in &token.phases {
            match (layer, weight) {
                (Some(layer), Some(weight)) => layers.entry(*layer).or_default().push(weight),
                (None, Some(weight)) => outside += resident_lines(weight),
                (_, None) => {}
            }
        }
        let mut shapes: Vec<(Vec<&Weight>, LayerKind)> = Vec::new();
        for (layer, weights) in layers {
            if let Some((_, kind)) = shapes.iter_mut().find(|(shape, _)| *shape == weights) {
                kind.layers.push(layer);
                continue;
            }
            let lines: u64 = weights.iter().map(|weight| resident_lines(weight)).sum();
            let slot_bytes = Bytes(lines * Line::BYTES);
            shapes.push((weights, LayerKind { layers: vec![layer], slots: 1, slot_bytes, first_line: 0 }));
        }
        let mut kinds: Vec<LayerKind> = shapes.into_iter().map(|(_, kind)| kind).collect();
        let outside_bytes = outside * Line::BYTES;
        let mut bytes = outside_bytes + kinds.iter().map(|kind| kind.slot_bytes.0).sum::<u64>();
        loop {
            let fits = |kind: &LayerKind| bytes < at_least.0 || bytes + kind.slot_bytes.0 <= at_most.0;
            let wanting = kinds.iter_mut().filter(|kind| kind.slots < kind.layers.len() as u64 && fits(kind));
            let share = |kind: &LayerKind| kind.slots as f64 / kind.layers.len() as f64;
            let Some(kind) = wanting.min_by(|a, b| share(a).total_cmp(&share(b))) else { break };
            kind.slots += 1;
            bytes += kind.slot_bytes.0;
        }
        for kind in &mut kinds {
            let lower = kind.evenly_used(bytes.saturating_sub(at_least.0) / kind.slot_bytes.0.max(1));
            bytes -= (kind.slots - lower) * kind.slot_bytes.0;
            kind.slots = lower;
        }
        let mut line = outside;
        for kind in &mut kinds {
            kind.first_line = line;
            line += kind.slots * kind.slot_bytes.0 / Line::BYTES;
        }
        let reuse_bytes = reuse(token, &kinds);
        Layout { kinds, outside_bytes: Bytes(outside_bytes), resident_bytes: Bytes(bytes), reuse_bytes }
    }

    /// Lines of the arena that it takes.
    pub fn lines(&self) -> u64 {
        self.resident_bytes.0 / Line::BYTES
    }

    /// For each phase of the token it was made for: the line at which its weight starts.
    pub fn places(&self, token: &Token) -> Vec<Option<u64>> {
        let mut outside = 0;
        let mut inside = (None, 0);
        let mut places = Vec::with_capacity(token.phases.len());
        for Phase { layer, weight, .. } in &token.phases {
            places.push(weight.as_ref().map(|weight| {
                let next = match layer {
                    None => &mut outside,
                    Some(layer) => {
                        if inside.0 != Some(*layer) {
                            inside = (Some(*layer), slot(&self.kinds, *layer).map_or(0, |(_, _, line)| line));
                        }
                        &mut inside.1
                    }
                };
                let place = *next;
                *next += resident_lines(weight);
                place
            }));
        }
        places
    }
}

/// The kind, the slot and its first line for a layer.
fn slot(kinds: &[LayerKind], layer: u32) -> Option<(usize, u64, u64)> {
    kinds.iter().enumerate().find_map(|(index, kind)| {
        let position = kind.layers.iter().position(|member| *member == layer)? as u64;
        let slot = position % kind.slots;
        Some((index, slot, kind.first_line + slot * kind.slot_bytes.0 / Line::BYTES))
    })
}

/// The least number of bytes read from one reading of a slot to the next, over two tokens.
fn reuse(token: &Token, kinds: &[LayerKind]) -> Bytes {
    let mut last_read: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let mut least = u64::MAX;
    let mut read = 0;
    let mut current = None;
    for phase in token.phases.iter().chain(&token.phases) {
        if phase.layer != current {
            current = phase.layer;
            if let Some((kind, slot, _)) = current.and_then(|layer| slot(kinds, layer))
                && let Some(before) = last_read.insert((kind, slot), read)
            {
                least = least.min(read - before);
            }
        }
        read += phase.weight.as_ref().map_or(0, |weight| read_lines(weight) * Line::BYTES);
    }
    Bytes(least)
}
