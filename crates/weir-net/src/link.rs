//! The session to one peer: what its reader, its writer and all handles share.
//!
//! Invariant: once `gone` is set nothing is staged, and every stream and call of the link has been told once.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use tokio::{sync::Notify, task::AbortHandle};
use weir_proto::{LaneKey, Mark, Outbox, wire::Hello};

use crate::{
    counters::LinkCounters,
    dirty::Dirty,
    node::NodeShared,
    slot_set::SlotSet,
    staging,
    sync::{AtomicWaker, Mutex},
};

/// Handlers a peer may announce.
const MAX_HANDLERS: usize = 1024;
/// How long a violation's `Bye` may take to be written.
const FAREWELL: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: Arc<NodeShared>,
    pub(crate) lane: LaneKey,
    pub(crate) peer: Hello,
    pub(crate) remote: SocketAddr,
    /// This side dialled.
    pub(crate) dialed: bool,
    pub(crate) outbox: Mutex<Outbox<Waker>>,
    pub(crate) writer: AtomicWaker,
    /// Slots with something due to the peer.
    pub(crate) dirty: Dirty,
    /// Slots minted for this link.
    pub(crate) owned: SlotSet,
    /// The last frame number taken from the peer.
    pub(crate) taken: AtomicU64,
    pub(crate) ack_due: AtomicBool,
    /// The last frame number the peer has taken, and the last one written to it.
    pub(crate) acked: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) counters: LinkCounters,
    handlers: Mutex<HashSet<String>>,
    handlers_changed: Notify,
    closing: AtomicBool,
    farewell: Mutex<Option<(u16, String)>>,
    said_bye: Notify,
    gone_set: AtomicBool,
    gone: OnceLock<String>,
    gone_notify: Notify,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Link {
    pub(crate) fn new(node: Arc<NodeShared>, peer: Hello, remote: SocketAddr, dialed: bool) -> Self {
        let lane = node.next_lane();
        Self {
            node,
            lane,
            peer,
            remote,
            dialed,
            outbox: Mutex::new(Outbox::new(lane)),
            writer: AtomicWaker::new(),
            dirty: Dirty::new(),
            owned: SlotSet::default(),
            taken: AtomicU64::new(0),
            ack_due: AtomicBool::new(false),
            acked: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            counters: LinkCounters::default(),
            handlers: Mutex::default(),
            handlers_changed: Notify::new(),
            closing: AtomicBool::new(false),
            farewell: Mutex::default(),
            said_bye: Notify::new(),
            gone_set: AtomicBool::new(false),
            gone: OnceLock::new(),
            gone_notify: Notify::new(),
            tasks: Mutex::default(),
        }
    }

    /// Runs `change` on the outbox and wakes the writer if it sleeps and there is work now.
    #[inline]
    pub(crate) fn stage<R>(&self, change: impl FnOnce(&mut Outbox<Waker>) -> R) -> R {
        staging::stage(&self.outbox, &self.writer, change)
    }

    /// The slot at `index` has something due to the peer.
    #[inline]
    pub(crate) fn mark(&self, index: u32, mark: Mark) {
        if self.dirty.mark(index, mark) {
            self.writer.wake();
        }
    }

    /// A frame was taken: an ack is due.
    pub(crate) fn took(&self, number: u64) {
        self.taken.store(number, Ordering::Release);
        if !self.ack_due.swap(true, Ordering::AcqRel) {
            self.writer.wake();
        }
    }

    pub(crate) fn keep_tasks(&self, tasks: impl IntoIterator<Item = AbortHandle>) {
        self.tasks.lock().extend(tasks);
        if self.is_gone() {
            self.abort_tasks();
        }
    }

    fn abort_tasks(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone_set.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Asks the writer to write what there is, say `Bye`, and stop.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.writer.wake();
    }

    /// Ends the link for a reason of the peer's making: says `Bye` with its code, unless the socket is stuck.
    pub(crate) async fn accuse(&self, code: u16, message: String) {
        *self.farewell.lock() = Some((code, message));
        let said = self.said_bye.notified();
        self.close();
        let _stuck = tokio::time::timeout(FAREWELL, said).await;
    }

    /// What to say when closing, and whether staged records still go out before it.
    pub(crate) fn farewell(&self) -> Option<(u16, String)> {
        self.farewell.lock().take()
    }

    /// `Bye` was written.
    pub(crate) fn said_bye(&self) {
        self.said_bye.notify_one();
    }

    /// Resolves when the link is gone; says why.
    pub(crate) async fn wait_gone(&self) -> String {
        loop {
            let notified = self.gone_notify.notified();
            if let Some(reason) = self.gone.get() {
                return reason.clone();
            }
            notified.await;
        }
    }

    /// The link ends for good. Tells every stream and call once.
    pub(crate) fn lose(self: &Arc<Self>, reason: &str) {
        if self.gone_set.swap(true, Ordering::SeqCst) {
            return;
        }
        let _ = self.gone.set(reason.to_owned());
        tracing::info!(peer = %self.peer.node, remote = %self.remote, reason, "link is gone");
        let mut wake = Vec::new();
        self.outbox.lock().lose(&mut wake);
        self.owned.drain(|index| {
            let Some(cell) = self.node.slots.get(index) else {
                return;
            };
            let mut cell = cell.lock();
            let (waker, event) = cell.slot.lose(self.lane);
            self.node.slots.settle(index, &mut cell, event);
            wake.extend(waker);
        });
        self.node.forget(self);
        wake.into_iter().for_each(Waker::wake);
        self.gone_notify.notify_waiters();
        self.handlers_changed.notify_waiters();
        self.writer.wake();
        self.abort_tasks();
    }

    /// The peer announced handlers.
    pub(crate) fn announced(&self, changes: &[u8]) -> Result<(), weir_proto::Violation> {
        let malformed = weir_proto::Violation::MalformedRecord(weir_proto::wire::RecordKind::Handlers.byte());
        let mut cursor = weir_proto::wire::Cursor::new(changes);
        let mut known = self.handlers.lock();
        while !cursor.is_empty() {
            let (Some(added), Some(len)) = (cursor.u8(), cursor.u8()) else {
                return Err(malformed);
            };
            let name = cursor
                .bytes(usize::from(len))
                .and_then(|name| std::str::from_utf8(name).ok());
            let name = name.ok_or(malformed)?;
            match added {
                0 => known.remove(name),
                1 => known.insert(name.to_owned()),
                _ => return Err(malformed),
            };
            if known.len() > MAX_HANDLERS {
                return Err(weir_proto::Violation::TooManyHandlers);
            }
        }
        drop(known);
        self.handlers_changed.notify_waiters();
        Ok(())
    }

    /// Resolves with `true` when the peer has the handler, with `false` when the link is gone.
    pub(crate) async fn wait_for_handler(&self, name: &str) -> bool {
        loop {
            let notified = self.handlers_changed.notified();
            if self.handlers.lock().contains(name) {
                return true;
            }
            if self.is_gone() {
                return false;
            }
            notified.await;
        }
    }
}
