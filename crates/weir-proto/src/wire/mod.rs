//! The byte layout: hello, frames, records, tickets. All integers are little endian.
//!
//! Parsers here take bytes from peers: they never panic, never index, and reserve nothing. `docs/wire.md` describes
//! the same layout in tables; its vectors are read by tests.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod cursor;
mod frame;
mod hello;
mod id;
mod record;
mod ticket;

pub use cursor::Cursor;
pub use frame::{FRAME_HEADER, FrameHeader, FrameKind, MAX_FRAME, MAX_PAYLOAD};
pub use hello::{Answer, Hello, HelloError, MAX_HELLO, PREFIX, RefuseCode, VERSION};
pub use id::{ClaimToken, NodeId, SlotRef};
pub use record::{
    EndCode, MAX_BODY, MAX_MESSAGE, RECORD_HEADER, Record, RecordHeader, RecordKind, Records, RefusedCode,
    ReplyStatus,
};
pub use ticket::{TICKET_LEN, Ticket, TicketError};
