//! Tests of weir-proto's public face: the codec by value, the layouts of `docs/wire.md`, and single promises of the
//! state machines. Whole worlds of them are weir-sim's.

mod pair;
mod promises;
