//! The work behind the calls: a spare segment always ready, finished segments reused, stragglers carried forward,
//! settle marks flushed when nothing else goes out.
//!
//! One round does one thing, with the lock let go for every operation on a file. Failing for want of room is no
//! failure of the journal; any other failure stops it.

use std::sync::Arc;

use crate::core::{Core, Guard, wake_all};
use crate::error::Poison;
use crate::format::batch::BATCH_HEADER;
use crate::format::record::{Fields, Kind, data_frame, payload_crc};
use crate::format::segment::SegmentHeader;
use crate::fs::{FsFile, How, Step, sync};
use crate::options::{Durability, Options};
use crate::recover::replay::Located;
use crate::slots::SlotError;
use crate::state::{Admit, Claim, Refusal, Spare, State};

/// Files kept beyond the log: one spare and one to come.
const SURPLUS: usize = 2;
/// How many finished segments may wait behind a straggler.
const DEAD_BEHIND: usize = 4;

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Make,
    Stamp,
    Remove,
    Flush(u64),
    Carry(u64),
}

/// The most useful thing to do, if any.
fn due(state: &State, options: &Options) -> Option<Work> {
    if state.poison.is_some() || state.supply.busy {
        return None;
    }
    let supply = &state.supply;
    if supply.spares.is_empty() && (supply.wanted || !supply.gave_up) {
        if !supply.retired.is_empty() {
            return Some(Work::Stamp);
        }
        if state.files() < options.max_segments() {
            return Some(Work::Make);
        }
    }
    let surplus =
        supply.spares.len() + supply.retired.len() > SURPLUS || state.files() > options.max_segments();
    if surplus
        && supply
            .retired
            .front()
            .is_some_and(|(id, _)| *id < state.told_durably)
    {
        return Some(Work::Remove);
    }
    if !supply.look {
        return None;
    }
    let sealed = state.segments.len().saturating_sub(1);
    let dirty = state
        .segments
        .iter()
        .take(sealed)
        .find(|s| s.dirty.is_some() && s.last_batch <= state.written);
    if let Some(segment) = dirty {
        return Some(Work::Flush(segment.id));
    }
    straggler(state, options).map(Work::Carry)
}

/// The oldest segment, when what is open in it holds back too much.
fn straggler(state: &State, options: &Options) -> Option<u64> {
    let oldest = state
        .segments
        .front()
        .filter(|s| s.id != state.active.id && s.live > 0)?;
    if state.supply.stuck {
        return None;
    }
    let sealed = state.segments.len() - 1;
    let behind = state
        .segments
        .iter()
        .take(sealed)
        .skip(1)
        .filter(|s| s.live == 0)
        .count();
    let half_dead = oldest.live_bytes * 2 <= oldest.data();
    let crowded = state.segments.len() * 2 > options.max_segments();
    let worth_it = crowded && half_dead && state.dead_bytes() >= 2 * options.usable();
    let asked = state.supply.squeeze && state.can_squeeze(options);
    (behind >= DEAD_BEHIND || worth_it || asked).then_some(oldest.id)
}

impl Core {
    /// Tells the upkeep thread when there is something to do.
    pub(crate) fn call_upkeep(&self, state: &mut State) {
        if self.threaded() && self.due(state).is_some() {
            self.work.notify_one();
        }
    }

    /// [`due`], remembering that the segments were looked over.
    pub(crate) fn due(&self, state: &mut State) -> Option<Work> {
        let work = due(state, &self.options);
        state.supply.look &= work.is_some() || state.supply.busy;
        work
    }

    /// Does all that is due, for journals without threads.
    pub(crate) fn upkeep_inline(&self) {
        if !self.threaded() {
            while self.upkeep_round() {}
        }
    }

    /// The upkeep thread.
    pub(crate) fn upkeep_thread(&self) {
        loop {
            let mut state = self.lock();
            while self.due(&mut state).is_none() {
                if state.closing {
                    return;
                }
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if state.closing {
                return;
            }
            drop(state);
            self.upkeep_round();
        }
    }

    /// Does one thing. False when nothing was due.
    pub(crate) fn upkeep_round(&self) -> bool {
        let mut state = self.lock();
        let Some(work) = due(&state, &self.options) else {
            return false;
        };
        state.supply.busy = true;
        let done = match work {
            Work::Make => self.make(state),
            Work::Stamp => self.stamp(state),
            Work::Remove => self.remove(state),
            Work::Flush(id) => self.flush_sealed(state, id),
            Work::Carry(id) => self.carry(state, id),
        };
        let mut state = self.lock();
        state.supply.busy = false;
        state.supply.squeeze = false;
        state.supply.look = true;
        if let Err((step, cause)) = done {
            let woken = self.poison(&mut state, step, &cause);
            drop(state);
            wake_all(woken);
            return true;
        }
        let woken = self.wake_room(&mut state);
        drop(state);
        wake_all(woken);
        true
    }

    fn header(&self, state: &mut State) -> SegmentHeader {
        let id = state.supply.next_id;
        state.supply.next_id += 1;
        SegmentHeader {
            journal: self.journal,
            id,
            after: state
                .supply
                .spares
                .back()
                .map_or(state.active.id, |spare| spare.id),
            low_water: state.low_water(),
            next_seq: state.next_seq,
            next_batch: state.open.number,
            segment_bytes: self.options.segment_bytes,
            capacity: self.options.capacity,
            durability: self.options.durability,
        }
    }

    fn make<'a>(&'a self, mut state: Guard<'a>) -> Result<(), (Step, String)> {
        let header = self.header(&mut state);
        let slot = state.supply.next_slot;
        state.supply.next_slot += 1;
        state.supply.making = 1;
        drop(state);
        let made = self.slots.make(slot, &header);
        let mut state = self.lock();
        state.supply.making = 0;
        self.supplied(&mut state, made, slot, &header)
    }

    fn stamp<'a>(&'a self, mut state: Guard<'a>) -> Result<(), (Step, String)> {
        let Some((id, slot)) = state.supply.retired.pop_front() else {
            return Ok(());
        };
        let header = self.header(&mut state);
        state.supply.making = 1;
        drop(state);
        let stamped = self.slots.stamp(slot, &header);
        let mut state = self.lock();
        state.supply.making = 0;
        if matches!(stamped, Err(SlotError::NotMade(_))) {
            state.supply.retired.push_front((id, slot));
        }
        self.supplied(&mut state, stamped, slot, &header)
    }

    fn supplied(
        &self,
        state: &mut State,
        made: Result<Arc<dyn FsFile>, SlotError>,
        slot: u64,
        header: &SegmentHeader,
    ) -> Result<(), (Step, String)> {
        let refusal = match made {
            Ok(file) => {
                state.supply.spares.push_back(Spare {
                    id: header.id,
                    slot,
                    file,
                });
                state.supply.wanted = false;
                state.supply.gave_up = false;
                state.supply.stuck = false;
                return Ok(());
            }
            Err(SlotError::Failed(step, e)) => return Err((step, e.to_string())),
            Err(SlotError::NoSpace(_)) => Refusal::NoSpace,
            Err(SlotError::NotMade(e)) => Refusal::NotMade(e.to_string().into()),
        };
        // The id was not used: the next spare must not leave a gap behind it.
        state.supply.next_id = header.id;
        state.supply.refusal = state.supply.wanted.then_some(refusal);
        state.supply.wanted = false;
        state.supply.gave_up = true;
        Ok(())
    }

    fn remove<'a>(&'a self, mut state: Guard<'a>) -> Result<(), (Step, String)> {
        // A durable batch tells that it is not needed: should the name come back after a crash, it is ignored.
        let Some((_, slot)) = state.supply.retired.pop_front() else {
            return Ok(());
        };
        drop(state);
        match self.slots.remove(slot) {
            Err(SlotError::Failed(step, e)) => Err((step, e.to_string())),
            _ => Ok(()),
        }
    }

    fn flush_sealed<'a>(&'a self, mut state: Guard<'a>, id: u64) -> Result<(), (Step, String)> {
        let Some(segment) = state.segment(id) else {
            return Ok(());
        };
        let Some(file) = segment.dirty.clone() else {
            return Ok(());
        };
        let (last, told) = (segment.last_batch, segment.told);
        drop(state);
        sync(&*file, Step::Flush).map_err(|e| (Step::Flush, e.to_string()))?;
        let mut state = self.lock();
        if let Some(segment) = state.segment(id) {
            segment.dirty = None;
        }
        state.durable = state.durable.max(last);
        state.told_durably = state.told_durably.max(told);
        state.retire();
        Ok(())
    }

    /// Copies what is open in segment `id` to the end of the log and makes the copies durable.
    fn carry<'a>(&'a self, mut state: Guard<'a>, id: u64) -> Result<(), (Step, String)> {
        let told = |poison: Poison| (poison.step, poison.cause.to_string());
        state.supply.carried_in_vain += 1;
        let Some((slot, last_batch)) = state.segment(id).map(|s| (s.slot, s.last_batch)) else {
            return Ok(());
        };
        self.commit(state, last_batch).map_err(told)?;
        let open: Vec<(u64, Located)> = self.lock().index.iter().map(|(seq, at)| (*seq, *at)).collect();
        let path = self.slots.path(slot);
        let file = self
            .slots
            .fs
            .open(&path, How::Read)
            .map_err(|e| (Step::Carry, e.to_string()))?;
        let limit = self.options.batch_limit().saturating_sub(BATCH_HEADER);
        let (mut last, mut chunk, mut size) = (0, Vec::new(), 0);
        for (seq, at) in open.into_iter().filter(|(_, at)| at.segment == id) {
            let payload = self.read_payload(&*file, seq, &at);
            let payload = payload.map_err(|e| (Step::Carry, e.to_string()))?;
            let frame = data_frame(payload.len());
            if size + frame > limit {
                last = self
                    .carry_chunk(&std::mem::take(&mut chunk), size)
                    .map_err(told)?
                    .unwrap_or(last);
                size = 0;
            }
            size += frame;
            chunk.push((seq, at, payload));
        }
        last = self.carry_chunk(&chunk, size).map_err(told)?.unwrap_or(last);
        self.settle_carry(last).map_err(told)
    }

    /// Copies records that take `size` bytes into one batch, those that are still open and still there. In one go:
    /// scattered over many batches they would need more room than the reserve has. Returns the batch.
    fn carry_chunk(&self, chunk: &[(u64, Located, Vec<u8>)], size: usize) -> Result<Option<u64>, Poison> {
        let mut state = self.lock();
        loop {
            match state.admit(&self.options, size, Claim::Carry) {
                Admit::Here => break,
                Admit::Drain => {
                    let number = state.open.number;
                    state = self.drain(state, number)?;
                }
                Admit::Upkeep | Admit::Refused(_) => {
                    // No spare for the copies: a new one, or a settle, lets it be tried again.
                    state.supply.stuck = true;
                    return Ok(None);
                }
            }
        }
        let mut batch = None;
        for (seq, at, payload) in chunk {
            if state.index.get(seq) != Some(at) {
                continue;
            }
            state.release(at);
            let fields = Fields {
                seq: *seq,
                meta: at.meta,
                at_ms: at.at_ms,
            };
            let number = state.encode(Kind::Carry, &fields, payload, payload_crc(payload));
            state.counters.carried += 1;
            if let Some(segment) = state.segment(at.segment) {
                segment.hold = number;
            }
            batch = Some(number);
        }
        Ok(batch)
    }

    /// Makes copies up to batch `number` durable, so that what they replace can be given up.
    fn settle_carry(&self, number: u64) -> Result<(), Poison> {
        let state = self.lock();
        self.commit(state, number)?;
        let mut state = self.lock();
        if self.options.durability == Durability::Buffered && state.durable < number {
            self.flush_dirty(state, number)?;
            state = self.lock();
        }
        state.retire();
        Ok(())
    }
}
