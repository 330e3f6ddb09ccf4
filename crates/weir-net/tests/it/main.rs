//! Integration tests of weir-net over real sockets.

mod calls;
mod endings;
mod flow;
mod pair;
mod raw;
mod streams;
