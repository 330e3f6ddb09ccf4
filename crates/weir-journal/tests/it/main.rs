//! The journal as its users and its enemies see it: promises, crashes, damage, full disks, bad roots.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests run on 64 bits and may panic"
)]
#![expect(
    clippy::print_stdout,
    reason = "children of tests speak to their parent on it"
)]

mod bytes;
mod crash;
mod faults;
mod kill;
mod kit;
mod long;
mod mutations;
mod promises;

mod race;
mod real;
mod repair;
mod roots;
