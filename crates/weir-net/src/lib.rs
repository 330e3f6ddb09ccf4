//! Node, links, lanes, anchors, senders and calls: the async API of the weir plane.
//!
//! A [`Node`] is one process's endpoint. It dials or accepts one link per [`Peer`]. A consumer makes an [`Anchor`],
//! mints a [`Ticket`] for a peer and hands it over, usually inside a call; the peer opens the ticket and holds a
//! [`Sender`]. Protocol rules live in `weir-proto`; this crate owns sockets, tasks, clocks and wakers.

mod anchor;
mod call;
mod config;
mod counters;
mod deadline_queue;
mod dirty;
mod error;
mod handshake;
mod link;
mod listen;
#[cfg(all(test, weir_loom))]
mod loom_models;
mod metrics;
mod node;
mod peer;
mod reader;
mod sender;
mod slot_set;
mod slot_table;
mod staging;
mod sync;
mod tokens;
mod writer;

pub use anchor::{Anchor, Extent};
pub use call::{CallContext, CallOptions, Handler};
pub use config::{ConfigError, NodeConfig};
pub use error::{
    BindError, CallError, ConnectError, MintError, OpenError, SendError, StreamError, StreamErrorKind,
    TrySendError,
};
pub use metrics::NodeMetrics;
pub use node::{Node, NodeId};
pub use peer::{Health, Peer};
pub use sender::{Sender, Ticket};
