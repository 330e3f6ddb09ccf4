//! Keys and values of the sequences a stage holds.
//!
//! All memory of a sequence is reserved when it is opened. A windowed layer keeps a ring of its window plus one chunk of
//! rows, so that a chunk can be stored whole before its rows attend; other layers keep every position.
//! Invariant: a key lies in slot `position % slots` of its layer.

use crate::arch::Arch;
use crate::kernels::Seen;

/// Rows stored before any of them attends.
pub(crate) const CHUNK: usize = 128;

/// One layer's keys and values of one sequence, key head by key head.
#[derive(Debug)]
pub(crate) struct LayerCache {
    slots: usize,
    width: usize,
    window: Option<usize>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Slots a layer needs for a context of this length.
fn slots(arch: &Arch, layer: usize, context: usize) -> usize {
    arch.window_of(layer)
        .map_or(context, |window| context.min(window + CHUNK))
}

/// Bytes that a context of this length takes in these layers.
pub(crate) fn bytes(arch: &Arch, layers: std::ops::Range<usize>, context: usize) -> usize {
    layers
        .map(|layer| 8 * slots(arch, layer, context) * arch.key_heads * arch.head_width)
        .sum()
}

impl LayerCache {
    pub(crate) fn new(arch: &Arch, layer: usize, context: usize) -> Self {
        let slots = slots(arch, layer, context);
        let floats = slots * arch.key_heads * arch.head_width;
        Self {
            slots,
            width: arch.head_width,
            window: arch.window_of(layer),
            keys: vec![0.0; floats],
            values: vec![0.0; floats],
        }
    }

    pub(crate) fn store(&mut self, position: usize, keys: &[f32], values: &[f32]) {
        let slot = position % self.slots;
        let head = self.slots * self.width;
        for (index, (key, value)) in keys
            .chunks_exact(self.width)
            .zip(values.chunks_exact(self.width))
            .enumerate()
        {
            let begin = index * head + slot * self.width;
            self.keys[begin..begin + self.width].copy_from_slice(key);
            self.values[begin..begin + self.width].copy_from_slice(value);
        }
    }

    /// What the row at this position sees of one key head.
    pub(crate) fn seen(&self, position: usize, key_head: usize) -> Seen<'_> {
        let count = self
            .window
            .map_or(position + 1, |window| window.min(position + 1));
        let head = self.slots * self.width;
        let range = key_head * head..(key_head + 1) * head;
        Seen {
            keys: &self.keys[range.clone()],
            values: &self.values[range],
            width: self.width,
            first: (position + 1 - count) % self.slots,
            count,
        }
    }

    /// Moves to room for a longer context. A ring that is still to grow has never wrapped, so slots keep their number.
    pub(crate) fn grow(&mut self, arch: &Arch, layer: usize, context: usize) {
        let mut larger = Self::new(arch, layer, context);
        let (old, new) = (self.slots * self.width, larger.slots * self.width);
        if new <= old {
            return;
        }
        for (to, from) in larger.keys.chunks_exact_mut(new).zip(self.keys.chunks_exact(old)) {
            to[..old].copy_from_slice(from);
        }
        for (to, from) in larger
            .values
            .chunks_exact_mut(new)
            .zip(self.values.chunks_exact(old))
        {
            to[..old].copy_from_slice(from);
        }
        *self = larger;
    }

    /// Whether a sequence that has been `longest` positions long can go back to `to`: all that the next row would see must
    /// still be there.
    pub(crate) fn can_go_back(&self, longest: usize, to: usize) -> bool {
        let oldest_kept = longest.saturating_sub(self.slots);
        let oldest_needed = self.window.map_or(0, |window| (to + 1).saturating_sub(window));
        oldest_needed >= oldest_kept
    }
}
