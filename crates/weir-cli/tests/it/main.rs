//! The binary, run as a user runs it.

mod usage;
