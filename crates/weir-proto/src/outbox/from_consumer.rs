//! What the consumer says to a producer stream: grant, stop, cancel, closed, refused, and the loss of the link.

use super::{Outbox, queue::Owner};
use crate::{
    Amount, Violation,
    producer::{End, ProducerStream, StreamFate, StreamKey},
    wire::SlotRef,
};

/// Inputs from the consumer.
impl<W> Outbox<W> {
    /// Credit up to `limit`. The waker, if any, is the sender's.
    ///
    /// # Errors
    /// [`Violation::GrantTooLarge`].
    pub fn grant(&mut self, slot: SlotRef, limit: Amount) -> Result<Option<W>, Violation> {
        self.counters.grants += 1;
        let Some(stream) = self.heard(slot) else {
            return Ok(None);
        };
        let raised = stream.credit.grant(limit)?;
        Ok(if raised && !stream.waiting {
            stream.waker.take()
        } else {
            None
        })
    }

    /// The consumer asks to finish.
    pub fn stop(&mut self, slot: SlotRef) -> Option<W> {
        let stream = self.heard(slot)?;
        stream.stop = true;
        stream.waker.take()
    }

    /// The consumer's half of the close, or a refusal. A cancelled stream is answered with its end at once.
    pub fn over(&mut self, slot: SlotRef, fate: StreamFate) -> Option<W> {
        self.heard(slot)?;
        let key = *self.by_slot.get(&slot.key())?;
        self.drop_waiting(key);
        let stream = self.streams.get_mut(key.0)?;
        stream.fate = Some(fate);
        let waker = stream.waker.take();
        if matches!(fate, StreamFate::Refused(_)) {
            self.counters.refused += 1;
            stream.end_rendered = true;
            stream.opened = true;
        } else if stream.end.is_none() {
            stream.end = Some(End::Dropped);
            self.ends.push(key);
        }
        self.cut_short(key, fate);
        self.remove_if_over(key);
        waker
    }

    /// The stream of a consumer's record, unless it is over or unknown.
    #[inline]
    fn heard(&mut self, slot: SlotRef) -> Option<&mut ProducerStream<W>> {
        let key = self.by_slot.get(&slot.key());
        let stream = key.and_then(|key| self.streams.get_mut(key.0));
        let live = stream.filter(|stream| stream.fate.is_none());
        if live.is_none() {
            self.counters.stale += 1;
        }
        live
    }

    /// Until its staged records have left, the ticket counts as open here: were it opened again, they would follow the
    /// new claim and be taken for the new stream's. A closed stream has none: its end was answered.
    fn cut_short(&mut self, key: StreamKey, fate: StreamFate) {
        if matches!(fate, StreamFate::Closed(_)) {
            return;
        }
        let leaves = self.turns + u64::from(self.has_work());
        if leaves > self.written
            && let Some(stream) = self.streams.get_mut(key.0)
        {
            stream.leaves = leaves;
            self.leaving.push(key);
        }
    }

    pub(super) fn lose_streams(&mut self, wake: &mut Vec<W>) {
        self.by_slot.clear();
        let keys: Vec<StreamKey> = self.streams.iter().map(|(key, _)| StreamKey(key)).collect();
        for key in keys {
            if let Some(stream) = self.streams.get_mut(key.0) {
                stream.fate.get_or_insert(StreamFate::Lost);
                stream.waiting = false;
                stream.end_rendered = true;
                stream.leaves = 0;
                wake.extend(stream.waker.take());
            }
            self.remove_if_over(key);
        }
    }

    fn drop_waiting(&mut self, key: StreamKey) {
        let owner = Owner::Stream(key);
        let Some(stream) = self.streams.get_mut(key.0) else {
            return;
        };
        if std::mem::take(&mut stream.waiting) {
            let _gone = self
                .urgent_queue
                .remove(owner, false)
                .or_else(|| self.bulk_queue.remove(owner, false));
        }
    }
}
