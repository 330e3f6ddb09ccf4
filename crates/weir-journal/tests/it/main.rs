//! The journal as its users and its enemies see it: promises, crashes, damage, full disks, bad roots.

mod bytes;
mod crash;
mod faults;
mod kit;
mod mutations;
mod promises;
mod race;
