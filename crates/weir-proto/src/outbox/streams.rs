//! Producer streams: open, send, end here; grant, stop, cancel, close from the consumer.

use bytes::Bytes;

use super::{
    Enqueued, Outbox, URGENT_ITEM,
    queue::{Fragment, Owner, Waiting, put},
};
use crate::{
    Batch, SendCredit, Window,
    producer::{End, OpenRefused, ProducerStream, SendRefused, StreamFate, StreamKey},
    wire::{ClaimToken, MAX_BODY, MAX_MESSAGE, RecordKind, RefusedCode, SlotRef},
};

/// Inputs of the sender.
impl<W> Outbox<W> {
    /// Opens a stream; its claim leaves with the next turn, merged with the first item if that is staged by then.
    ///
    /// # Errors
    /// [`OpenRefused`].
    pub fn open(
        &mut self,
        slot: SlotRef,
        token: ClaimToken,
        window: Window,
        max: Window,
    ) -> Result<StreamKey, OpenRefused> {
        if self.lost {
            return Err(OpenRefused::Lost);
        }
        if self.by_slot.contains_key(&slot.key()) {
            return Err(OpenRefused::AlreadyOpen);
        }
        let key = StreamKey(self.streams.insert(ProducerStream {
            slot,
            token,
            credit: SendCredit::new(window, max),
            window_bytes: window.bytes as usize,
            opened: false,
            waiting: false,
            end: None,
            end_rendered: false,
            stop: false,
            fate: None,
            leaves: 0,
            held: true,
            waker: None,
        }));
        self.by_slot.insert(slot.key(), key);
        self.opens.push(key);
        Ok(key)
    }

    /// Stages an item, copying it.
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was staged.
    #[inline]
    pub fn send(&mut self, key: StreamKey, item: &[u8]) -> Result<(), SendRefused> {
        let urgent = self.admit(key, item.len())?;
        let Some(stream) = self.streams.get_mut(key.0) else {
            return Err(SendRefused::Ended);
        };
        let (slot, opened) = (stream.slot, stream.opened);
        let (queue, batch) = if urgent {
            (&self.urgent_queue, &mut self.urgent)
        } else {
            (&self.bulk_queue, &mut self.bulk)
        };
        let token_len = if opened { 0 } else { stream.token.0.len() };
        if !queue.is_empty() || item.len() + token_len > MAX_BODY || !batch.fits(item.len() + token_len) {
            return Err(SendRefused::NoRoom);
        }
        if opened {
            batch.push(slot, RecordKind::Item, &[item]);
        } else if urgent {
            batch.push(slot, RecordKind::OpenItem, &[&stream.token.0, item]);
        } else {
            // A first item that is too large for the urgent batch follows its claim, which the next turn writes first.
            batch.push(slot, RecordKind::Item, &[item]);
        }
        stream.opened |= urgent;
        stream.credit.spend(item.len());
        self.counters.items += 1;
        Ok(())
    }

    /// Puts an item that found no room into its queue; `waker`, or a later [`wake_on_change`](Self::wake_on_change),
    /// is woken when it is in a batch.
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was enqueued.
    pub fn enqueue(
        &mut self,
        key: StreamKey,
        item: Bytes,
        waker: Option<W>,
    ) -> Result<Enqueued, SendRefused> {
        let urgent = self.admit(key, item.len())?;
        let seq = self.next_seq();
        let len = item.len();
        let owner = Owner::Stream(key);
        let mut waiting = Waiting {
            owner,
            head: Bytes::new(),
            body: item,
            at: 0,
            begun: false,
            seq,
        };
        let staged = if self.queue(urgent).is_empty() {
            self.stage_fragment(&mut waiting, urgent)
        } else {
            Fragment::NoRoom
        };
        if let Some(stream) = self.streams.get_mut(key.0) {
            stream.credit.spend(len);
            stream.waiting = staged != Fragment::Last;
            if waker.is_some() {
                stream.waker = waker;
            }
        }
        self.counters.items += 1;
        if staged == Fragment::Last {
            return Ok(Enqueued::Sent);
        }
        self.counters.waited += 1;
        self.queue(urgent).push(waiting);
        Ok(Enqueued::Waiting)
    }

    /// Where the enqueued item is; `waker` replaces the one kept.
    pub fn enqueued(&mut self, key: StreamKey, waker: impl FnOnce() -> W) -> Result<Enqueued, StreamFate> {
        let Some(stream) = self.streams.get_mut(key.0) else {
            return Err(StreamFate::Lost);
        };
        if !stream.waiting {
            return stream.fate.map_or(Ok(Enqueued::Sent), Err);
        }
        stream.waker = Some(waker());
        Ok(Enqueued::Waiting)
    }

    /// The future that enqueued an item is dropped: takes the item out if none of it has gone.
    pub fn withdraw(&mut self, key: StreamKey) {
        let owner = Owner::Stream(key);
        let item = self
            .urgent_queue
            .remove(owner, true)
            .or_else(|| self.bulk_queue.remove(owner, true));
        if let (Some(item), Some(stream)) = (item, self.streams.get_mut(key.0)) {
            stream.waiting = false;
            stream.credit.refund(item.body.len());
            self.counters.items -= 1;
        }
    }

    /// Why an item of `len` bytes cannot be sent now, if so.
    ///
    /// # Errors
    /// [`SendRefused`].
    pub fn ready(&self, key: StreamKey, len: usize) -> Result<(), SendRefused> {
        self.admit(key, len).map(|_| ())
    }

    /// Keeps `waker` for the next grant, room, stop, cancel or loss.
    pub fn wake_on_change(&mut self, key: StreamKey, waker: W) {
        if let Some(stream) = self.streams.get_mut(key.0) {
            stream.waker = Some(waker);
        }
    }

    /// Whether the consumer asked to stop, and what became of the stream there.
    pub fn state(&self, key: StreamKey) -> (bool, Option<StreamFate>) {
        self.streams
            .get(key.0)
            .map_or((true, Some(StreamFate::Lost)), |stream| {
                (stream.stop, stream.fate)
            })
    }

    /// Records sent on the stream so far.
    pub fn sent(&self, key: StreamKey) -> u64 {
        self.streams
            .get(key.0)
            .map_or(0, |stream| stream.credit.sent().records)
    }

    /// Ends the stream; the end leaves after all its items.
    pub fn end(&mut self, key: StreamKey, end: End) {
        let Some(stream) = self.streams.get_mut(key.0) else {
            return;
        };
        if stream.end.is_none() && stream.fate.is_none() {
            stream.end = Some(end);
            self.ends.push(key);
        }
    }

    /// No handle asks for the stream any more.
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key.0) else {
            return;
        };
        stream.held = false;
        stream.waker = None;
        self.remove_if_over(key);
    }

    /// The class of the next item, if it may start.
    #[inline]
    fn admit(&self, key: StreamKey, len: usize) -> Result<bool, SendRefused> {
        let Some(stream) = self.streams.get(key.0) else {
            return Err(SendRefused::Ended);
        };
        if let Some(fate) = stream.fate {
            return Err(SendRefused::Over(fate));
        }
        if stream.end.is_some() {
            return Err(SendRefused::Ended);
        }
        if len > stream.window_bytes {
            return Err(SendRefused::TooLarge(stream.window_bytes));
        }
        if stream.waiting {
            return Err(SendRefused::Waiting);
        }
        if !stream.credit.admits(len) {
            return Err(SendRefused::NoCredit);
        }
        Ok(stream.credit.sent().records == 0 && len <= URGENT_ITEM)
    }
}

/// Rendering.
impl<W> Outbox<W> {
    /// Writes the claims that no first item carried.
    pub(super) fn render_opens(&mut self, urgent: &mut Batch) {
        for key in self.opens.drain(..) {
            let Some(stream) = self.streams.get_mut(key.0) else {
                continue;
            };
            if !stream.opened {
                stream.opened = true;
                urgent.push(stream.slot, RecordKind::Open, &[&stream.token.0]);
            }
        }
    }

    /// Writes the ends that no waiting item holds back.
    pub(super) fn render_ends(&mut self, bulk: &mut Batch) {
        let mut ends = std::mem::take(&mut self.ends);
        ends.retain(|key| {
            let Some(stream) = self.streams.get_mut(key.0) else {
                return false;
            };
            if stream.waiting {
                return true;
            }
            if let (Some(end), false) = (&stream.end, stream.end_rendered) {
                render_end(stream.slot, end, bulk);
                stream.end_rendered = true;
            }
            self.remove_if_over(*key);
            false
        });
        self.ends = ends;
    }

    pub(super) fn stream_fragment(&mut self, key: StreamKey, item: &mut Waiting, urgent: bool) -> Fragment {
        let Some(stream) = self.streams.get_mut(key.0) else {
            return Fragment::Last;
        };
        let batch = if urgent { &mut self.urgent } else { &mut self.bulk };
        let rest = item.body.len() - item.at;
        let len = rest.min(MAX_BODY);
        let merge = urgent && !stream.opened && len + stream.token.0.len() <= MAX_BODY;
        if !batch.fits(len + stream.token.0.len()) {
            return Fragment::NoRoom;
        }
        let body = item.body.slice(item.at..item.at + len);
        if merge {
            stream.opened = true;
            put(batch, stream.slot, RecordKind::OpenItem, &stream.token.0, &body);
        } else {
            let kind = if len == rest {
                RecordKind::Item
            } else {
                RecordKind::Part
            };
            put(batch, stream.slot, kind, &[], &body);
        }
        item.at += len;
        if len == rest {
            Fragment::Last
        } else {
            Fragment::More
        }
    }

    /// Removes a stream that was cut short; says whether records of it are still to be written.
    pub(super) fn remove_once_written(&mut self, key: StreamKey) -> bool {
        let unwritten = (self.streams.get(key.0)).is_some_and(|stream| stream.leaves > self.written);
        if !unwritten {
            self.remove_if_over(key);
        }
        unwritten
    }

    pub(super) fn remove_if_over(&mut self, key: StreamKey) {
        let written = self.written;
        if (self.streams.get(key.0)).is_some_and(|stream| stream.is_over() && stream.leaves <= written) {
            let stream = self.streams.remove(key.0);
            if self.by_slot.get(&stream.slot.key()) == Some(&key) {
                self.by_slot.remove(&stream.slot.key());
            }
        }
    }
}

fn render_end(slot: SlotRef, end: &End, bulk: &mut Batch) {
    let code = [end.code().byte()];
    match end {
        End::Failed(failure, message) => {
            let cut = message.floor_char_boundary(MAX_MESSAGE);
            let message = message.get(..cut).unwrap_or_default().as_bytes();
            bulk.push(slot, RecordKind::End, &[&code, &failure.to_le_bytes(), message]);
        }
        _ => bulk.push(slot, RecordKind::End, &[&code]),
    }
}

/// Refusals that reach a sender.
impl StreamFate {
    /// Why the claim was refused, for people.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Refused(RefusedCode::Gone) => Some("the ticket expired, was voided, or was used before"),
            Self::Refused(RefusedCode::NotYours) => {
                Some("the claim token is wrong or meant for another node")
            }
            _ => None,
        }
    }
}
