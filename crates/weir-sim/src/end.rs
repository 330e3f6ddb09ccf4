//! One end of a link: what the driver keeps of it, without tasks and locks.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use weir_proto::{Batch, Inbox, LaneKey, Liveness, Mark, Outbox, Time, Turn};

use crate::{PartyId, agenda::EndId};

/// See the module.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) id: EndId,
    pub(crate) node: usize,
    pub(crate) peer: usize,
    pub(crate) lane: LaneKey,
    pub(crate) outbox: Outbox<PartyId>,
    pub(crate) inbox: Inbox,
    pub(crate) buf: BytesMut,
    /// Slots with something due to the peer.
    pub(crate) dirty: BTreeSet<u32>,
    /// The most urgent mark since the last drain.
    pub(crate) marked: Option<Mark>,
    /// Slots minted for this link.
    pub(crate) owned: BTreeSet<u32>,
    pub(crate) ack_due: bool,
    /// The last frame written, and the last one the peer has taken.
    pub(crate) sent: u64,
    pub(crate) acked: u64,
    pub(crate) liveness: Liveness,
    pub(crate) gone: bool,
    pub(crate) closing: bool,
    pub(crate) writer: Writer,
    /// Handlers this end announced, and those its peer did.
    pub(crate) announced: BTreeSet<String>,
    pub(crate) known: BTreeSet<String>,
    /// Calls of the peer that the application here still has to answer, by id.
    pub(crate) serving: BTreeMap<u64, usize>,
    /// Calls made here, by id.
    pub(crate) calls: BTreeMap<u64, usize>,
    /// Attempts opened here, by slot.
    pub(crate) attempts: BTreeMap<u64, Vec<usize>>,
    /// Records that have left, by slot: items begun or whole, ends, closes.
    pub(crate) left: BTreeMap<u64, Left>,
    /// Streams cancelled by the peer, whose end leaves with the next turn; those of the turn now written.
    pub(crate) cancelled: Vec<u64>,
    pub(crate) answers: Vec<u64>,
    pub(crate) call_bytes_left: BTreeMap<u64, usize>,
}

/// Records of one slot that have left an end.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) items: u64,
    pub(crate) parts: u64,
    pub(crate) opens: u64,
    pub(crate) ends: u64,
    pub(crate) closes: u64,
}

/// Where a piece's bytes were staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Control,
    Urgent,
    Bulk,
}

impl Left {
    pub(crate) fn items_and_parts(self) -> u64 {
        self.items + self.parts
    }
}

/// What a writer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing, or asleep.
    Idle,
    /// A turn was taken; its next piece is due.
    Piece,
    /// A piece is being written; `bulk`: it held bulk, so that another follows.
    Writing { bulk: bool },
    /// `Bye` is being written.
    Bye,
    /// It has said `Bye`.
    Stopped,
}

/// See [`Phase`].
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) phase: Phase,
    pub(crate) turn: Turn<PartyId>,
    pub(crate) control: Batch,
    pub(crate) next_number: u64,
    pub(crate) acked: u64,
    pub(crate) linger: Option<Time>,
    /// The urgency that `linger` knows of.
    pub(crate) lingering: Option<Mark>,
    pub(crate) ack: Option<Time>,
    pub(crate) keepalive: Time,
    /// Bytes handed to the kernel's door, not yet through it.
    pub(crate) out: BytesMut,
    pub(crate) leaving: Vec<(Class, Bytes)>,
    /// When it runs unless it is woken before.
    pub(crate) timer: Option<Time>,
    /// A run is planned.
    pub(crate) woken: bool,
}

impl End {
    pub(crate) fn new(id: EndId, node: usize, peer: usize, liveness: Liveness, keepalive: Time) -> Self {
        let lane = LaneKey(id as u64 + 1);
        Self {
            id,
            node,
            peer,
            lane,
            outbox: Outbox::new(lane),
            inbox: Inbox::default(),
            buf: BytesMut::new(),
            dirty: BTreeSet::new(),
            marked: None,
            owned: BTreeSet::new(),
            ack_due: false,
            sent: 0,
            acked: 0,
            liveness,
            gone: false,
            closing: false,
            writer: Writer {
                phase: Phase::Idle,
                turn: Turn::default(),
                control: Batch::new(usize::MAX),
                next_number: 1,
                acked: 0,
                linger: None,
                lingering: None,
                ack: None,
                keepalive,
                out: BytesMut::new(),
                leaving: Vec::new(),
                timer: None,
                woken: false,
            },
            announced: BTreeSet::new(),
            known: BTreeSet::new(),
            serving: BTreeMap::new(),
            calls: BTreeMap::new(),
            attempts: BTreeMap::new(),
            left: BTreeMap::new(),
            cancelled: Vec::new(),
            answers: Vec::new(),
            call_bytes_left: BTreeMap::new(),
        }
    }

    pub(crate) fn left(&self, slot: u64) -> Left {
        self.left.get(&slot).copied().unwrap_or_default()
    }
}
