//! One error type per operation; each says who must act.

use std::{io, net::SocketAddr, time::Duration};

use crate::{ConfigError, NodeId};

/// `Node::bind` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A field of the configuration is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Io {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// `Node::connect` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not on this machine.
    #[error("{addr} is not dialled: links have no security yet, so both ends must be loopback addresses")]
    NotLoopback {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// The connection could not be made or broke during the handshake.
    #[error("cannot reach {addr}: {source}")]
    Io {
        /// The address dialled.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No verified hello within the handshake timeout.
    #[error("{addr} sent no hello within {after:?}")]
    Timeout {
        /// The address dialled.
        addr: SocketAddr,
        /// The handshake timeout.
        after: Duration,
    },
    /// The peer speaks another protocol, no common version, or refused this node.
    #[error("{addr} refused the link: {reason}")]
    Refused {
        /// The address dialled.
        addr: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// No ticket could be minted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// All slots are in use.
    #[error("all {max} slots are in use")]
    NoSlot {
        /// The table's size.
        max: u32,
    },
    /// The link to the peer is gone.
    #[error("the link to {0} is gone")]
    PeerGone(NodeId),
    /// This anchor already has a claimed or unclaimed ticket, or has ended.
    #[error("this anchor already has a ticket")]
    Attached,
    /// The operating system gave no random bytes for the claim token.
    #[error("no random bytes: {0}")]
    Random(String),
}

/// A ticket could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The bytes are no ticket of a known version.
    #[error("not a ticket: {0}")]
    Malformed(String),
    /// No link to the node that minted it.
    #[error("no link to {0}, which minted the ticket")]
    NoLink(NodeId),
    /// The ticket was minted for another node.
    #[error("the ticket was minted for {0}")]
    NotForMe(NodeId),
    /// This ticket is open here already.
    #[error("this ticket is open already")]
    AlreadyOpen,
}

/// An item was not sent and never will be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The item is larger than the stream's byte window; nothing was sent, the stream is unharmed.
    #[error("item of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// Size of the item.
        size: usize,
        /// Largest item.
        limit: usize,
    },
    /// The consumer cancelled the stream.
    #[error("the consumer cancelled the stream")]
    Cancelled,
    /// The consumer refused the ticket.
    #[error("the consumer refused the stream: {0}")]
    Refused(String),
    /// The link is gone.
    #[error("the link to the consumer is gone")]
    PeerLost,
    /// The stream was ended here before.
    #[error("the stream has ended")]
    Ended,
}

/// `Sender::try_send` did not take the item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// No credit, or an item of this stream is waiting already: keep it and try after [`crate::Sender::ready`].
    #[error("no credit")]
    Full,
    /// It never will be taken.
    #[error(transparent)]
    Closed(#[from] SendError),
}

/// A stream ended otherwise than [finished](crate::Anchor::next). Says how many records were delivered before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} after {delivered} records")]
pub struct StreamError {
    /// What happened.
    pub kind: StreamErrorKind,
    /// Records delivered to the consumer before it.
    pub delivered: u64,
}

/// How a stream ended when it did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamErrorKind {
    /// The producer let go of the stream; it may go on with another.
    #[error("the producer detached")]
    Detached,
    /// The producer dropped its sender without an end.
    #[error("the producer dropped the stream")]
    Dropped,
    /// The producer ended it with an error.
    #[error("the producer failed (code {code}): {message}")]
    Failed {
        /// The producer's code.
        code: u32,
        /// The producer's message, at most 1 KiB.
        message: String,
    },
    /// The consumer cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The link to the producer is gone.
    #[error("the link to the producer is gone")]
    PeerLost,
    /// Nobody claimed the ticket in time.
    #[error("the ticket expired unclaimed")]
    Expired,
    /// The producer made no progress in time.
    #[error("no progress within {0:?}")]
    Stalled(Duration),
}

/// A call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The link was gone before the call was written: it did not run.
    #[error("not sent: the link to the peer is gone")]
    NotSent,
    /// The link broke after the call was written: it may have run.
    #[error("the link broke: the call may have run")]
    Unknown,
    /// No reply within the deadline; the peer was told to cancel.
    #[error("no reply within {0:?}")]
    Deadline(Duration),
    /// The peer has no such handler.
    #[error("the peer has no handler named {0}")]
    NoHandler(String),
    /// The request is over 16 MiB.
    #[error("request of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// Size of the request.
        size: usize,
        /// Largest request.
        limit: usize,
    },
    /// Too much is in flight on this link.
    #[error("{calls} calls or {bytes} bytes of requests are in flight on this link")]
    Busy {
        /// Most calls in flight.
        calls: usize,
        /// Most bytes of requests in flight.
        bytes: usize,
    },
    /// The handler answered with an error.
    #[error("the handler failed: {0}")]
    Failed(String),
}
