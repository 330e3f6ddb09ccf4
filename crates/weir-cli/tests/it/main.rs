//! The binary, run as a user runs it.

mod bench;
mod load;
mod usage;
