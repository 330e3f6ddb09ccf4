//! What the consumer does with its slot: mint, take, stop, go.

use super::{ConsumerEvent, ConsumerSlot, Deliver, Ending, LaneKey, Mark, Phase, Progress};
use crate::{
    Amount, Extent, Mail, Time, Window,
    wire::{ClaimToken, NodeId},
};
use bytes::BytesMut;

/// The consumer's side: mint, take, stop, go.
impl<W> ConsumerSlot<W> {
    /// Takes the free slot for a new stream over `lane` and says its generation.
    pub fn mint(&mut self, token: ClaimToken, peer: NodeId, lane: LaneKey, window: Window, now: Time) -> u16 {
        debug_assert_eq!(self.phase, Phase::Free);
        *self = Self {
            generation: self.generation.wrapping_add(1),
            phase: Phase::Minted(token),
            lane,
            peer,
            window,
            granted: Amount::default().plus(window),
            progress: now,
            ..Self::default()
        };
        self.generation
    }

    /// Takes what is there into `extent` (which must be walked to its end) or says how the stream ended. With
    /// neither, `waker` is kept and woken once. Credit returns for all that was taken.
    pub fn take(
        &mut self,
        generation: u16,
        extent: &mut Extent,
        waker: impl FnOnce() -> W,
    ) -> (Deliver, ConsumerEvent) {
        if !self.is(generation) || self.done {
            return (
                Deliver::Ended(Ending::Cancelled, self.consumed.records),
                ConsumerEvent::default(),
            );
        }
        if !self.mail.is_empty() {
            let (records, bytes) = self.mail.take(extent);
            self.consumed.add(records, bytes);
            return (
                Deliver::Records,
                ConsumerEvent {
                    mark: self.owe_grant(),
                    freed: false,
                },
            );
        }
        if let Some(ending) = self.ending.take() {
            let delivered = self.consumed.records;
            return (Deliver::Ended(ending, delivered), self.finish_consumer());
        }
        self.waker = Some(waker());
        (Deliver::Pending, ConsumerEvent::default())
    }

    /// Asks the producer to finish with what it has.
    pub fn stop(&mut self, generation: u16) -> ConsumerEvent {
        if !self.is(generation) || self.end_seen || self.lost || self.done {
            return ConsumerEvent::default();
        }
        self.due.stop = true;
        ConsumerEvent {
            mark: (self.phase == Phase::Bound).then_some(Mark::Now),
            freed: false,
        }
    }

    /// The consumer goes, or is done: what is unread is discarded and the producer is told at once.
    pub fn go(&mut self, generation: u16) -> ConsumerEvent {
        if !self.is(generation) || self.done {
            return ConsumerEvent::default();
        }
        self.finish_consumer()
    }

    /// Ends the stream from the consumer's side with `ending` (cancelled, expired, stalled) for the consumer to find.
    /// What is unread stays readable; the producer is told at once.
    pub fn end_here(&mut self, generation: u16, ending: Ending) -> (Option<W>, ConsumerEvent) {
        if !self.is(generation) || self.done || self.ending.is_some() {
            return (None, ConsumerEvent::default());
        }
        self.ending = Some(ending);
        let mut event = ConsumerEvent::default();
        if self.phase == Phase::Bound && !self.end_seen && !self.lost {
            self.due.cancel = true;
            event.mark = Some(Mark::Now);
        } else if let Phase::Minted(_) = self.phase {
            // No longer claimable, but not free before the consumer has seen why.
            self.lost = true;
        }
        (self.waker.take(), event)
    }

    /// When the ticket was minted, while nobody has claimed it.
    pub fn minted_at(&self, generation: u16) -> Option<Time> {
        let unclaimed =
            self.is(generation) && matches!(self.phase, Phase::Minted(_)) && !self.lost && !self.done;
        unclaimed.then_some(self.progress)
    }

    /// Whether the stream waits for its producer: mailbox empty and credit out.
    pub fn progress(&self, generation: u16) -> Progress {
        if !self.is(generation) || self.done || self.ending.is_some() {
            Progress::Over
        } else if self.mail.is_empty()
            && self.due.grant.is_none()
            && self.received.records < self.granted.records
        {
            Progress::WaitingSince(self.progress)
        } else {
            Progress::Flowing
        }
    }

    /// A grant is due after records were taken; says how urgently to mark it, unless that is known.
    fn owe_grant(&mut self) -> Option<Mark> {
        let left = self.granted.records.saturating_sub(self.received.records);
        let left_bytes = self.granted.bytes.saturating_sub(self.received.bytes);
        let half_left =
            left * 2 > u64::from(self.window.records) && left_bytes * 2 > u64::from(self.window.bytes);
        let mark = Some(if half_left { Mark::Lazy } else { Mark::Soon });
        if self.end_seen || self.lost || mark <= self.due.grant {
            return None;
        }
        self.due.grant = mark;
        mark
    }

    fn finish_consumer(&mut self) -> ConsumerEvent {
        self.done = true;
        self.waker = None;
        self.mail = Mail::default();
        self.partial = BytesMut::new();
        self.due.grant = None;
        self.due.stop = false;
        let mut event = ConsumerEvent::default();
        if self.phase == Phase::Bound && !self.lost && !self.closed && !self.due.cancel {
            self.due.closed = self.end_seen;
            self.due.cancel = !self.end_seen;
            event.mark = Some(if self.end_seen { Mark::Soon } else { Mark::Now });
        }
        event.freed = self.free_if_over();
        event
    }
}
