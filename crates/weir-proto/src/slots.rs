//! Which slots of the consumer's table are free.
//!
//! Freed indexes are used again first in, first out, and only once enough of them wait, so that a generation lasts.

use std::collections::VecDeque;

/// Freed slots that wait before the first is used again, as long as the table may grow.
const REST: usize = 1024;

/// Hands out slot indexes below `max`.
#[derive(Debug)]
pub struct SlotAllocator {
    free: VecDeque<u32>,
    next: u32,
    max: u32,
}

impl SlotAllocator {
    /// An allocator of indexes `0..max`.
    pub fn new(max: u32) -> Self {
        Self {
            free: VecDeque::new(),
            next: 0,
            max,
        }
    }

    /// A free index, if there is one.
    pub fn allocate(&mut self) -> Option<u32> {
        if self.next < self.max && self.free.len() < REST {
            self.next += 1;
            return Some(self.next - 1);
        }
        self.free.pop_front()
    }

    /// Takes an index back.
    pub fn free(&mut self, index: u32) {
        self.free.push_back(index);
    }

    /// Indexes handed out at least once; a peer may name only these.
    pub fn used(&self) -> u32 {
        self.next
    }

    /// Slots in use now.
    pub fn live(&self) -> u32 {
        self.next - u32::try_from(self.free.len()).unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_rest_before_they_are_used_again() {
        let mut slots = SlotAllocator::new(2000);
        let first = slots.allocate().unwrap();
        slots.free(first);
        assert_ne!(slots.allocate().unwrap(), first);
    }

    #[test]
    fn all_slots_can_be_in_use_at_once_and_none_twice() {
        let mut slots = SlotAllocator::new(3);
        let mut all: Vec<u32> = std::iter::from_fn(|| slots.allocate()).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert_eq!(slots.live(), 3);
        slots.free(1);
        assert_eq!(slots.live(), 2);
        assert_eq!(slots.allocate(), Some(1));
        assert_eq!(slots.allocate(), None);
    }
}
