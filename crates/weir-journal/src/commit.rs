//! Group commit: whoever finds no batch on its way leads the open one, the others wait for theirs.
//!
//! There is no timer: while one batch is being synced the next one fills. Nobody waits longer than the running
//! batch and its own. The lock is not held while a batch goes out.

use std::sync::Arc;
use std::time::Instant;

use crate::batch::{OpenBatch, Outgoing, Route};
use crate::core::{Core, Guard, wake_all};
use crate::error::Poison;
use crate::fs::{Step, sync};
use crate::options::Durability;
use crate::state::State;

impl Core {
    /// Returns once batch `number` is as durable as the journal promises.
    pub(crate) fn commit<'a>(&'a self, mut state: Guard<'a>, number: u64) -> Result<(), Poison> {
        loop {
            if state.done(number, self.options.durability) {
                return Ok(());
            }
            state = self.step(state, number)?;
        }
    }

    /// Returns once batch `number` is no longer the open one.
    pub(crate) fn drain<'a>(&'a self, mut state: Guard<'a>, number: u64) -> Result<Guard<'a>, Poison> {
        while state.open.number <= number {
            state = self.step(state, number)?;
        }
        Ok(state)
    }

    /// Leads if nobody does, else waits for news of batch `number`.
    fn step<'a>(&'a self, state: Guard<'a>, number: u64) -> Result<Guard<'a>, Poison> {
        if let Some(poison) = &state.poison {
            return Err(poison.clone());
        }
        Ok(if state.leading {
            self.wait_turn(state, number)
        } else {
            self.lead(state)
        })
    }

    /// Sends the open batch out. Nobody may be leading. Does nothing when there is nothing to send.
    pub(crate) fn lead<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        let Some(mut batch) = self.take(&mut state) else {
            return state;
        };
        let (number, told, segment) = (batch.number, batch.low_water(), batch.segment());
        drop(state);
        let watch = Watch { core: self, number };
        let started = Instant::now();
        let sent = batch.send(self.options.durability);
        let took = started.elapsed();
        std::mem::forget(watch);
        let mut state = self.lock();
        state.leading = false;
        state.spare_buffer = batch.buffer;
        let woken = match sent {
            Ok(chain) => {
                state.chain = chain;
                state.written = number;
                if self.options.durability == Durability::Data {
                    state.durable = number;
                    state.told_durably = told;
                }
                state.counters.batch_records.add(u64::from(batch.count));
                state.counters.write_us.add_micros(took);
                state.supply.look |= segment != state.active.id;
                state.retire();
                self.wake(&mut state, number)
            }
            Err((step, e)) => self.poison(&mut state, step, &e.to_string()),
        };
        self.call_upkeep(&mut state);
        if woken.is_empty() {
            return state;
        }
        drop(state);
        wake_all(woken);
        self.lock()
    }

    /// Takes the open batch, with the settle marks that fit, and opens the next one behind it.
    fn take(&self, state: &mut State) -> Option<Outgoing> {
        state.rotate_for_marks(&self.options);
        if !state.has_news(&self.options) {
            return None;
        }
        state.add_marks(&self.options);
        let next = state.open.number + 1;
        let fresh = OpenBatch::new(next, std::mem::take(&mut state.spare_buffer));
        let batch = std::mem::replace(&mut state.open, fresh);
        let route = Route {
            file: Arc::clone(&state.active.file),
            offset: state.active.offset,
            seed: state.active.seed,
            segment: state.active.id,
            chain: state.chain,
            durable: state.durable,
            low_water: state.low_water(),
            next_seq: state.next_seq,
        };
        let batch = Outgoing::new(batch, route);
        state.active.offset += batch.space();
        let (offset, file) = (state.active.offset, Arc::clone(&state.active.file));
        if let Some(segment) = state.segments.back_mut() {
            segment.end = offset;
            segment.last_batch = batch.number;
            segment.told = batch.low_water();
            if self.options.durability == Durability::Buffered {
                segment.dirty = Some(file);
            }
        }
        state.leading = true;
        Some(batch)
    }

    /// Makes everything durable that was appended or settled before the call.
    pub(crate) fn sync_all(&self) -> Result<(), Poison> {
        let mut state = self.lock();
        let number = if state.open.is_empty() && state.marks.is_empty() {
            state.open.number - 1
        } else {
            state.open.number
        };
        while state.written < number {
            state.rotate_for_marks(&self.options);
            if !state.leading && !state.has_news(&self.options) {
                break;
            }
            state = self.step(state, number)?;
        }
        if let Some(poison) = &state.poison {
            return Err(poison.clone());
        }
        let target = state.written;
        self.flush_dirty(state, target)
    }

    /// Syncs the segments written with [`Durability::Buffered`], up to batch `target`, oldest first.
    pub(crate) fn flush_dirty<'a>(&'a self, mut state: Guard<'a>, target: u64) -> Result<(), Poison> {
        loop {
            if let Some(poison) = &state.poison {
                return Err(poison.clone());
            }
            let oldest = state.segments.iter().find(|segment| segment.dirty.is_some());
            let Some((id, file)) = oldest.and_then(|s| Some((s.id, s.dirty.clone()?))) else {
                state.durable = state.durable.max(target);
                break;
            };
            let (last, told) = state
                .segment(id)
                .map_or((0, 0), |segment| (segment.last_batch, segment.told));
            let up_to = state.written.min(last);
            let told = if up_to == last { told } else { 0 };
            drop(state);
            let synced = sync(&*file, Step::Flush);
            state = self.lock();
            if let Err(e) = synced {
                let woken = self.poison(&mut state, Step::Flush, &e.to_string());
                drop(state);
                wake_all(woken);
                return self.lock().poison.clone().map_or(Ok(()), Err);
            }
            if let Some(segment) = state.segment(id)
                && segment.last_batch <= up_to
            {
                segment.dirty = None;
            }
            state.durable = state.durable.max(up_to);
            state.told_durably = state.told_durably.max(told);
            if state.durable >= target {
                break;
            }
        }
        state.retire();
        Ok(())
    }
}

/// Stops the journal when a leader is lost on the way, so that nobody waits for it for ever.
struct Watch<'a> {
    core: &'a Core,
    number: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.leading = false;
        let woken = self.core.poison(
            &mut state,
            Step::Write,
            &format!("the writer of batch {} panicked", self.number),
        );
        drop(state);
        wake_all(woken);
    }
}
