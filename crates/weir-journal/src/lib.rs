//! The durable hop journal: append a record before it is sent, settle it when its receiver has it, find after a
//! crash exactly what was not settled.
//!
//! One append is one write into a segment that was written with zeros before, plus one fdatasync that all waiting
//! writers share. Nothing it does depends on how many records there were: the folder is listed once, at open. The
//! files never take more than their cap, and what does not fit is refused before anything is written.
//!
//! It is not a database and not a queue: there is no key, no reader's position, no record larger than half a
//! segment. `docs/journal.md` has the format, the promises and their limits.
//!
//! Invariant: an acknowledged record is open until it is settled, whatever dies when.
#![forbid(unsafe_code)]

mod append;
mod batch;
mod close;
mod commit;
mod core;
mod error;
mod format;
pub mod fs;
mod inspect;
mod journal;
mod open;
mod options;
mod read;
mod record;
mod recover;
mod repair;
mod resume;
mod settle;
mod slots;
mod state;
mod stats;
mod survey;
mod upkeep;

pub use append::Append;
pub use error::{AppendError, OpenError, Poison, ReadError};
pub use inspect::{Inspection, SegmentInfo, SegmentUse, inspect};
pub use journal::Journal;
pub use open::Report;
pub use options::{Durability, Options, Upkeep};
pub use read::Recovered;
pub use record::{Meta, OpenRecord, Record};
pub use recover::replay::Tail;
pub use recover::{Damage, DamageKind};
pub use repair::{Salvage, repair, salvage};
pub use stats::{Histogram, Stats};
