//! The HTTP server under the frontend: listening, connections with their limits, bodies.
//!
//! It knows nothing of models or workers. Invariant: one task per connection and none per request.

mod body;
mod connections;
mod io;
mod listener;
mod read;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use body::{Body, whole};
use connections::Connection;
pub(crate) use connections::{Connections, Exchange, Open, Wish};
use io::ClientIo;
pub(crate) use io::Patience;
pub(crate) use listener::{Acceptor, listen};
pub(crate) use read::read_body;
pub(crate) use serve::{End, serve};
