//! The binary, run as a user runs it.

mod bench;
mod load;
mod running;
mod usage;
mod worker;
