//! Appending: a blocking call and a future over the same admission.
//!
//! A payload is summed before the lock is taken, charged and copied under it, and acknowledged once its batch is
//! as durable as promised. What does not fit is refused before anything is written.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::core::{Core, Guard};
use crate::error::AppendError;
use crate::format::record::{Fields, Kind, data_frame, payload_crc};
use crate::record::Meta;
use crate::state::{Admit, Claim, State};

/// A record that waits to be taken.
#[derive(Clone, Copy, Debug)]
struct Offer<'a> {
    meta: Meta,
    payload: &'a [u8],
    crc: u32,
    at_ms: u64,
}

impl<'a> Offer<'a> {
    fn new(core: &Core, meta: Meta, payload: &'a [u8]) -> Result<Self, AppendError> {
        let max = core.options.max_record;
        if payload.len() > max {
            return Err(AppendError::TooLarge {
                len: payload.len(),
                max,
            });
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            meta,
            payload,
            crc: payload_crc(payload),
            at_ms,
        })
    }
}

/// Where a record went.
#[derive(Clone, Copy, Debug)]
struct Taken {
    seq: u64,
    batch: u64,
}

/// What an attempt to put a record in came to.
enum Attempt {
    Taken(Taken),
    /// This batch has to go out first.
    Drain(u64),
    /// The upkeep has to do something first.
    Upkeep,
}

impl Core {
    fn attempt(&self, state: &mut State, offer: &Offer<'_>) -> Result<Attempt, AppendError> {
        if let Some(poison) = &state.poison {
            return Err(poison.clone().into());
        }
        let frame = data_frame(offer.payload.len());
        match state.admit(&self.options, frame, Claim::Append) {
            Admit::Here => {
                let fields = Fields {
                    seq: state.next_seq,
                    meta: offer.meta,
                    at_ms: offer.at_ms,
                };
                state.next_seq += 1;
                state.counters.appended += 1;
                let batch = state.encode(Kind::Append, &fields, offer.payload, offer.crc);
                Ok(Attempt::Taken(Taken {
                    seq: fields.seq,
                    batch,
                }))
            }
            Admit::Drain => Ok(Attempt::Drain(state.open.number)),
            // A batch on its way may free a segment once it has arrived.
            Admit::Upkeep if state.leading || state.supply.busy => Ok(Attempt::Upkeep),
            Admit::Upkeep if self.due(state).is_some() => Ok(Attempt::Upkeep),
            Admit::Upkeep => {
                state.supply.squeeze = false;
                let full = state.full(&self.options, frame);
                self.refuse(state, full)
            }
            Admit::Refused(e) => self.refuse(state, e),
        }
    }

    fn refuse(&self, state: &mut State, e: AppendError) -> Result<Attempt, AppendError> {
        state.counters.refused += 1;
        Err(e)
    }

    /// Appends and waits.
    pub(crate) fn append_blocking(&self, meta: Meta, payload: &[u8]) -> Result<u64, AppendError> {
        let offer = Offer::new(self, meta, payload)?;
        let mut state = self.lock();
        let taken = loop {
            state = match self.attempt(&mut state, &offer)? {
                Attempt::Taken(taken) => break taken,
                Attempt::Drain(batch) => self.drain(state, batch)?,
                Attempt::Upkeep => self.await_upkeep(state),
            };
        };
        self.commit(state, taken.batch)?;
        self.upkeep_inline();
        Ok(taken.seq)
    }

    fn await_upkeep<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        if self.threaded() {
            self.call_upkeep(&mut state);
            return self.wait_room(state);
        }
        drop(state);
        self.upkeep_inline();
        self.lock()
    }
}

/// An append under way. See [`Journal::append`](crate::Journal::append).
///
/// Dropping it before it is ready takes the record back: it was not acknowledged, and is settled.
#[must_use = "a record is appended only while this is polled"]
#[derive(Debug)]
pub struct Append<'a> {
    core: Arc<Core>,
    offer: Result<Offer<'a>, AppendError>,
    taken: Option<Taken>,
}

impl<'a> Append<'a> {
    pub(crate) fn new(core: Arc<Core>, meta: Meta, payload: &'a [u8]) -> Self {
        let offer = Offer::new(&core, meta, payload);
        Self {
            core,
            offer,
            taken: None,
        }
    }

    fn poll_taken(&mut self, context: &Context<'_>) -> Poll<Result<Taken, AppendError>> {
        if let Some(taken) = self.taken {
            return Poll::Ready(Ok(taken));
        }
        let offer = self.offer.clone()?;
        let mut state = self.core.lock();
        match self.core.attempt(&mut state, &offer)? {
            Attempt::Taken(taken) => {
                self.taken = Some(taken);
                Poll::Ready(Ok(taken))
            }
            Attempt::Drain(batch) => {
                state.wakers.push((batch, context.waker().clone()));
                self.core.call_commit(&state);
                Poll::Pending
            }
            Attempt::Upkeep => {
                state.room_wakers.push(context.waker().clone());
                self.core.call_upkeep(&mut state);
                Poll::Pending
            }
        }
    }

    fn poll_done(&mut self, taken: Taken, context: &Context<'_>) -> Poll<Result<u64, AppendError>> {
        let mut state = self.core.lock();
        if !state.done(taken.batch, self.core.options.durability) {
            if let Some(poison) = &state.poison {
                return Poll::Ready(Err(poison.clone().into()));
            }
            state.wakers.push((taken.batch, context.waker().clone()));
            self.core.call_commit(&state);
            return Poll::Pending;
        }
        drop(state);
        self.taken = None;
        Poll::Ready(Ok(taken.seq))
    }
}

impl Future for Append<'_> {
    type Output = Result<u64, AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.core.threaded() {
            let offer = self.offer.clone()?;
            return Poll::Ready(self.core.append_blocking(offer.meta, offer.payload));
        }
        match self.poll_taken(context) {
            Poll::Ready(Ok(taken)) => self.poll_done(taken, context),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.core.settle(taken.seq);
        }
    }
}
