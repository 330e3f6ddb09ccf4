//! The receiving end of a stream.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;

use crate::{MintError, Peer, StreamError, Ticket};

/// The receiving end of one stream, owned by the consumer. Dropping it cancels the stream and tells the producer at
/// once, also when the producer is idle or has not claimed its ticket yet.
#[derive(Debug)]
pub struct Anchor {}

/// Consecutive records of one stream, in order; iterates over them without copying.
#[derive(Debug)]
pub struct Extent {}

impl Iterator for Extent {
    type Item = Bytes;
    fn next(&mut self) -> Option<Bytes> {
        todo!()
    }
}

impl Anchor {
    /// Mints the ticket that lets `peer` open this stream.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint(&mut self, peer: &Peer) -> Result<Ticket, MintError> {
        let _ = peer;
        todo!()
    }
    /// The next item. `Ok(None)`: the producer finished and everything was delivered. Cancel safe.
    ///
    /// # Errors
    /// [`StreamError`] when the stream ended otherwise, after all items that came before it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        todo!()
    }
    /// Poll form of [`next`](Self::next).
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
        let _ = cx;
        todo!()
    }
    /// Everything that is there, at least one record; returns credit for all of it.
    pub fn poll_extent(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Extent>, StreamError>> {
        let _ = cx;
        todo!()
    }
    /// Ends the stream as `Stalled` when, with an empty mailbox and credit out, no record comes for this long.
    pub fn set_progress_timeout(&mut self, timeout: Option<Duration>) {
        let _ = timeout;
        todo!()
    }
    /// Asks the producer to finish with what it has; items and the end still come.
    pub fn stop(&mut self) {
        todo!()
    }
    /// Cancels: discards what is unread and ends as `Cancelled`.
    pub fn cancel(&mut self) {
        todo!()
    }
}
