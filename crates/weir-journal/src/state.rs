//! What the journal knows in memory: where the next batch goes, which records are open, what each segment holds.
//!
//! All of it is behind one lock that is never held over a write, a sync or a read. Occupancy is counted here and
//! nowhere else; no call asks the file system how full the journal is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use crate::batch::OpenBatch;
use crate::error::{AppendError, Poison};
use crate::format::record::{Fields, Kind, settle_frame};
use crate::format::seed::Seed;
use crate::format::{DATA_START, SECTOR, batch::BATCH_HEADER, sectors};
use crate::fs::FsFile;
use crate::options::{Durability, Options};
use crate::recover::replay::Located;
use crate::stats::Counters;

/// The segment that batches go to.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) file: Arc<dyn FsFile>,
    pub(crate) id: u64,
    pub(crate) seed: Seed,
    /// Where the open batch starts.
    pub(crate) offset: u64,
}

/// A segment of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) slot: u64,
    /// Open records in it.
    pub(crate) live: u64,
    /// Bytes of them, framing included.
    pub(crate) live_bytes: u64,
    /// The offset behind its last batch.
    pub(crate) end: u64,
    /// Its last batch.
    pub(crate) last_batch: u64,
    /// The low water that batch tells.
    pub(crate) told: u64,
    /// The batch that must be durable before the segment is given up: the newest copy of a record it held.
    pub(crate) hold: u64,
    /// Written and not synced.
    pub(crate) dirty: Option<Arc<dyn FsFile>>,
}

impl Segment {
    /// Segment `id` in slot `slot`, with no batch.
    pub(crate) fn empty(id: u64, slot: u64) -> Self {
        Self {
            id,
            slot,
            live: 0,
            live_bytes: 0,
            end: DATA_START,
            last_batch: 0,
            told: 0,
            hold: 0,
            dirty: None,
        }
    }

    /// Bytes of batches in it.
    pub(crate) fn data(&self) -> u64 {
        self.end.saturating_sub(DATA_START)
    }
}

/// A segment with its next life stamped, ready to be written to.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) id: u64,
    pub(crate) slot: u64,
    pub(crate) file: Arc<dyn FsFile>,
}

/// Why the last attempt to make a spare came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    NoSpace,
    NotMade(Arc<str>),
}

/// The spares and what is known of making them.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    pub(crate) spares: VecDeque<Spare>,
    /// Segments in which nothing is open, as (id, slot), oldest first.
    pub(crate) retired: VecDeque<(u64, u64)>,
    /// A slot is being worked on.
    pub(crate) busy: bool,
    /// Some segment was filled or emptied since the segments were last looked over: no call looks at all of them
    /// unless this is set.
    pub(crate) look: bool,
    /// Files being made.
    pub(crate) making: usize,
    /// An append waits for a spare.
    pub(crate) wanted: bool,
    /// An append waits for stragglers to be moved.
    pub(crate) squeeze: bool,
    pub(crate) refusal: Option<Refusal>,
    /// The last attempt failed; nobody tries again until an append asks.
    pub(crate) gave_up: bool,
    /// A straggler could not be moved for want of a spare.
    pub(crate) stuck: bool,
    /// Segments carried since an append or a settle last changed anything.
    pub(crate) carried_in_vain: u64,
    pub(crate) next_id: u64,
    pub(crate) next_slot: u64,
}

/// Who asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A caller: may not touch the reserve.
    Append,
    /// The upkeep, to free an older segment: may use the reserve.
    Carry,
}

/// The answer.
#[derive(Debug)]
pub(crate) enum Admit {
    /// It fits the open batch.
    Here,
    /// The open batch has to go out first.
    Drain,
    /// The upkeep has to make or free a segment first.
    Upkeep,
    /// It does not fit.
    Refused(AppendError),
}

/// Everything under the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) active: Active,
    pub(crate) open: OpenBatch,
    pub(crate) spare_buffer: Vec<u8>,
    /// A batch is going out.
    pub(crate) leading: bool,
    pub(crate) chain: u32,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    /// The low water that a durable batch tells.
    pub(crate) told_durably: u64,
    pub(crate) next_seq: u64,
    pub(crate) index: BTreeMap<u64, Located>,
    /// Oldest first; the last one is the active.
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) supply: Supply,
    /// Settled seqs with their segments, not yet marked in the log.
    pub(crate) marks: Vec<(u64, u64)>,
    /// The thread that flushes marks watches.
    pub(crate) marks_armed: bool,
    pub(crate) poison: Option<Poison>,
    pub(crate) wakers: Vec<(u64, Waker)>,
    pub(crate) room_wakers: Vec<Waker>,
    /// Threads that wait for batches of either parity, and for room.
    pub(crate) waiting: [u32; 2],
    pub(crate) waiting_room: u32,
    pub(crate) closing: bool,
    pub(crate) journal: u128,
    pub(crate) counters: Counters,
}

impl State {
    /// A state with no record, whose next batch is `number`.
    pub(crate) fn starting(journal: u128, active: Active, supply: Supply, number: u64) -> Self {
        Self {
            active,
            open: OpenBatch::new(number, Vec::new()),
            spare_buffer: Vec::new(),
            leading: false,
            chain: 0,
            written: number - 1,
            durable: number - 1,
            told_durably: 0,
            next_seq: 1,
            index: BTreeMap::new(),
            segments: VecDeque::new(),
            supply,
            marks: Vec::new(),
            marks_armed: false,
            poison: None,
            wakers: Vec::new(),
            room_wakers: Vec::new(),
            waiting: [0; 2],
            waiting_room: 0,
            closing: false,
            journal,
            counters: Counters::default(),
        }
    }

    /// Whether batch `number` is as durable as an acknowledgement promises.
    pub(crate) fn done(&self, number: u64, level: Durability) -> bool {
        number
            <= if level == Durability::Data {
                self.durable
            } else {
                self.written
            }
    }

    /// The oldest segment that is needed.
    pub(crate) fn low_water(&self) -> u64 {
        self.segments.front().map_or(self.active.id, |segment| segment.id)
    }

    pub(crate) fn segment(&mut self, id: u64) -> Option<&mut Segment> {
        let at = self
            .segments
            .binary_search_by_key(&id, |segment| segment.id)
            .ok()?;
        self.segments.get_mut(at)
    }

    /// Segment files that exist or are being made.
    pub(crate) fn files(&self) -> usize {
        let supply = &self.supply;
        self.segments.len() + supply.spares.len() + supply.retired.len() + supply.making
    }

    /// Whether the active segment is the reserve, which only carries may fill.
    fn in_reserve(&self, options: &Options) -> bool {
        self.segments.len() >= options.max_segments()
    }

    /// Whether a record that takes `frame` bytes goes in now, later, or not at all.
    pub(crate) fn admit(&mut self, options: &Options, frame: usize, claim: Claim) -> Admit {
        loop {
            let with = self.open.len() + frame;
            let end = self.active.offset + sectors(with) as u64;
            let barred = claim == Claim::Append && self.in_reserve(options);
            if !barred && with <= options.batch_limit() && end <= options.segment_bytes {
                return Admit::Here;
            }
            if !self.open.is_empty() {
                return Admit::Drain;
            }
            let reserve = usize::from(claim == Claim::Append);
            if self.segments.len() + 1 + reserve > options.max_segments() {
                return self.over_the_cap(options, frame);
            }
            let Some(spare) = self.supply.spares.pop_front() else {
                return if claim == Claim::Carry {
                    Admit::Upkeep
                } else {
                    self.without_spare(options, frame)
                };
            };
            self.rotate(spare, options.durability);
        }
    }

    fn over_the_cap(&mut self, options: &Options, frame: usize) -> Admit {
        if self.dead_bytes() < options.usable() {
            return Admit::Refused(self.full(options, frame));
        }
        self.supply.squeeze = true;
        self.supply.look = true;
        Admit::Upkeep
    }

    fn without_spare(&mut self, options: &Options, frame: usize) -> Admit {
        match self.supply.refusal.take() {
            Some(Refusal::NoSpace) => Admit::Refused(AppendError::Full {
                needed: sectors(BATCH_HEADER + frame) as u64,
                free: self.free_here(options),
                capacity: options.capacity,
            }),
            Some(Refusal::NotMade(cause)) => Admit::Refused(AppendError::NoSpare { cause }),
            None => {
                self.supply.wanted = true;
                Admit::Upkeep
            }
        }
    }

    /// The refusal of a record that takes `frame` bytes.
    pub(crate) fn full(&self, options: &Options, frame: usize) -> AppendError {
        AppendError::Full {
            needed: sectors(BATCH_HEADER + frame) as u64,
            free: self.free(options),
            capacity: options.capacity,
        }
    }

    /// Bytes left for records: the rest of the active segment and the segments still allowed.
    pub(crate) fn free(&self, options: &Options) -> u64 {
        if self.in_reserve(options) {
            return 0;
        }
        let more = options.max_segments().saturating_sub(self.segments.len() + 1) as u64;
        self.free_here(options) + more * options.usable()
    }

    /// Bytes left in the active segment.
    fn free_here(&self, options: &Options) -> u64 {
        let taken = if self.open.is_empty() {
            0
        } else {
            sectors(self.open.len()) as u64
        };
        options.segment_bytes.saturating_sub(self.active.offset + taken)
    }

    /// Bytes of finished work in the segments behind the active one.
    pub(crate) fn dead_bytes(&self) -> u64 {
        let sealed = self.segments.len().saturating_sub(1);
        self.segments
            .iter()
            .take(sealed)
            .map(|s| s.data().saturating_sub(s.live_bytes))
            .sum()
    }

    /// Whether moving stragglers would free a segment.
    pub(crate) fn can_squeeze(&self, options: &Options) -> bool {
        self.segments.len() > 1
            && !self.supply.stuck
            && self.dead_bytes() >= options.usable()
            && self.supply.carried_in_vain < self.segments.len() as u64
    }

    fn rotate(&mut self, spare: Spare, level: Durability) {
        self.counters.rotations += 1;
        self.supply.look = true;
        if let Some(last) = self.segments.back_mut()
            && level == Durability::Data
        {
            last.dirty = None;
        }
        self.active.file = Arc::clone(&spare.file);
        self.active.id = spare.id;
        self.active.seed = Seed::new(self.journal, spare.id);
        self.active.offset = DATA_START;
        self.segments.push_back(Segment::empty(spare.id, spare.slot));
    }

    /// Puts a record into the open batch, which has room for it. Returns the batch's number.
    pub(crate) fn encode(&mut self, kind: Kind, fields: &Fields, payload: &[u8], crc: u32) -> u64 {
        let at = self.open.len();
        let len = self.open.push(self.active.seed, kind, fields, payload, crc);
        let located = Located {
            segment: self.active.id,
            offset: self.active.offset + at as u64,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            payload: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            batch: self.open.number,
            meta: fields.meta,
            at_ms: fields.at_ms,
        };
        self.index.insert(fields.seq, located);
        if let Some(segment) = self.segments.back_mut() {
            segment.live += 1;
            segment.live_bytes += len as u64;
        }
        self.open.number
    }

    /// Takes a record out of the list of open work. False when it is not in it.
    pub(crate) fn settle(&mut self, seq: u64) -> bool {
        let Some(located) = self.index.remove(&seq) else {
            self.counters.unknown_settles += 1;
            return false;
        };
        self.counters.settled += 1;
        self.supply.carried_in_vain = 0;
        self.supply.look |= self.supply.stuck;
        self.supply.stuck = false;
        self.release(&located);
        self.marks.push((seq, located.segment));
        self.retire();
        true
    }

    /// A record no longer lies where `located` says.
    pub(crate) fn release(&mut self, located: &Located) {
        if let Some(segment) = self.segment(located.segment) {
            segment.live = segment.live.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub(u64::from(located.len));
            let emptied = segment.live == 0;
            self.supply.look |= emptied;
        }
    }

    /// Gives up the oldest segments as long as nothing is open in them and nothing of them is on its way.
    pub(crate) fn retire(&mut self) {
        while self.segments.len() > 1
            && let Some(oldest) = self.segments.front()
            && oldest.live == 0
            && oldest.last_batch <= self.written
            && oldest.hold <= self.durable
            && let Some(oldest) = self.segments.pop_front()
        {
            self.supply.retired.push_back((oldest.id, oldest.slot));
        }
    }

    /// Goes to the next segment when settle marks wait, nothing else does, and this one is full to the brim.
    pub(crate) fn rotate_for_marks(&mut self, options: &Options) {
        let full = self.active.offset + SECTOR as u64 > options.segment_bytes;
        let allowed = self.segments.len() + 2 <= options.max_segments();
        if full
            && allowed
            && self.open.is_empty()
            && !self.marks.is_empty()
            && let Some(spare) = self.supply.spares.pop_front()
        {
            self.rotate(spare, options.durability);
        }
    }

    /// Whether a batch goes out now: records wait, or settle marks that have room.
    pub(crate) fn has_news(&self, options: &Options) -> bool {
        let end = self.active.offset + SECTOR as u64;
        let marks = !self.marks.is_empty() && !self.in_reserve(options) && end <= options.segment_bytes;
        !self.open.is_empty() || marks
    }

    /// Puts as many settle marks into the open batch, which is about to go out, as fit behind its records. Those
    /// of segments given up need none: the batch's header tells the low water.
    pub(crate) fn add_marks(&mut self, options: &Options) {
        let low_water = self.low_water();
        self.marks.retain(|(_, segment)| *segment >= low_water);
        if self.in_reserve(options) {
            return;
        }
        let room = options.segment_bytes.saturating_sub(self.active.offset);
        let room = usize::try_from(room).unwrap_or(usize::MAX) / SECTOR * SECTOR;
        let room = room.saturating_sub(self.open.len() + settle_frame(0)) / 8;
        let count = room.min(self.marks.len());
        if count > 0 {
            let seqs = self.marks.drain(..count).map(|(seq, _)| seq);
            self.open.push_settles(self.active.seed, seqs);
        }
    }
}
