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

mod handle;
mod lane;

use std::time::Duration;

use bytes::BytesMut;

use crate::{
    Amount, Mail, Time, Window,
    wire::{ClaimToken, NodeId, RefusedCode},
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

/// How soon what is due to the producer must leave on its own, if no batch carries it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// A grant to a sender that has more than half its window left.
    Lazy,
    /// Other grants, and the close of a stream that ended.
    Soon,
    /// A stop or a cancel.
    Now,
}

/// What the caller must do after an operation on a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct ConsumerEvent {
    /// Mark the slot in its lane's dirty map, this urgently.
    pub mark: Option<Mark>,
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
    grant: Option<Mark>,
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

impl<W> ConsumerSlot<W> {
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
