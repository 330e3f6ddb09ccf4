//! A handle to the link to one peer.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::{CallError, CallOptions, NodeId};

/// The link to one peer. Clones share it; the link lives until it breaks or the node closes.
#[derive(Debug, Clone)]
pub struct Peer {}

/// State of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It carries streams and calls.
    Up,
    /// It is gone for good; connect again for a new one.
    Gone,
}

impl Peer {
    /// The peer's id.
    pub fn id(&self) -> NodeId {
        todo!()
    }
    /// The remote address of the link's connection.
    pub fn addr(&self) -> SocketAddr {
        todo!()
    }
    /// State of the link now.
    pub fn health(&self) -> Health {
        todo!()
    }
    /// Resolves when the link is gone; says why.
    pub async fn gone(&self) -> String {
        todo!()
    }
    /// Calls handler `name` of the peer and waits for its reply. Dropping the future cancels the call.
    ///
    /// # Errors
    /// [`CallError`] tells whether the call may have run.
    pub async fn call(&self, name: &str, body: Bytes, options: CallOptions) -> Result<Bytes, CallError> {
        let _ = (name, body, options);
        todo!()
    }
    /// Sends `body` to handler `name` of the peer; no reply.
    ///
    /// # Errors
    /// [`CallError::NotSent`] if the link is gone, [`CallError::Busy`], [`CallError::TooLarge`].
    pub fn cast(&self, name: &str, body: Bytes) -> Result<(), CallError> {
        let _ = (name, body);
        todo!()
    }
    /// Resolves when the peer has a handler of that name; costs nothing when that is known.
    ///
    /// # Errors
    /// [`CallError::NotSent`] when the link ends first.
    pub async fn wait_for_handler(&self, name: &str) -> Result<(), CallError> {
        let _ = name;
        todo!()
    }
}
