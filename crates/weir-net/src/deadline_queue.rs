//! All deadlines of a node: 16 parts, one task.
//!
//! The task resets the node-wide minimum before it scans; an insert lowers it and wakes the task iff it lowered it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use weir_proto::{Deadlines, Ending, Progress, Time, wire::SlotRef};

use crate::{node::NodeShared, sync::Mutex};

const PARTS: usize = 16;

/// What a deadline is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    /// An unclaimed ticket expires.
    Claim(SlotRef),
    /// A stream must make progress.
    Progress(SlotRef),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DeadlineQueue {
    parts: [Mutex<Deadlines<Deadline>>; PARTS],
    earliest: AtomicU64,
    lowered: Notify,
}

impl Default for DeadlineQueue {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            earliest: AtomicU64::new(u64::MAX),
            lowered: Notify::new(),
        }
    }
}

fn nanos(time: Time) -> u64 {
    u64::try_from(time.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

impl DeadlineQueue {
    pub(crate) fn insert(&self, now: Time, at: Time, deadline: Deadline) {
        let (Deadline::Claim(slot) | Deadline::Progress(slot)) = deadline;
        let Some(part) = self.parts.get(slot.index as usize % PARTS) else {
            return;
        };
        let look = nanos(part.lock().insert(now, at, deadline));
        if self.earliest.fetch_min(look, Ordering::AcqRel) > look {
            self.lowered.notify_one();
        }
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    /// Looks at what is due and says when to look again.
    fn scan(&self, node: &NodeShared) -> u64 {
        self.earliest.store(u64::MAX, Ordering::Release);
        let now = node.now();
        let mut next = u64::MAX;
        for part in &self.parts {
            let mut part = part.lock();
            part.look(now, |deadline, _| check(node, *deadline, now));
            next = next.min(part.next().map_or(u64::MAX, nanos));
        }
        // From now on only an insert before `next` wakes the task.
        next.min(self.earliest.fetch_min(next, Ordering::AcqRel))
    }
}

/// Runs until the node closes.
pub(crate) async fn run(node: Arc<NodeShared>) {
    loop {
        let next = node.deadlines.scan(&node);
        let wait = Duration::from_nanos(next.saturating_sub(nanos(node.now())));
        tokio::select! {
            () = node.deadlines.lowered.notified() => {}
            () = tokio::time::sleep(wait.min(Duration::from_secs(3600))) => {}
            () = node.closed() => return,
        }
    }
}

/// The entry's deadline from now on, or `None` when it leaves.
fn check(node: &NodeShared, deadline: Deadline, now: Time) -> Option<Time> {
    let (Deadline::Claim(slot) | Deadline::Progress(slot)) = deadline;
    let mut cell = node.slots.get(slot.index)?.lock();
    let (ending, again) = match deadline {
        Deadline::Claim(_) => {
            let minted = cell.slot.minted_at(slot.generation)?;
            (Ending::Expired, minted + node.config.ticket_lifetime)
        }
        Deadline::Progress(_) => {
            let timeout = cell.progress_timeout?;
            match cell.slot.progress(slot.generation) {
                Progress::Over => return None,
                Progress::Flowing => return Some(now + timeout),
                Progress::WaitingSince(since) => (Ending::Stalled(timeout), since + timeout),
            }
        }
    };
    if again > now {
        return Some(again);
    }
    let (waker, event) = cell.slot.end_here(slot.generation, ending);
    node.slots.settle(slot.index, &mut cell, event);
    drop(cell);
    if let Some(waker) = waker {
        waker.wake();
    }
    None
}
