//! Deadlines of one part of a node's queue.
//!
//! An entry is first looked at within [`FIRST_LOOK`] and then at least every [`LOOK_AGAIN`], so an entry whose object
//! ended leaves early and nobody has to cancel it.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::Time;

/// An entry is looked at within this time at first.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// And within this time after each look.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<K> {
    look: Time,
    deadline: Time,
    key: K,
}

/// A heap of deadlines with keys of the driver's choice.
#[derive(Debug)]
pub struct Deadlines<K> {
    heap: BinaryHeap<Reverse<Entry<K>>>,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }
}

impl<K: Ord> Deadlines<K> {
    /// Adds an entry; says when it will first be looked at.
    pub fn insert(&mut self, now: Time, deadline: Time, key: K) -> Time {
        let look = deadline.min(now + FIRST_LOOK);
        self.heap.push(Reverse(Entry { look, deadline, key }));
        look
    }

    /// Looks at what is due. `check` gets the key and whether its deadline passed, and says the entry's deadline from
    /// now on, or `None` when it leaves.
    pub fn look(&mut self, now: Time, mut check: impl FnMut(&K, bool) -> Option<Time>) {
        while self.heap.peek().is_some_and(|Reverse(entry)| entry.look <= now) {
            let Some(Reverse(mut entry)) = self.heap.pop() else {
                break;
            };
            let Some(deadline) = check(&entry.key, entry.deadline <= now) else {
                continue;
            };
            entry.deadline = deadline;
            // Never at once again, or a check that keeps a passed deadline would spin here.
            entry.look = deadline.min(now + LOOK_AGAIN).max(now + Duration::from_millis(1));
            self.heap.push(Reverse(entry));
        }
    }

    /// When the next entry wants to be looked at.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.look)
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no entry is held.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn an_ended_entry_leaves_with_its_first_look() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.insert(at(0), at(120_000), 7), at(1000));
        deadlines.look(at(1000), |_, passed| {
            assert!(!passed);
            None
        });
        assert!(deadlines.is_empty());
    }

    #[test]
    fn a_live_entry_is_told_once_its_deadline_passed() {
        let mut deadlines = Deadlines::default();
        deadlines.insert(at(0), at(1500), 7);
        deadlines.look(at(1000), |_, passed| (!passed).then_some(at(1500)));
        assert_eq!(deadlines.next(), Some(at(1500)));
        let mut fired = false;
        deadlines.look(at(1500), |_, passed| {
            fired = passed;
            None
        });
        assert!(fired && deadlines.is_empty());
    }
}
