//! The binary, run as a user runs it.

mod running;
mod usage;
mod worker;
