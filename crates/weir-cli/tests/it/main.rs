//! The binary, run as a user runs it.

mod bench;
mod frontend;
mod load;
mod model;
mod running;
mod up;
mod usage;
mod worker;
