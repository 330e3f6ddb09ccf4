//! The wire and the link protocol of weir as pure state machines.
//!
//! Bytes and [`Time`] come in, bytes and effects go out: no sockets, clock, randomness, locks or tasks. The driver
//! (`weir-net`) and the simulation (`weir-sim`) run the same code. [`wire`] is the byte layout, [`Inbox`] what a lane
//! receives, [`Outbox`] what it sends (batches, waiting items, producer streams, calls), [`ConsumerSlot`] the
//! consumer's half of one stream, [`SlotAllocator`] which slots are free, [`Liveness`] and [`Deadlines`] the time.

mod batch;
mod calls;
mod consumer;
mod credit;
mod deadlines;
mod inbox;
mod liveness;
mod mail;
mod outbox;
mod producer;
mod slots;
mod time;
mod violation;
pub mod wire;

pub use batch::{Batch, Piece};
pub use calls::{CALL_BYTES_IN_FLIGHT, CALLS_IN_FLIGHT, CallFailure, CallRequest, MAX_CALL};
pub use consumer::{
    Accept, Claim, ConsumerEvent, ConsumerSlot, Deliver, Ending, LaneKey, Mark, Progress, Rendered,
};
pub use credit::{Amount, SendCredit, Window};
pub use deadlines::Deadlines;
pub use inbox::{Inbox, Received};
pub use liveness::{Liveness, LivenessVerdict};
pub use mail::{Extent, Mail};
pub use outbox::{Enqueued, Flush, Outbox, OutboxCounters, Turn};
pub use producer::{End, OpenRefused, SendRefused, StreamFate, StreamKey};
pub use slots::SlotAllocator;
pub use time::Time;
pub use violation::Violation;
