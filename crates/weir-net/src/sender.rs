//! The producing end of a stream, and the ticket that opens it.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{NodeId, OpenError, SendError, TrySendError};

/// What a consumer mints so that a producer can open its stream with no round trip. A capability: whoever is the
/// named peer and holds it may open the stream once. Keep it out of logs; `Debug` shows no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {}

impl Ticket {
    /// The ticket as bytes, versioned, under 128 bytes.
    pub fn to_bytes(&self) -> Bytes {
        todo!()
    }
    /// Parses a ticket.
    ///
    /// # Errors
    /// [`OpenError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OpenError> {
        let _ = bytes;
        todo!()
    }
    /// The node that minted it.
    pub fn node(&self) -> NodeId {
        todo!()
    }
}

/// The producing end of one stream. Dropping it without an end tells the consumer that it was dropped.
#[derive(Debug)]
pub struct Sender {}

impl Sender {
    /// Sends one item, waiting for credit and room; copies it. Cancel safe: a dropped future either sent the item
    /// whole or not at all.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(&mut self, item: &[u8]) -> Result<(), SendError> {
        let _ = item;
        todo!()
    }
    /// Sends one item without copying it when it is over 4 KiB.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_bytes(&mut self, item: Bytes) -> Result<(), SendError> {
        let _ = item;
        todo!()
    }
    /// Sends one item if there is credit and no item of this stream is waiting. Never blocks.
    ///
    /// # Errors
    /// [`TrySendError::Full`] leaves the item with the caller.
    pub fn try_send(&mut self, item: &[u8]) -> Result<(), TrySendError> {
        let _ = item;
        todo!()
    }
    /// Ready when `try_send` may succeed again; an error when the stream ended.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let _ = cx;
        todo!()
    }
    /// Ends the stream well. The returned future says whether the consumer took everything; it may be dropped.
    pub fn finish(self) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        async { todo!() }
    }
    /// Ends the stream with an error; `message` is cut at 1 KiB.
    pub fn fail(self, code: u32, message: &str) {
        let _ = (code, message);
        todo!()
    }
    /// The consumer asked to stop, or cancelled.
    pub fn is_stopped(&self) -> bool {
        todo!()
    }
    /// The consumer cancelled, refused, or its link is gone.
    pub fn is_cancelled(&self) -> bool {
        todo!()
    }
    /// Wakes the context's waker once on returned credit, stop, cancel or loss.
    pub fn wake_on_change(&mut self, waker: &std::task::Waker) {
        let _ = waker;
        todo!()
    }
    /// Resolves when the consumer asks to stop or cancels.
    pub async fn stopped(&mut self) {
        todo!()
    }
    /// Resolves when the consumer cancels, refuses, or its link is gone.
    pub async fn cancelled(&mut self) {
        todo!()
    }
    /// Resolves once everything sent so far on this stream's link has been handed to the kernel, or the link is gone.
    pub fn flush(&self) -> impl Future<Output = ()> + Send + 'static {
        async { todo!() }
    }
}
