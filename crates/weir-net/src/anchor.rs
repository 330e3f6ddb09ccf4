//! The receiving end of a stream.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use weir_proto::{
    Deliver, Ending, Window,
    wire::{ClaimToken, SlotRef},
};

pub use weir_proto::Extent;

use crate::{
    MintError, Peer, StreamError, StreamErrorKind, Ticket, deadline_queue::Deadline, link::Link,
    node::NodeShared,
};

/// The receiving end of one stream, owned by the consumer. Dropping it cancels the stream and tells the producer at
/// once, also when the producer is idle or has not claimed its ticket yet.
#[derive(Debug)]
pub struct Anchor {
    node: Arc<NodeShared>,
    state: State,
    extent: Extent,
    /// Records handed out one by one since the last extent was taken whole.
    progress_timeout: Option<Duration>,
}

#[derive(Debug)]
enum State {
    /// No ticket: no slot.
    Unattached,
    /// A slot waits for its producer or has it.
    Attached(SlotRef),
    /// Over; every further poll says the same.
    Over(Result<(), StreamError>),
}

impl Anchor {
    pub(crate) fn new(node: Arc<NodeShared>) -> Self {
        Self {
            node,
            state: State::Unattached,
            extent: Extent::default(),
            progress_timeout: None,
        }
    }

    /// Mints the ticket that lets `peer` open this stream.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint(&mut self, peer: &Peer) -> Result<Ticket, MintError> {
        let link = &peer.link;
        if !matches!(self.state, State::Unattached) {
            return Err(MintError::Attached);
        }
        if link.is_gone() {
            return Err(MintError::PeerGone(peer.id()));
        }
        let token = self
            .node
            .tokens
            .take()
            .map_err(|error| MintError::Random(error.to_string()))?;
        let slot = self.take_slot(link, token)?;
        self.state = State::Attached(slot);
        let config = &self.node.config;
        let expires = SystemTime::now() + config.ticket_lifetime;
        Ok(Ticket(weir_proto::wire::Ticket {
            node: self.node.id,
            incarnation: self.node.incarnation,
            peer: link.peer.node,
            slot,
            token,
            window_records: config.window_records,
            window_bytes: config.window_bytes,
            expires_unix_ms: expires
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        }))
    }

    fn take_slot(&self, link: &Arc<Link>, token: ClaimToken) -> Result<SlotRef, MintError> {
        let (node, config) = (&self.node, &self.node.config);
        let (index, cell) = node.slots.allocate().ok_or(MintError::NoSlot {
            max: node.slots.max(),
        })?;
        let now = node.now();
        let window = Window {
            records: config.window_records,
            bytes: config.window_bytes,
        };
        let mut cell = cell.lock();
        let generation = cell.slot.mint(token, link.peer.node, link.lane, window, now);
        cell.link = Some(link.clone());
        cell.progress_timeout = self.progress_timeout;
        link.owned.insert(index);
        // A link that ends now either finds the slot in `owned` or is found gone here.
        if link.is_gone() {
            let _nobody = cell.slot.lose(link.lane);
        }
        drop(cell);
        let slot = SlotRef { index, generation };
        node.deadlines
            .insert(now, now + config.ticket_lifetime, Deadline::Claim(slot));
        if let Some(timeout) = self.progress_timeout {
            node.deadlines
                .insert(now, now + timeout, Deadline::Progress(slot));
        }
        Ok(slot)
    }

    /// The next item. `Ok(None)`: the producer finished and everything was delivered. Cancel safe.
    ///
    /// # Errors
    /// [`StreamError`] when the stream ended otherwise, after all items that came before it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Poll form of [`next`](Self::next).
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
        loop {
            if let Some(item) = self.extent.next() {
                return Poll::Ready(Ok(Some(item)));
            }
            if !std::task::ready!(self.poll_take(cx))? {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Everything that is there, at least one record; returns credit for all of it. `Ok(None)` as in
    /// [`next`](Self::next).
    pub fn poll_extent(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Extent>, StreamError>> {
        if self.extent.remaining() == 0 && !std::task::ready!(self.poll_take(cx))? {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(Some(std::mem::take(&mut self.extent))))
    }

    /// Fills the empty extent; `false` when the producer finished.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StreamError>> {
        let slot = match &self.state {
            State::Attached(slot) => *slot,
            State::Over(how) => return Poll::Ready(how.clone().map(|()| false)),
            State::Unattached => return Poll::Pending,
        };
        let Some(cell) = self.node.slots.get(slot.index) else {
            return Poll::Pending;
        };
        let mut cell = cell.lock();
        let (deliver, event) = cell
            .slot
            .take(slot.generation, &mut self.extent, || cx.waker().clone());
        self.node.slots.settle(slot.index, &mut cell, event);
        drop(cell);
        match deliver {
            Deliver::Records => Poll::Ready(Ok(true)),
            Deliver::Pending => Poll::Pending,
            Deliver::Ended(ending, delivered) => {
                let how = how(&ending, delivered);
                self.node.counters.ended(&ending);
                self.state = State::Over(how.clone());
                Poll::Ready(how.map(|()| false))
            }
        }
    }

    /// Ends the stream as `Stalled` when, with an empty mailbox and credit out, no record comes for this long. May be
    /// set before and after the ticket is minted.
    pub fn set_progress_timeout(&mut self, timeout: Option<Duration>) {
        let before = std::mem::replace(&mut self.progress_timeout, timeout);
        let State::Attached(slot) = self.state else { return };
        if let Some(cell) = self.node.slots.get(slot.index) {
            let mut cell = cell.lock();
            if cell.slot.is(slot.generation) {
                cell.progress_timeout = timeout;
            }
        }
        // An entry that is queued for an earlier moment finds the new timeout by itself.
        if let Some(timeout) = timeout.filter(|timeout| before.is_none_or(|before| *timeout < before)) {
            let now = self.node.now();
            self.node
                .deadlines
                .insert(now, now + timeout, Deadline::Progress(slot));
        }
    }

    /// Asks the producer to finish with what it has; items and the end still come.
    pub fn stop(&mut self) {
        let State::Attached(slot) = self.state else { return };
        let Some(cell) = self.node.slots.get(slot.index) else {
            return;
        };
        let mut cell = cell.lock();
        let event = cell.slot.stop(slot.generation);
        self.node.slots.settle(slot.index, &mut cell, event);
    }

    /// Cancels: discards what is unread, tells the producer at once, and ends as `Cancelled`.
    pub fn cancel(&mut self) {
        let delivered = self.go();
        self.extent = Extent::default();
        if !matches!(self.state, State::Over(_)) {
            self.node.counters.ended(&Ending::Cancelled);
            self.state = State::Over(Err(StreamError {
                kind: StreamErrorKind::Cancelled,
                delivered,
            }));
        }
    }

    fn go(&mut self) -> u64 {
        let State::Attached(slot) = self.state else {
            return 0;
        };
        let Some(cell) = self.node.slots.get(slot.index) else {
            return 0;
        };
        let mut cell = cell.lock();
        let delivered = cell
            .slot
            .delivered(slot.generation)
            .saturating_sub(self.extent.remaining() as u64);
        let event = cell.slot.go(slot.generation);
        self.node.slots.settle(slot.index, &mut cell, event);
        delivered
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if let State::Attached(_) = self.state {
            self.go();
            self.node.counters.ended(&Ending::Cancelled);
        }
    }
}

fn how(ending: &Ending, delivered: u64) -> Result<(), StreamError> {
    let kind = match ending {
        Ending::Finished => return Ok(()),
        Ending::Detached => StreamErrorKind::Detached,
        Ending::Dropped => StreamErrorKind::Dropped,
        Ending::Failed(code, message) => StreamErrorKind::Failed {
            code: *code,
            message: message.clone(),
        },
        Ending::Cancelled => StreamErrorKind::Cancelled,
        Ending::PeerLost => StreamErrorKind::PeerLost,
        Ending::Expired => StreamErrorKind::Expired,
        Ending::Stalled(after) => StreamErrorKind::Stalled(*after),
    };
    Err(StreamError { kind, delivered })
}
