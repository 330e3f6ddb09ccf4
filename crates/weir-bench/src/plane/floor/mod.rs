//! The floor: a bare loop that stages, writes, reads, frames and wakes, and does nothing else a plane must do.
//!
//! No identity, no claim, no liveness, no resume, no deadline, no byte credit: slots are a fixed table, credit is a
//! count granted back half a window at a time. It shows what the machine asks for the movement of bytes alone, so
//! that the price of a plane's features can be read off beside it.

mod frame;
mod frontend;
mod outbox;
mod worker;

use super::arm::PlaneArm;

/// The arm `floor`.
#[derive(Debug)]
pub(super) struct Floor;

impl PlaneArm for Floor {
    /// The slot.
    type Ticket = u32;
    type Frontend = frontend::Frontend;
    type Worker = worker::Worker;
}
