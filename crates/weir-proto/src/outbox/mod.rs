//! What a lane sends: two batches under the driver's one staging lock, the items that wait for room, the producer
//! streams, and the calls.
//!
//! Callers stage records straight into the open batches. The writer takes both batches in one [`Outbox::take`], which
//! appends the ends that are due, then moves waiting items into the fresh batches. Urgent holds opens, first records
//! and small replies; everything else is bulk. Invariant: within a stream order is kept (its first record is staged
//! urgent before any other is staged, and urgent leaves first; an end never passes a waiting item); no queue holds
//! more than one item per stream and call.

mod calls;
mod from_consumer;
mod queue;
mod streams;

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use slab::Slab;

use crate::{
    Batch, LaneKey, Violation,
    calls::{Pending, Serving},
    producer::{ProducerStream, StreamKey},
    wire::{RecordKind, RefusedCode, SlotRef},
};
use queue::Queue;

/// Bound of the urgent batch.
const URGENT: usize = 64 * 1024;
/// Bound of the bulk batch.
const BULK: usize = 256 * 1024;
/// Refusals that may wait to be written; a peer that causes more is ended.
const REFUSALS: usize = 16_384;
/// Bodies of at least this size are written from where they lie.
const UNCOPIED: usize = 4 * 1024;
/// Items and replies up to this size may go urgent.
const URGENT_ITEM: usize = 4 * 1024;

/// Hashes ids that this side chose or that name streams it opened; fast, not flood proof.
pub(crate) type IdHash = BuildHasherDefault<IdHasher>;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

/// Counted while staging and taking; rendered at scrape.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct OutboxCounters {
    /// Stream records staged.
    pub items: u64,
    /// Turns the writer took with something in them.
    pub turns: u64,
    /// Records of all kinds that those turns held.
    pub records: u64,
    /// Items that had to wait for room.
    pub waited: u64,
    /// Grants received.
    pub grants: u64,
    /// Records for streams that are over or unknown here.
    pub stale: u64,
    /// Claims of ours that were refused.
    pub refused: u64,
}

/// What the writer took: write `urgent` first, then `bulk`.
#[derive(Debug)]
pub struct Turn<W> {
    /// Opens, first records, small replies.
    pub urgent: Batch,
    /// Everything else.
    pub bulk: Batch,
    /// Whom to wake, after unlocking.
    pub wake: Vec<W>,
}

impl<W> Default for Turn<W> {
    fn default() -> Self {
        Self {
            urgent: Batch::new(URGENT),
            bulk: Batch::new(BULK),
            wake: Vec::new(),
        }
    }
}

/// Where an enqueued item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// In a batch, or already gone.
    Sent,
    /// Still waiting.
    Waiting,
}

/// A wait for everything staged before it to be written.
#[derive(Debug, Clone, Copy)]
pub struct Flush {
    before: u64,
    turn: Option<u64>,
}

/// The sending side of a lane; `W` wakes senders, callers and flushers.
#[derive(Debug)]
pub struct Outbox<W> {
    lane: LaneKey,
    urgent: Batch,
    bulk: Batch,
    urgent_queue: Queue,
    bulk_queue: Queue,
    queue_seq: u64,
    streams: Slab<ProducerStream<W>>,
    by_slot: HashMap<u64, StreamKey, IdHash>,
    opens: Vec<StreamKey>,
    ends: Vec<StreamKey>,
    /// Streams that were cut short and may have records in an unwritten batch.
    leaving: Vec<StreamKey>,
    refusals: Vec<(SlotRef, RefusedCode)>,
    calls: HashMap<u64, Pending<W>, IdHash>,
    call_bytes: usize,
    last_call: u64,
    staged_calls: Vec<u64>,
    call_cancels: Vec<u64>,
    serving: Serving,
    turns: u64,
    written: u64,
    flushers: Vec<W>,
    lost: bool,
    idle: bool,
    counters: OutboxCounters,
}

impl<W> Outbox<W> {
    /// An empty outbox.
    pub fn new(lane: LaneKey) -> Self {
        Self {
            lane,
            urgent: Batch::new(URGENT),
            bulk: Batch::new(BULK),
            urgent_queue: Queue::default(),
            bulk_queue: Queue::default(),
            queue_seq: 0,
            streams: Slab::new(),
            by_slot: HashMap::default(),
            opens: Vec::new(),
            ends: Vec::new(),
            leaving: Vec::new(),
            refusals: Vec::new(),
            calls: HashMap::default(),
            call_bytes: 0,
            last_call: 0,
            staged_calls: Vec::new(),
            call_cancels: Vec::new(),
            serving: Serving::default(),
            turns: 0,
            written: 0,
            flushers: Vec::new(),
            lost: false,
            idle: false,
            counters: OutboxCounters::default(),
        }
    }

    /// The lane it belongs to.
    pub fn lane(&self) -> LaneKey {
        self.lane
    }

    /// Counters now.
    pub fn counters(&self) -> OutboxCounters {
        self.counters
    }

    /// Producer streams that are not over.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Calls made here that are not over.
    pub fn calls_in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Items waiting for room and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        let bytes = self.urgent_queue.bytes() + self.bulk_queue.bytes();
        (self.urgent_queue.len() + self.bulk_queue.len(), bytes)
    }

    /// Whether the link is gone.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether a turn would hold anything.
    pub fn has_work(&self) -> bool {
        !self.urgent.is_empty()
            || !self.bulk.is_empty()
            || !self.opens.is_empty()
            || !self.ends.is_empty()
            || !self.refusals.is_empty()
            || !self.call_cancels.is_empty()
    }

    /// The writer found nothing to do and sleeps. The next change must wake it.
    pub fn sleep(&mut self) {
        self.idle = true;
    }

    /// Whether the writer sleeps and there is work now; the caller that gets `true` wakes it.
    #[must_use]
    pub fn must_wake(&mut self) -> bool {
        self.idle && self.has_work() && std::mem::take(&mut self.idle)
    }

    /// Moves everything that may leave into `turn`, whose batches must be empty, and refills from the queues.
    pub fn take(&mut self, turn: &mut Turn<W>) {
        self.idle = false;
        std::mem::swap(&mut self.urgent, &mut turn.urgent);
        std::mem::swap(&mut self.bulk, &mut turn.bulk);
        for id in self.staged_calls.drain(..) {
            if let Some(call) = self.calls.get_mut(&id) {
                call.written = true;
            }
        }
        self.render_opens(&mut turn.urgent);
        for (slot, code) in self.refusals.drain(..) {
            turn.urgent.push(slot, RecordKind::Refused, &[&[code.byte()]]);
        }
        self.render_ends(&mut turn.bulk);
        self.render_call_cancels(&mut turn.bulk);
        self.refill(&mut turn.wake);
        self.turns += 1;
        let records = turn.urgent.records() + turn.bulk.records();
        self.counters.turns += u64::from(records > 0);
        self.counters.records += records;
    }

    /// Between two pieces of a turn: moves what became urgent since into `turn.urgent`, which must be empty.
    pub fn take_urgent(&mut self, turn: &mut Turn<W>) {
        std::mem::swap(&mut self.urgent, &mut turn.urgent);
        self.render_opens(&mut turn.urgent);
        self.refill(&mut turn.wake);
        self.counters.records += turn.urgent.records();
    }

    /// The last turn taken has been written whole.
    pub fn turn_written(&mut self, wake: &mut Vec<W>) {
        self.written = self.turns;
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|key| self.remove_once_written(*key));
        self.leaving = leaving;
        wake.append(&mut self.flushers);
    }

    /// Begins a wait for everything staged or enqueued so far.
    pub fn flush(&self) -> Flush {
        Flush {
            before: self.queue_seq,
            turn: None,
        }
    }

    /// Whether everything before the flush has been written; if not, `waker` is kept for the next progress.
    pub fn flushed(&mut self, flush: &mut Flush, waker: impl FnOnce() -> W) -> bool {
        let settled = self.written == self.turns && !self.has_work() && self.waiting().0 == 0;
        if self.lost || settled {
            return true;
        }
        if flush.turn.is_none() && !self.urgent_queue.holds_before(flush.before) {
            let queued = self.bulk_queue.holds_before(flush.before);
            flush.turn = (!queued).then(|| self.turns + u64::from(self.has_work()));
        }
        let done = flush.turn.is_some_and(|turn| self.written >= turn);
        if !done {
            self.flushers.push(waker());
        }
        done
    }

    /// A claim failed here: the peer is to be told.
    ///
    /// # Errors
    /// [`Violation::TooManyRefusals`].
    pub fn refuse(&mut self, slot: SlotRef, code: RefusedCode) -> Result<(), Violation> {
        if self.refusals.len() >= REFUSALS {
            return Err(Violation::TooManyRefusals);
        }
        self.refusals.push((slot, code));
        Ok(())
    }

    /// Announces handlers: `(added, name)`. Names over 255 bytes are the caller's mistake and left out.
    pub fn announce<'a>(&mut self, changes: impl Iterator<Item = (bool, &'a str)>) {
        for (added, name) in changes {
            let Ok(len) = u8::try_from(name.len()) else {
                continue;
            };
            let none = SlotRef {
                index: 0,
                generation: 0,
            };
            self.urgent.push(
                none,
                RecordKind::Handlers,
                &[&[u8::from(added), len], name.as_bytes()],
            );
        }
    }

    /// The link is gone: every stream and call learns it, nothing is taken any more.
    pub fn lose(&mut self, wake: &mut Vec<W>) {
        self.lost = true;
        self.urgent.clear();
        self.bulk.clear();
        self.urgent_queue = Queue::default();
        self.bulk_queue = Queue::default();
        self.opens.clear();
        self.ends.clear();
        self.leaving.clear();
        self.refusals.clear();
        self.call_cancels.clear();
        self.staged_calls.clear();
        self.lose_streams(wake);
        self.lose_calls(wake);
        self.serving = Serving::default();
        wake.append(&mut self.flushers);
    }
}
