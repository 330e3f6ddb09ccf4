//! The producing end of a stream, and the ticket that opens it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use weir_proto::{End, Enqueued, OpenRefused, SendRefused, StreamFate, StreamKey, Window};

use crate::{NodeId, OpenError, SendError, TrySendError, link::Link, node::NodeShared};

/// What a consumer mints so that a producer can open its stream with no round trip. A capability: whoever is the
/// named peer and holds it may open the stream once. Keep it out of logs; `Debug` shows no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket(pub(crate) weir_proto::wire::Ticket);

impl Ticket {
    /// The ticket as bytes, versioned, under 128 bytes.
    pub fn to_bytes(&self) -> Bytes {
        self.0.encode().into()
    }

    /// Parses a ticket.
    ///
    /// # Errors
    /// [`OpenError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OpenError> {
        weir_proto::wire::Ticket::decode(bytes)
            .map(Self)
            .map_err(|error| OpenError::Malformed(error.to_string()))
    }

    /// The node that minted it.
    pub fn node(&self) -> NodeId {
        self.0.node
    }
}

/// The producing end of one stream. Dropping it without an end tells the consumer that it was dropped.
#[derive(Debug)]
pub struct Sender {
    link: Arc<Link>,
    key: StreamKey,
    ended: bool,
}

impl Sender {
    pub(crate) fn open(node: &NodeShared, ticket: &Ticket) -> Result<Self, OpenError> {
        let ticket = &ticket.0;
        if ticket.peer != node.id {
            return Err(OpenError::NotForMe(ticket.peer));
        }
        let link = node
            .link(ticket.node)
            .filter(|link| link.peer.incarnation == ticket.incarnation);
        let link = link.ok_or(OpenError::NoLink(ticket.node))?;
        let window = Window {
            records: ticket.window_records,
            bytes: ticket.window_bytes,
        };
        let max = Window {
            records: link.peer.max_window_records,
            bytes: link.peer.max_window_bytes,
        };
        let key = link.stage(|outbox| outbox.open(ticket.slot, ticket.token, window, max));
        match key {
            Ok(key) => Ok(Self {
                link,
                key,
                ended: false,
            }),
            Err(OpenRefused::AlreadyOpen) => Err(OpenError::AlreadyOpen),
            Err(OpenRefused::Lost) => Err(OpenError::NoLink(ticket.node)),
        }
    }

    /// Sends one item, waiting for credit and room; copies it. Cancel safe: a dropped future either sent the item
    /// whole or not at all.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(&mut self, item: &[u8]) -> Result<(), SendError> {
        match self.link.stage(|outbox| outbox.send(self.key, item)) {
            Ok(()) => Ok(()),
            Err(SendRefused::NoCredit | SendRefused::NoRoom | SendRefused::Waiting) => {
                self.send_bytes(Bytes::copy_from_slice(item)).await
            }
            Err(refused) => Err(send_error(refused, item.len())),
        }
    }

    /// Sends one item without copying it when it is over 4 KiB. Cancel safe as [`send`](Self::send); an item whose
    /// first fragment has left goes out whole whatever becomes of the future.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_bytes(&mut self, item: Bytes) -> Result<(), SendError> {
        let mut sending = Sending {
            sender: self,
            item: Some(item),
            waiting: false,
        };
        poll_fn(|cx| sending.poll(cx)).await
    }

    /// Sends one item if there is credit and no item of this stream is waiting. Never blocks.
    ///
    /// # Errors
    /// [`TrySendError::Full`] leaves the item with the caller.
    pub fn try_send(&mut self, item: &[u8]) -> Result<(), TrySendError> {
        let key = self.key;
        let sent = self.link.stage(|outbox| match outbox.send(key, item) {
            Err(SendRefused::NoRoom) => outbox
                .enqueue(key, Bytes::copy_from_slice(item), None)
                .map(|_| ()),
            other => other,
        });
        sent.map_err(|refused| match refused {
            SendRefused::NoCredit | SendRefused::NoRoom | SendRefused::Waiting => TrySendError::Full,
            other => TrySendError::Closed(send_error(other, item.len())),
        })
    }

    /// Ready when `try_send` of a small item may succeed again.
    ///
    /// # Errors
    /// [`SendError`] when the stream ended.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let mut outbox = self.link.outbox.lock();
        match outbox.ready(self.key, 0) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(SendRefused::NoCredit | SendRefused::NoRoom | SendRefused::Waiting) => {
                outbox.wake_on_change(self.key, cx.waker().clone());
                Poll::Pending
            }
            Err(refused) => Poll::Ready(Err(send_error(refused, 0))),
        }
    }

    /// Ends the stream well. The returned future says whether the consumer took everything; it may be dropped.
    pub fn finish(mut self) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        self.end(End::Finished);
        Finish { sender: self }
    }

    /// Ends the stream with an error; `message` is cut at 1 KiB.
    pub fn fail(mut self, code: u32, message: &str) {
        self.end(End::Failed(code, message.to_owned()));
    }

    /// Lets go: the consumer learns that the stream was detached, not finished.
    pub fn detach(mut self) {
        self.end(End::Detached);
    }

    /// The consumer asked to stop, or [`is_cancelled`](Self::is_cancelled).
    pub fn is_stopped(&self) -> bool {
        let (stop, fate) = self.link.outbox.lock().state(self.key);
        stop || fate.is_some()
    }

    /// The consumer cancelled, refused, or its link is gone.
    pub fn is_cancelled(&self) -> bool {
        self.link.outbox.lock().state(self.key).1.is_some()
    }

    /// Wakes `waker` once on returned credit or room, stop, cancel or loss. One waker is kept: the last.
    pub fn wake_on_change(&mut self, waker: &Waker) {
        self.link.outbox.lock().wake_on_change(self.key, waker.clone());
    }

    /// Resolves when the consumer asks to stop or cancels.
    pub async fn stopped(&mut self) {
        self.until(|stop, fate| stop || fate.is_some()).await;
    }

    /// Resolves when the consumer cancels, refuses, or its link is gone.
    pub async fn cancelled(&mut self) {
        self.until(|_, fate| fate.is_some()).await;
    }

    /// Resolves once everything sent so far on this stream's link has been handed to the kernel, or the link is gone.
    pub fn flush(&self) -> impl Future<Output = ()> + Send + 'static {
        flush(self.link.clone())
    }

    async fn until(&mut self, done: impl Fn(bool, Option<StreamFate>) -> bool) {
        poll_fn(|cx| {
            let mut outbox = self.link.outbox.lock();
            let (stop, fate) = outbox.state(self.key);
            if done(stop, fate) {
                return Poll::Ready(());
            }
            outbox.wake_on_change(self.key, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn end(&mut self, end: End) {
        if !std::mem::replace(&mut self.ended, true) {
            self.link.stage(|outbox| outbox.end(self.key, end));
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let key = self.key;
        let ended = std::mem::replace(&mut self.ended, true);
        self.link.stage(|outbox| {
            if !ended {
                outbox.end(key, End::Dropped);
            }
            outbox.release(key);
        });
    }
}

/// An item on its way; dropping it takes the item back if none of it has gone.
struct Sending<'a> {
    sender: &'a Sender,
    item: Option<Bytes>,
    waiting: bool,
}

impl Sending<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let key = self.sender.key;
        if self.waiting {
            let place = self
                .sender
                .link
                .outbox
                .lock()
                .enqueued(key, || cx.waker().clone());
            self.waiting = place == Ok(Enqueued::Waiting);
            return match place {
                Ok(Enqueued::Waiting) => Poll::Pending,
                Ok(Enqueued::Sent) => Poll::Ready(Ok(())),
                Err(fate) => Poll::Ready(Err(fate_error(fate))),
            };
        }
        let Some(item) = self.item.take() else {
            return Poll::Ready(Ok(()));
        };
        let size = item.len();
        let place = self.sender.link.stage(|outbox| match outbox.ready(key, size) {
            Err(SendRefused::NoCredit | SendRefused::Waiting) => {
                outbox.wake_on_change(key, cx.waker().clone());
                self.item = Some(item);
                Ok(None)
            }
            Err(refused) => Err(refused),
            Ok(()) => outbox.enqueue(key, item, Some(cx.waker().clone())).map(Some),
        });
        match place {
            Ok(None) => Poll::Pending,
            Ok(Some(Enqueued::Sent)) => Poll::Ready(Ok(())),
            Ok(Some(Enqueued::Waiting)) => {
                self.waiting = true;
                Poll::Pending
            }
            Err(refused) => Poll::Ready(Err(send_error(refused, size))),
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.sender.link.outbox.lock().withdraw(self.sender.key);
        }
    }
}

struct Finish {
    sender: Sender,
}

impl Future for Finish {
    type Output = Result<(), SendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (link, key) = (&self.sender.link, self.sender.key);
        let mut outbox = link.outbox.lock();
        match outbox.state(key).1 {
            Some(StreamFate::Closed(taken)) if taken == outbox.sent(key) => Poll::Ready(Ok(())),
            Some(StreamFate::Closed(_)) => Poll::Ready(Err(SendError::Cancelled)),
            Some(fate) => Poll::Ready(Err(fate_error(fate))),
            None => {
                outbox.wake_on_change(key, cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Waits until everything staged on `link` so far is in the kernel's hands.
pub(crate) async fn flush(link: Arc<Link>) {
    let mut flush = link.outbox.lock().flush();
    poll_fn(|cx| {
        let done = link.outbox.lock().flushed(&mut flush, || cx.waker().clone());
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn send_error(refused: SendRefused, size: usize) -> SendError {
    match refused {
        SendRefused::TooLarge(limit) => SendError::TooLarge { size, limit },
        SendRefused::Over(fate) => fate_error(fate),
        SendRefused::NoCredit | SendRefused::NoRoom | SendRefused::Waiting | SendRefused::Ended => {
            SendError::Ended
        }
    }
}

fn fate_error(fate: StreamFate) -> SendError {
    match fate {
        StreamFate::Lost => SendError::PeerLost,
        StreamFate::Cancelled | StreamFate::Closed(_) => SendError::Cancelled,
        StreamFate::Refused(_) => SendError::Refused(fate.refusal().unwrap_or("unknown reason").to_owned()),
    }
}
