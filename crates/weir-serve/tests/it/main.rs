//! Behaviour of the serving crate over real files and sockets.

mod directory;
mod frontend;
mod worker;
