//! The last items of streams that ended without credit for them.
//!
//! An engine has let go of such a stream, so one task of the host keeps its sender until the item goes, or until the
//! consumer is gone. Invariant: a stream that finished gets its last item and its end, in this order.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
};

use tokio::sync::Notify;
use weir_net::{Sender, TrySendError};

/// A stream whose last item waits for credit.
type Ending = (Sender, Vec<u8>);

/// All streams whose last item waits; at most one entry per stream of the node.
pub(super) struct Endings {
    waiting: Mutex<Vec<Ending>>,
    changed: Notify,
}

impl Endings {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ending>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> u64 {
        self.lock().len() as u64
    }

    /// Sends a stream's last item and ends it, now or when there is credit.
    pub(super) fn finish(&self, sender: Sender, item: Vec<u8>) {
        if let Some(ending) = attempt((sender, item)) {
            self.lock().push(ending);
            self.changed.notify_one();
        }
    }

    /// Ends streams as their credit returns.
    pub(super) async fn run(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        loop {
            self.changed.notified().await;
            let mut waiting = self.lock();
            let left = waiting.drain(..).filter_map(|(mut sender, item)| {
                sender.wake_on_change(&waker);
                attempt((sender, item))
            });
            *waiting = left.collect();
        }
    }
}

/// Gives the ending back if there is no credit for it.
fn attempt((mut sender, item): Ending) -> Option<Ending> {
    match sender.try_send(&item) {
        Err(TrySendError::Full) => Some((sender, item)),
        Ok(()) => {
            drop(sender.finish());
            None
        }
        Err(_) => None,
    }
}

impl Wake for Endings {
    fn wake(self: Arc<Self>) {
        self.changed.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.changed.notify_one();
    }
}
