//! The binary, run as a user runs it.

mod running;
mod up;
mod usage;
mod worker;
