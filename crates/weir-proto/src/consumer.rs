//! The consumer's half of one stream: one place of the slot table.
//!
//! ```text
//!            mint                claim               end seen + closed/cancelled sent
//!   Free ----------> Minted ----------------> Bound -------------------------------> Free
//!     ^                | expired, voided         | lane lost, consumer done            |
//!     +----------------+-------------------------+-------------------------------------+
//! ```
//!
//! Invariant: `received <= granted`; every stream ends once, after all records before its end were delivered; a slot
//! is free again only when the consumer is done with it and no record of it can come.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::{
    Amount, Batch, Extent, Mail, Time, Violation, Window,
    wire::{ClaimToken, EndCode, NodeId, RecordKind, RefusedCode, SlotRef},
};

/// Names a lane within a node for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey(pub u64);

/// How a stream ended, for its consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The producer sent everything.
    Finished,
    /// The producer let go.
    Detached,
    /// The producer's sender was dropped without an end.
    Dropped,
    /// The producer failed with this code and message.
    Failed(u32, String),
    /// The consumer cancelled.
    Cancelled,
    /// The link is gone.
    PeerLost,
    /// The ticket was not claimed in time.
    Expired,
    /// No progress for this long.
    Stalled(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    Minted(ClaimToken),
    Bound,
}

/// What a claim comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The stream is open; mark the slot dirty, the answer is a grant.
    Claimed,
    /// The same claim again; nothing changes.
    Repeated,
    /// Answer with a refusal; the owner is undisturbed.
    Refused(RefusedCode),
}

/// What became of a producer's record.
#[derive(Debug, PartialEq, Eq)]
pub enum Accept<W> {
    /// It counts. Wake the consumer, if there is a waker.
    Taken(Option<W>),
    /// The slot is free, of another generation, bound elsewhere, or its consumer is done: dropped, to be counted.
    Stale,
}

/// What the caller must do after an operation on a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct ConsumerEvent {
    /// Mark the slot in its lane's dirty map.
    pub dirty: bool,
    /// Give the index back to the allocator.
    pub freed: bool,
}

/// What a consumer finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deliver {
    /// Records are in the extent.
    Records,
    /// The stream is over; the second part says how many records were delivered.
    Ended(Ending, u64),
    /// Nothing yet.
    Pending,
}

/// What rendering a dirty slot came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rendered {
    /// A grant was written.
    pub granted: bool,
    /// Give the index back to the allocator.
    pub freed: bool,
}

/// Whether a stream waits for its producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Since this moment.
    WaitingSince(Time),
    /// No: records wait for the consumer, or the producer has no credit.
    Flowing,
    /// It has ended.
    Over,
}

#[derive(Debug, Clone, Copy, Default)]
struct Due {
    grant: bool,
    stop: bool,
    cancel: bool,
    closed: bool,
}

/// One place of the consumer's slot table; `W` wakes its consumer.
#[derive(Debug)]
pub struct ConsumerSlot<W> {
    generation: u16,
    phase: Phase,
    lane: LaneKey,
    peer: NodeId,
    window: Window,
    received: Amount,
    consumed: Amount,
    granted: Amount,
    mail: Mail,
    partial: BytesMut,
    ending: Option<Ending>,
    end_seen: bool,
    /// Our half of the close was rendered.
    closed: bool,
    /// The consumer has taken the ending or went away.
    done: bool,
    lost: bool,
    due: Due,
    waker: Option<W>,
    progress: Time,
}

impl<W> Default for ConsumerSlot<W> {
    fn default() -> Self {
        Self {
            generation: 0,
            phase: Phase::Free,
            lane: LaneKey(0),
            peer: NodeId([0; 16]),
            window: Window { records: 0, bytes: 0 },
            received: Amount::default(),
            consumed: Amount::default(),
            granted: Amount::default(),
            mail: Mail::default(),
            partial: BytesMut::new(),
            ending: None,
            end_seen: false,
            closed: false,
            done: false,
            lost: false,
            due: Due::default(),
            waker: None,
            progress: Time::ZERO,
        }
    }
}

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
            let dirty = !self.end_seen && !self.lost && !self.due.grant;
            self.due.grant |= dirty;
            return (Deliver::Records, ConsumerEvent { dirty, freed: false });
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
            dirty: self.phase == Phase::Bound,
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
            event.dirty = true;
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
        } else if self.mail.is_empty() && !self.due.grant && self.received.records < self.granted.records {
            Progress::WaitingSince(self.progress)
        } else {
            Progress::Flowing
        }
    }

    fn finish_consumer(&mut self) -> ConsumerEvent {
        self.done = true;
        self.waker = None;
        self.mail = Mail::default();
        self.partial = BytesMut::new();
        self.due.grant = false;
        self.due.stop = false;
        let mut event = ConsumerEvent::default();
        if self.phase == Phase::Bound && !self.lost && !self.closed && !self.due.cancel {
            if self.end_seen {
                self.due.closed = true;
            } else {
                self.due.cancel = true;
            }
            event.dirty = true;
        }
        event.freed = self.free_if_over();
        event
    }
}

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
                self.due.grant = true;
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
            ConsumerEvent { dirty: false, freed },
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
        (self.waker.take(), ConsumerEvent { dirty: false, freed })
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
        if due.grant && !self.end_seen && !due.cancel {
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

    /// Records handed to the consumer so far.
    pub fn delivered(&self, generation: u16) -> u64 {
        if self.is(generation) {
            self.consumed.records
        } else {
            0
        }
    }

    /// Whether the slot holds the stream of this generation.
    pub fn is(&self, generation: u16) -> bool {
        self.generation == generation && self.phase != Phase::Free
    }

    fn is_bound(&self, generation: u16, lane: LaneKey) -> bool {
        self.generation == generation && self.phase == Phase::Bound && self.lane == lane && !self.lost
    }

    fn free_if_over(&mut self) -> bool {
        let over = match self.phase {
            Phase::Free => false,
            Phase::Minted(_) => self.done,
            Phase::Bound => self.done && (self.lost || (self.end_seen && self.closed)),
        };
        if over {
            *self = Self {
                generation: self.generation,
                ..Self::default()
            };
        }
        over
    }
}

/// Compares without telling by its time how much was right.
fn same(a: ClaimToken, b: ClaimToken) -> bool {
    a.0.iter()
        .zip(b.0)
        .fold(0, |difference, (x, y)| difference | (x ^ y))
        == 0
}
