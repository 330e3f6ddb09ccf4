//! The dirty map of a lane: the slots with something due to the peer, and a flag that says whether there are any.
//!
//! Invariant: what was due when a slot was marked is seen by a drain that is running or by one that the flag, set after
//! the mark, still asks for; the marker that sets the flag wakes the writer.

use std::sync::atomic::Ordering;

use crate::{slot_set::SlotSet, sync::AtomicBool};

/// See the module.
#[derive(Debug)]
pub(crate) struct Dirty {
    slots: SlotSet,
    any: AtomicBool,
}

impl Dirty {
    pub(crate) fn new() -> Self {
        Self {
            slots: SlotSet::default(),
            any: AtomicBool::new(false),
        }
    }

    /// Adds a slot, whose lock the caller holds. `true`: the caller wakes the writer.
    #[inline]
    #[must_use]
    pub(crate) fn mark(&self, index: u32) -> bool {
        self.slots.insert(index);
        !self.any.swap(true, Ordering::AcqRel)
    }

    /// Whether a drain would find anything.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes all slots out and hands them to `visit`, in order of index.
    pub(crate) fn drain(&self, visit: impl FnMut(u32)) {
        // The flag first: a slot marked from here on sets it again, whether this drain still meets the slot or not.
        if self.any.swap(false, Ordering::AcqRel) {
            self.slots.drain(visit);
        }
    }
}
