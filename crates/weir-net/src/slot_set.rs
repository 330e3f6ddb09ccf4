//! A set of slot indexes that many threads add to and one drains: the dirty map of a lane.
//!
//! 64 pages of 64 words of 64 bits, a summary bit a word and a top bit a page; pages are made on first use. Two threads
//! add the same index only one after the other: whoever adds a slot holds its lock. Invariant: an index is seen by the
//! first drain that starts after its adder returned, or by one running then.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, OnceLock};

/// Slots a set can hold.
pub(crate) const CAPACITY: u32 = 64 * 64 * 64;

/// Pages, and words a page. loom would track every word of a full page.
const FAN: usize = if cfg!(weir_loom) { 2 } else { 64 };

#[derive(Debug)]
struct Page {
    summary: AtomicU64,
    words: [AtomicU64; FAN],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SlotSet {
    top: AtomicU64,
    pages: [OnceLock<Box<Page>>; FAN],
}

impl Default for SlotSet {
    fn default() -> Self {
        Self {
            top: AtomicU64::new(0),
            pages: std::array::from_fn(|_| OnceLock::new()),
        }
    }
}

fn place(index: u32) -> (usize, usize, u64) {
    (
        (index >> 12) as usize & 63,
        (index >> 6) as usize & 63,
        1 << (index & 63),
    )
}

impl SlotSet {
    /// Adds an index below [`CAPACITY`].
    #[inline]
    pub(crate) fn insert(&self, index: u32) {
        let (page_at, word_at, bit) = place(index);
        let Some(page) = self.pages.get(page_at) else {
            return;
        };
        let page = page.get_or_init(|| {
            Box::new(Page {
                summary: AtomicU64::new(0),
                words: std::array::from_fn(|_| AtomicU64::new(0)),
            })
        });
        let Some(word) = page.words.get(word_at) else {
            return;
        };
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return; // Whoever set it also sets the bits above.
        }
        page.summary.fetch_or(1 << word_at, Ordering::AcqRel);
        self.top.fetch_or(1 << page_at, Ordering::AcqRel);
    }

    /// Takes an index out.
    pub(crate) fn remove(&self, index: u32) {
        let (page_at, word_at, bit) = place(index);
        let page = self.pages.get(page_at).and_then(OnceLock::get);
        if let Some(word) = page.and_then(|page| page.words.get(word_at)) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Takes everything out and hands it to `visit`, in order of index.
    pub(crate) fn drain(&self, mut visit: impl FnMut(u32)) {
        for page_at in bits(self.top.swap(0, Ordering::AcqRel)) {
            let Some(page) = self.pages.get(page_at as usize).and_then(OnceLock::get) else {
                continue;
            };
            for word_at in bits(page.summary.swap(0, Ordering::AcqRel)) {
                let Some(word) = page.words.get(word_at as usize) else {
                    continue;
                };
                for bit in bits(word.swap(0, Ordering::AcqRel)) {
                    visit(page_at << 12 | word_at << 6 | bit);
                }
            }
        }
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        if bit == 64 {
            return None;
        }
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_visits_each_added_index_once() {
        let set = SlotSet::default();
        let added = [0, 63, 64, 4095, 4096, 200_000, CAPACITY - 1];
        for index in added.iter().chain(&added) {
            set.insert(*index);
        }
        set.remove(64);
        let mut seen = Vec::new();
        set.drain(|index| seen.push(index));
        assert_eq!(seen, [0, 63, 4095, 4096, 200_000, CAPACITY - 1]);
        set.drain(|index| panic!("{index} again"));
    }
}
