//! How whoever stages on a lane and the lane's writer find each other.
//!
//! Invariant: the writer leaves its waker before it looks, and whoever changes something looks for a sleeping writer
//! after the change; so either the writer sees the change or it is woken.

use std::task::Waker;

use weir_proto::{Mark, Outbox};

use crate::{
    dirty::Dirty,
    sync::{AtomicWaker, Mutex},
};

/// What the writer found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Something is staged.
    Work,
    /// Nothing is staged, but slots are dirty, at most this urgently.
    Replies(Mark),
    /// Nothing: the next change wakes the writer.
    Nothing,
}

/// Runs `change` on the outbox and wakes the writer if it sleeps and there is work now.
#[inline]
pub(crate) fn stage<R>(
    outbox: &Mutex<Outbox<Waker>>,
    writer: &AtomicWaker,
    change: impl FnOnce(&mut Outbox<Waker>) -> R,
) -> R {
    let mut outbox = outbox.lock();
    let result = change(&mut outbox);
    let wake = outbox.must_wake();
    drop(outbox);
    if wake {
        writer.wake();
    }
    result
}

/// What is due; unless it is [`Due::Work`], the outbox knows from then on that the writer sleeps.
pub(crate) fn look(outbox: &Mutex<Outbox<Waker>>, dirty: &Dirty, writer: &AtomicWaker, waker: &Waker) -> Due {
    writer.register(waker);
    {
        let mut outbox = outbox.lock();
        if outbox.has_work() {
            return Due::Work;
        }
        outbox.sleep();
    }
    dirty.marked().map_or(Due::Nothing, Due::Replies)
}
