//! What a lane does with a slot: claims, records, loss, and rendering what is due to the producer.

use bytes::{Bytes, BytesMut};

use super::{Accept, Claim, ConsumerEvent, ConsumerSlot, Due, Ending, LaneKey, Mark, Phase, Rendered};
use crate::{
    Batch, Time, Violation,
    wire::{ClaimToken, EndCode, NodeId, RecordKind, RefusedCode, SlotRef},
};

/// The lane's side: claims, records, loss, control.
impl<W> ConsumerSlot<W> {
    /// A producer opens the ticket.
    pub fn claim(
        &mut self,
        generation: u16,
        token: ClaimToken,
        peer: NodeId,
        lane: LaneKey,
        now: Time,
    ) -> Claim {
        if !self.is(generation) {
            return Claim::Refused(RefusedCode::Gone);
        }
        match self.phase {
            Phase::Bound if self.lane == lane && self.end_seen => Claim::Refused(RefusedCode::Gone),
            Phase::Bound if self.lane == lane => Claim::Repeated,
            Phase::Bound => Claim::Refused(RefusedCode::NotYours),
            Phase::Free => Claim::Refused(RefusedCode::Gone),
            Phase::Minted(_) if self.lost || self.done => Claim::Refused(RefusedCode::Gone),
            Phase::Minted(right) if same(right, token) && self.peer == peer && self.lane == lane => {
                self.phase = Phase::Bound;
                self.progress = now;
                self.due.grant = Some(Mark::Soon);
                Claim::Claimed
            }
            Phase::Minted(_) => Claim::Refused(RefusedCode::NotYours),
        }
    }

    /// An item (or, with `last` false, a part of one) that lies in `frame`.
    ///
    /// # Errors
    /// [`Violation::PastLimit`].
    #[inline]
    pub fn item(
        &mut self,
        generation: u16,
        lane: LaneKey,
        body: &[u8],
        frame: &Bytes,
        last: bool,
        now: Time,
    ) -> Result<Accept<W>, Violation> {
        if !self.is_bound(generation, lane) || self.end_seen {
            return Ok(Accept::Stale);
        }
        let mut received = self.received;
        received.add(u64::from(last), body.len());
        if !received.within(self.granted) {
            return Err(Violation::PastLimit);
        }
        self.received = received;
        if self.done || self.ending.is_some() {
            return Ok(Accept::Stale);
        }
        self.progress = now;
        if !last {
            self.partial.extend_from_slice(body);
            return Ok(Accept::Taken(None));
        }
        if self.partial.is_empty() {
            self.mail.push(body, frame);
        } else {
            self.partial.extend_from_slice(body);
            self.mail.push_whole(std::mem::take(&mut self.partial).freeze());
        }
        Ok(Accept::Taken(self.waker.take()))
    }

    /// The producer's end. The freed index, if any, is in the event.
    pub fn end(
        &mut self,
        generation: u16,
        lane: LaneKey,
        code: EndCode,
        failure: u32,
        message: &str,
    ) -> (Accept<W>, ConsumerEvent) {
        if !self.is_bound(generation, lane) || self.end_seen {
            return (Accept::Stale, ConsumerEvent::default());
        }
        self.end_seen = true;
        self.due = Due {
            closed: self.due.closed,
            cancel: self.due.cancel,
            ..Due::default()
        };
        if self.ending.is_none() && !self.done {
            self.ending = Some(match code {
                // An end inside an item is never a clean one.
                _ if !self.partial.is_empty() => Ending::Dropped,
                EndCode::Finished => Ending::Finished,
                EndCode::Detached => Ending::Detached,
                EndCode::Dropped => Ending::Dropped,
                EndCode::Failed => Ending::Failed(failure, message.to_owned()),
            });
        }
        self.partial = BytesMut::new();
        let freed = self.free_if_over();
        (
            Accept::Taken(self.waker.take()),
            ConsumerEvent { mark: None, freed },
        )
    }

    /// The lane is gone for good.
    pub fn lose(&mut self, lane: LaneKey) -> (Option<W>, ConsumerEvent) {
        if self.phase == Phase::Free || self.lane != lane || self.lost {
            return (None, ConsumerEvent::default());
        }
        self.lost = true;
        self.due = Due::default();
        self.partial = BytesMut::new();
        if self.ending.is_none() && !self.done {
            self.ending = Some(Ending::PeerLost);
        }
        let freed = self.free_if_over();
        (self.waker.take(), ConsumerEvent { mark: None, freed })
    }

    /// Writes what is due to the producer into `batch`. The wait for progress starts anew with a grant.
    pub fn render(&mut self, index: u32, lane: LaneKey, batch: &mut Batch, now: Time) -> Rendered {
        let mut rendered = Rendered::default();
        if self.phase != Phase::Bound || self.lane != lane || self.lost {
            return rendered;
        }
        let slot = SlotRef {
            index,
            generation: self.generation,
        };
        let due = std::mem::take(&mut self.due);
        if due.grant.is_some() && !self.end_seen && !due.cancel {
            self.granted = self.consumed.plus(self.window);
            let (records, bytes) = (
                self.granted.records.to_le_bytes(),
                self.granted.bytes.to_le_bytes(),
            );
            batch.push(slot, RecordKind::Grant, &[&records, &bytes]);
            self.progress = now;
            rendered.granted = true;
        }
        if due.stop && !self.end_seen && !due.cancel {
            batch.push(slot, RecordKind::Stop, &[]);
        }
        // Exactly one record closes our half, whichever became due first.
        if (due.cancel || due.closed) && !self.closed {
            self.closed = true;
            if due.cancel && !self.end_seen {
                batch.push(slot, RecordKind::Cancel, &[]);
            } else {
                batch.push(slot, RecordKind::Closed, &[&self.consumed.records.to_le_bytes()]);
            }
        }
        rendered.freed = self.free_if_over();
        rendered
    }
}

/// Compares without telling by its time how much was right.
fn same(a: ClaimToken, b: ClaimToken) -> bool {
    a.0.iter()
        .zip(b.0)
        .fold(0, |difference, (x, y)| difference | (x ^ y))
        == 0
}
