//! The producer's half of one stream, as its lane's outbox keeps it.
//!
//! Invariant: once a fate is known nothing more is staged; the end is rendered once, after all items.

use crate::{
    SendCredit,
    wire::{ClaimToken, EndCode, RefusedCode, SlotRef},
};

/// A stream's place in its lane's outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub(crate) usize);

/// How a producer ends its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everything was sent.
    Finished,
    /// Another producer may go on.
    Detached,
    /// The sender was dropped.
    Dropped,
    /// Failed with code and message (cut at 1 KiB).
    Failed(u32, String),
}

impl End {
    pub(crate) fn code(&self) -> EndCode {
        match self {
            Self::Finished => EndCode::Finished,
            Self::Detached => EndCode::Detached,
            Self::Dropped => EndCode::Dropped,
            Self::Failed(..) => EndCode::Failed,
        }
    }
}

/// What became of a stream on the other side. Known at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFate {
    /// The consumer cancelled.
    Cancelled,
    /// The claim failed.
    Refused(RefusedCode),
    /// The consumer took this many records and closed.
    Closed(u64),
    /// The link is gone.
    Lost,
}

/// A ticket could not be opened on this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenRefused {
    /// It is open here.
    AlreadyOpen,
    /// The link is gone.
    Lost,
}

/// An item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendRefused {
    /// No credit.
    NoCredit,
    /// No room in the batch; it may be enqueued.
    NoRoom,
    /// An item of this stream is waiting.
    Waiting,
    /// Larger than this many bytes, the stream's byte window.
    TooLarge(usize),
    /// The stream was ended here.
    Ended,
    /// The stream is over on the other side.
    Over(StreamFate),
}

#[derive(Debug)]
pub(crate) struct ProducerStream<W> {
    pub(crate) slot: SlotRef,
    pub(crate) token: ClaimToken,
    pub(crate) credit: SendCredit,
    pub(crate) window_bytes: usize,
    /// The claim has been staged.
    pub(crate) opened: bool,
    /// An item of this stream is in a queue.
    pub(crate) waiting: bool,
    pub(crate) end: Option<End>,
    pub(crate) end_rendered: bool,
    pub(crate) stop: bool,
    pub(crate) fate: Option<StreamFate>,
    /// The turn with which its last record leaves, once a fate cut it short.
    pub(crate) leaves: u64,
    /// The sender (or a future that waits for the close) is still there.
    pub(crate) held: bool,
    pub(crate) waker: Option<W>,
}

impl<W> ProducerStream<W> {
    /// Nothing of this stream will be rendered and no handle asks for it.
    pub(crate) fn is_over(&self) -> bool {
        !self.held && !self.waiting && self.end_rendered && self.fate.is_some()
    }
}
