//! Bookkeeping of calls: what is in flight each way and what has arrived of it.
//!
//! Invariant: at most [`CALLS_IN_FLIGHT`] calls and [`CALL_BYTES_IN_FLIGHT`] bytes of requests are in flight each way;
//! ids only grow and are never used again; memory is reserved for bytes that arrived, never for announced ones.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use crate::{Violation, outbox::IdHash, wire::ReplyStatus};

/// Calls in flight on a link, each way.
pub const CALLS_IN_FLIGHT: usize = 1024;
/// Bytes of requests in flight on a link, each way.
pub const CALL_BYTES_IN_FLIGHT: usize = 32 << 20;
/// Largest request and largest reply.
pub const MAX_CALL: usize = 16 << 20;

/// A call that arrived whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// Names the call in its reply.
    pub id: u64,
    /// Nobody waits for the reply; it is still owed, empty.
    pub cast: bool,
    /// Milliseconds the caller waits.
    pub deadline_ms: u32,
    /// Handler.
    pub name: String,
    /// Request.
    pub body: Bytes,
}

/// Why a call was not made or came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    /// It was never written: it did not run.
    NotSent,
    /// The link broke after it was written: it may have run.
    Unknown,
    /// Too much is in flight.
    Busy,
    /// The request is over [`MAX_CALL`].
    TooLarge,
}

/// Bytes of known total length that arrive in parts.
#[derive(Debug)]
pub(crate) struct Reassembly {
    expected: usize,
    got: BytesMut,
}

impl Reassembly {
    pub(crate) fn new(expected: u32) -> Result<Self, Violation> {
        let expected = expected as usize;
        if expected > MAX_CALL {
            Err(Violation::CallProtocol)
        } else {
            Ok(Self {
                expected,
                got: BytesMut::new(),
            })
        }
    }

    /// Adds bytes; the whole once it is there.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<Option<Bytes>, Violation> {
        let total = self.got.len() + bytes.len();
        if total > self.expected || (bytes.is_empty() && total < self.expected) {
            return Err(Violation::CallProtocol);
        }
        self.got.extend_from_slice(bytes);
        Ok((total == self.expected).then(|| std::mem::take(&mut self.got).freeze()))
    }
}

/// Calls of the peer that are being served here.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    last: u64,
    bytes: usize,
    calls: HashMap<u64, Call, IdHash>,
}

#[derive(Debug)]
struct Call {
    len: usize,
    /// No reply was given yet.
    owed: bool,
    arriving: Option<(CallRequest, Reassembly)>,
}

impl Serving {
    /// A call begins.
    pub(crate) fn start(
        &mut self,
        head: CallRequest,
        len: u32,
        bytes: &[u8],
    ) -> Result<Option<CallRequest>, Violation> {
        let id = head.id;
        if id <= self.last {
            return Err(Violation::CallProtocol);
        }
        let mut parts = Reassembly::new(len)?;
        self.last = id;
        self.bytes += len as usize;
        if self.calls.len() >= CALLS_IN_FLIGHT || self.bytes > CALL_BYTES_IN_FLIGHT {
            return Err(Violation::CallsInFlight);
        }
        let whole = parts.add(bytes)?;
        let (request, arriving) = match whole {
            Some(body) => (Some(CallRequest { body, ..head }), None),
            None => (None, Some((head, parts))),
        };
        self.calls.insert(
            id,
            Call {
                len: len as usize,
                owed: true,
                arriving,
            },
        );
        Ok(request)
    }

    /// More bytes of a call.
    pub(crate) fn part(&mut self, id: u64, bytes: &[u8]) -> Result<Option<CallRequest>, Violation> {
        let arriving = self.calls.get_mut(&id).and_then(|call| call.arriving.as_mut());
        let (_, parts) = arriving.ok_or(Violation::CallProtocol)?;
        let Some(body) = parts.add(bytes)? else {
            return Ok(None);
        };
        let done = self.calls.get_mut(&id).and_then(|call| call.arriving.take());
        Ok(done.map(|(head, _)| CallRequest { body, ..head }))
    }

    /// The reply to a call is given; says whether it was still owed. The call stays in flight until its reply has left
    /// the queue, so that a peer that reads nothing cannot pile up replies.
    pub(crate) fn replied(&mut self, id: u64) -> bool {
        let Some(call) = self.calls.get_mut(&id) else {
            return false;
        };
        call.arriving = None;
        std::mem::take(&mut call.owed)
    }

    /// The reply to a call has been staged whole.
    pub(crate) fn over(&mut self, id: u64) {
        if let Some(call) = self.calls.remove(&id) {
            self.bytes -= call.len;
        }
    }
}

/// A call made here that is not over.
#[derive(Debug)]
pub(crate) struct Pending<W> {
    pub(crate) len: usize,
    pub(crate) written: bool,
    /// Somebody still waits for the reply.
    pub(crate) awaited: bool,
    pub(crate) arriving: Option<(ReplyStatus, Reassembly)>,
    pub(crate) reply: Option<(ReplyStatus, Bytes)>,
    pub(crate) waker: Option<W>,
}
