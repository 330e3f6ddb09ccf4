//! Calls made here and replies given here.

use bytes::Bytes;

use super::{
    Outbox, URGENT_ITEM,
    queue::{Fragment, Owner, Waiting},
};
use crate::{
    Batch, Violation,
    calls::{CALL_BYTES_IN_FLIGHT, CALLS_IN_FLIGHT, CallFailure, CallRequest, MAX_CALL, Pending, Reassembly},
    wire::{RecordKind, ReplyStatus, SlotRef},
};

impl<W> Outbox<W> {
    /// Makes a call (or a cast) and says its id. `name` is at most 255 bytes.
    ///
    /// # Errors
    /// [`CallFailure`]; nothing was sent.
    pub fn call(
        &mut self,
        name: &str,
        deadline_ms: u32,
        body: Bytes,
        cast: bool,
    ) -> Result<u64, CallFailure> {
        if self.lost {
            return Err(CallFailure::NotSent);
        }
        let len = body.len();
        let (Ok(total), Ok(name_len)) = (u32::try_from(len), u8::try_from(name.len())) else {
            return Err(CallFailure::TooLarge);
        };
        if len > MAX_CALL {
            return Err(CallFailure::TooLarge);
        }
        if self.calls.len() >= CALLS_IN_FLIGHT || self.call_bytes + len > CALL_BYTES_IN_FLIGHT {
            return Err(CallFailure::Busy);
        }
        self.last_call += 1;
        let id = self.last_call;
        self.call_bytes += len;
        let pending = Pending {
            len,
            written: false,
            awaited: !cast,
            arriving: None,
            reply: None,
            waker: None,
        };
        self.calls.insert(id, pending);
        let mut head = Vec::with_capacity(18 + name.len());
        head.extend_from_slice(&id.to_le_bytes());
        head.push(u8::from(cast));
        head.extend_from_slice(&deadline_ms.to_le_bytes());
        head.extend_from_slice(&total.to_le_bytes());
        head.push(name_len);
        head.extend_from_slice(name.as_bytes());
        self.submit(Owner::Call(id), head.into(), body, false);
        Ok(id)
    }

    /// The reply to a call made here, once it is there; if not, `waker` is kept.
    ///
    /// # Errors
    /// [`CallFailure`] once the link is gone.
    pub fn reply_to(
        &mut self,
        id: u64,
        waker: impl FnOnce() -> W,
    ) -> Result<Option<(ReplyStatus, Bytes)>, CallFailure> {
        let lost = self.lost;
        let Some(call) = self.calls.get_mut(&id) else {
            return Err(CallFailure::Unknown);
        };
        if let Some(reply) = call.reply.take() {
            self.forget_call(id);
            return Ok(Some(reply));
        }
        if lost {
            let failure = if call.written {
                CallFailure::Unknown
            } else {
                CallFailure::NotSent
            };
            self.forget_call(id);
            return Err(failure);
        }
        call.waker = Some(waker());
        Ok(None)
    }

    /// The caller no longer waits: a call that has not begun is taken back, another is cancelled at the peer.
    pub fn abandon_call(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if call.reply.is_some() || self.lost || self.bulk_queue.remove(Owner::Call(id), true).is_some() {
            self.forget_call(id);
            return;
        }
        call.awaited = false;
        call.waker = None;
        self.call_cancels.push(id);
    }

    fn forget_call(&mut self, id: u64) {
        if let Some(call) = self.calls.remove(&id) {
            self.call_bytes -= call.len;
        }
    }

    pub(super) fn render_call_cancels(&mut self, bulk: &mut Batch) {
        let mut cancels = std::mem::take(&mut self.call_cancels);
        cancels.retain(|id| {
            if self.bulk_queue.holds(Owner::Call(*id)) {
                return true;
            }
            if self.calls.contains_key(id) {
                let none = SlotRef {
                    index: 0,
                    generation: 0,
                };
                bulk.push(none, RecordKind::CallCancel, &[&id.to_le_bytes()]);
            }
            false
        });
        self.call_cancels = cancels;
    }

    pub(super) fn lose_calls(&mut self, wake: &mut Vec<W>) {
        self.calls.retain(|_, call| {
            wake.extend(call.waker.take());
            call.awaited
        });
        self.call_bytes = self.calls.values().map(|call| call.len).sum();
    }

    fn submit(&mut self, owner: Owner, head: Bytes, body: Bytes, urgent: bool) {
        let seq = self.next_seq();
        let mut item = Waiting {
            owner,
            head,
            body,
            at: 0,
            begun: false,
            seq,
        };
        let staged = if self.queue(urgent).is_empty() {
            self.stage_fragment(&mut item, urgent)
        } else {
            Fragment::NoRoom
        };
        if staged != Fragment::Last {
            self.queue(urgent).push(item);
        }
    }
}

/// Records of the peer.
impl<W> Outbox<W> {
    /// A reply begins. The waker is the caller's, once the reply is whole.
    ///
    /// # Errors
    /// [`Violation::CallProtocol`].
    pub fn reply_begins(
        &mut self,
        id: u64,
        status: u8,
        len: u32,
        bytes: &[u8],
    ) -> Result<Option<W>, Violation> {
        let status = ReplyStatus::from_byte(status).ok_or(Violation::CallProtocol)?;
        let call = self.calls.get_mut(&id).ok_or(Violation::CallProtocol)?;
        if call.arriving.is_some() || call.reply.is_some() {
            return Err(Violation::CallProtocol);
        }
        call.arriving = Some((status, Reassembly::new(len)?));
        self.reply_arrives(id, bytes)
    }

    /// More bytes of a reply.
    ///
    /// # Errors
    /// [`Violation::CallProtocol`].
    pub fn reply_arrives(&mut self, id: u64, bytes: &[u8]) -> Result<Option<W>, Violation> {
        let call = self.calls.get_mut(&id).ok_or(Violation::CallProtocol)?;
        let (status, parts) = call.arriving.as_mut().ok_or(Violation::CallProtocol)?;
        let status = *status;
        let Some(body) = parts.add(bytes)? else {
            return Ok(None);
        };
        call.arriving = None;
        if !call.awaited {
            self.forget_call(id);
            return Ok(None);
        }
        call.reply = Some((status, body));
        Ok(call.waker.take())
    }

    /// A call of the peer begins; the request once it is whole.
    ///
    /// # Errors
    /// [`Violation::CallProtocol`], [`Violation::CallsInFlight`].
    pub fn call_begins(
        &mut self,
        head: CallRequest,
        len: u32,
        bytes: &[u8],
    ) -> Result<Option<CallRequest>, Violation> {
        self.serving.start(head, len, bytes)
    }

    /// More bytes of a call of the peer.
    ///
    /// # Errors
    /// [`Violation::CallProtocol`].
    pub fn call_arrives(&mut self, id: u64, bytes: &[u8]) -> Result<Option<CallRequest>, Violation> {
        self.serving.part(id, bytes)
    }

    /// Answers a call of the peer, once. An answer over [`MAX_CALL`] becomes a failure.
    pub fn reply(&mut self, id: u64, status: ReplyStatus, body: Bytes) {
        if self.lost || !self.serving.replied(id) {
            return;
        }
        let (status, body) = if body.len() > MAX_CALL {
            (
                ReplyStatus::Failed,
                Bytes::from_static(b"the reply is over 16 MiB"),
            )
        } else {
            (status, body)
        };
        let mut head = Vec::with_capacity(13);
        head.extend_from_slice(&id.to_le_bytes());
        head.push(status.byte());
        head.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
        let urgent = body.len() <= URGENT_ITEM;
        self.submit(Owner::Reply(id), head.into(), body, urgent);
    }
}
