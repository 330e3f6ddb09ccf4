//! The dirty map of a lane: the slots with something due to the peer, and the most urgent mark.
//!
//! Invariant: what was due when a slot was marked is seen by a drain that is running or by one that the urgency, raised
//! after the mark, still asks for; the marker that raises it wakes the writer.

use std::sync::atomic::Ordering;

use weir_proto::Mark;

use crate::{slot_set::SlotSet, sync::AtomicU8};

/// See the module.
#[derive(Debug)]
pub(crate) struct Dirty {
    slots: SlotSet,
    /// 0 when nothing is marked, else the most urgent mark's [`level`].
    level: AtomicU8,
}

impl Dirty {
    pub(crate) fn new() -> Self {
        Self {
            slots: SlotSet::default(),
            level: AtomicU8::new(0),
        }
    }

    /// Adds a slot, whose lock the caller holds. `true`: the caller wakes the writer.
    #[inline]
    #[must_use]
    pub(crate) fn mark(&self, index: u32, mark: Mark) -> bool {
        self.slots.insert(index);
        self.level.fetch_max(level(mark), Ordering::AcqRel) < level(mark)
    }

    /// The most urgent mark since the last drain.
    pub(crate) fn marked(&self) -> Option<Mark> {
        let known = self.level.load(Ordering::Acquire);
        [Mark::Now, Mark::Soon, Mark::Lazy]
            .into_iter()
            .find(|mark| level(*mark) == known)
    }

    /// Takes all slots out and hands them to `visit`, in order of index.
    pub(crate) fn drain(&self, visit: impl FnMut(u32)) {
        // The level first: a slot marked from here on raises it again, whether this drain still meets the slot or not.
        if self.level.swap(0, Ordering::AcqRel) > 0 {
            self.slots.drain(visit);
        }
    }
}

/// A mark as a number that grows with its urgency.
fn level(mark: Mark) -> u8 {
    match mark {
        Mark::Lazy => 1,
        Mark::Soon => 2,
        Mark::Now => 3,
    }
}
