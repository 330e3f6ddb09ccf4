//! Tests of weir-proto's public face: the codec by value, the layouts of `docs/wire.md`, and single promises of the
//! state machines. Whole worlds of them are weir-sim's.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod chunks;
mod codec;
mod document;
mod hostile;
mod noise;
mod pair;
mod promises;
