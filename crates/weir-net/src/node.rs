//! One process's endpoint in the plane.

use std::net::SocketAddr;

use crate::{Anchor, BindError, ConnectError, Handler, NodeConfig, OpenError, Peer, Sender, Ticket};

/// 128 random bits that name a node for the life of its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 16]);

impl std::fmt::Debug for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A handle to the node; clones share it. When the last clone is dropped its links say `Bye` and end.
#[derive(Debug, Clone)]
pub struct Node {}

/// A copy of the node's counters and gauges.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// Slots in use: minted and not yet free again.
    pub live_slots: u64,
}

impl Node {
    /// Listens and starts the node's tasks on the current tokio runtime.
    ///
    /// # Errors
    /// [`BindError`] names the field or the address.
    pub async fn bind(config: NodeConfig) -> Result<Self, BindError> {
        let _ = config;
        todo!()
    }
    /// This node's id.
    pub fn id(&self) -> NodeId {
        todo!()
    }
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        todo!()
    }
    /// Dials `addr` and completes the hello. If a link to that node exists already, returns it.
    ///
    /// # Errors
    /// [`ConnectError`] names the address.
    pub async fn connect(&self, addr: SocketAddr) -> Result<Peer, ConnectError> {
        let _ = addr;
        todo!()
    }
    /// Peers with a live link now.
    pub fn peers(&self) -> Vec<Peer> {
        todo!()
    }
    /// Makes `handler` answer calls and casts to `name` on every link, present and future.
    pub fn handle(&self, name: &str, handler: impl Handler) {
        let _ = (name, handler);
        todo!()
    }
    /// A new anchor; it holds no slot until a ticket is minted.
    pub fn anchor(&self) -> Anchor {
        todo!()
    }
    /// Opens a stream to the node that minted `ticket`. No round trip: the first item may be sent at once.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was sent.
    pub fn open(&self, ticket: &Ticket) -> Result<Sender, OpenError> {
        let _ = ticket;
        todo!()
    }
    /// Resolves once everything staged so far on every link has been handed to the kernel, or its link is gone.
    pub async fn flush(&self) {
        todo!()
    }
    /// Counters and gauges now.
    pub fn metrics(&self) -> NodeMetrics {
        todo!()
    }
    /// The metrics in Prometheus text form, names `weir_*`.
    pub fn render_metrics(&self, out: &mut String) {
        let _ = out;
        todo!()
    }
    /// Says `Bye` on every link, waits up to 1 s until it is written, and stops listening.
    pub async fn close(&self) {
        todo!()
    }
}
