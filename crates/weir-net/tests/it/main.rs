//! Integration tests of weir-net over real sockets.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod calls;
mod endings;
mod flow;
mod pair;
mod raw;
mod streams;
