//! Items that wait for room in a batch, first in, first out; a long one goes to the tail with its rest.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Outbox, UNCOPIED};
use crate::{
    Batch,
    producer::StreamKey,
    wire::{MAX_BODY, RecordKind, SlotRef},
};

/// Whose item it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Stream(StreamKey),
    Call(u64),
    Reply(u64),
}

/// An item that has not gone whole.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) owner: Owner,
    /// What the first record says before the bytes (calls and replies).
    pub(super) head: Bytes,
    pub(super) body: Bytes,
    /// Bytes of the body that have been staged.
    pub(super) at: usize,
    pub(super) begun: bool,
    pub(super) seq: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, item: Waiting) {
        self.bytes += item.body.len() - item.at;
        self.items.push_back(item);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let item = self.items.pop_front()?;
        self.bytes -= item.body.len() - item.at;
        Some(item)
    }

    fn push_front(&mut self, item: Waiting) {
        self.bytes += item.body.len() - item.at;
        self.items.push_front(item);
    }

    /// Takes an item out; with `untouched`, only if none of it has gone.
    pub(super) fn remove(&mut self, owner: Owner, untouched: bool) -> Option<Waiting> {
        let at = self
            .items
            .iter()
            .position(|item| item.owner == owner && !(untouched && item.begun))?;
        let item = self.items.remove(at)?;
        self.bytes -= item.body.len() - item.at;
        Some(item)
    }

    pub(super) fn holds(&self, owner: Owner) -> bool {
        self.items.iter().any(|item| item.owner == owner)
    }

    pub(super) fn holds_before(&self, seq: u64) -> bool {
        self.items.iter().any(|item| item.seq < seq)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment {
    /// The item has gone whole.
    Last,
    /// One fragment went.
    More,
    /// Nothing fitted.
    NoRoom,
}

/// Appends `head` and `body`, copying a small body only.
pub(super) fn put(batch: &mut Batch, slot: SlotRef, kind: RecordKind, head: &[u8], body: &Bytes) {
    if body.len() >= UNCOPIED {
        batch.push_shared(slot, kind, head, body.clone());
    } else {
        batch.push(slot, kind, &[head, body]);
    }
}

impl<W> Outbox<W> {
    pub(super) fn next_seq(&mut self) -> u64 {
        self.queue_seq += 1;
        self.queue_seq - 1
    }

    /// Moves waiting items into the batches while they fit, and collects the senders to wake.
    pub(super) fn refill(&mut self, wake: &mut Vec<W>) {
        for urgent in [true, false] {
            loop {
                let queue = if urgent {
                    &mut self.urgent_queue
                } else {
                    &mut self.bulk_queue
                };
                let Some(mut item) = queue.pop() else { break };
                match self.stage_fragment(&mut item, urgent) {
                    Fragment::Last => self.item_gone(item.owner, wake),
                    Fragment::More => self.queue(urgent).push(item),
                    Fragment::NoRoom => {
                        self.queue(urgent).push_front(item);
                        break;
                    }
                }
            }
        }
    }

    pub(super) fn queue(&mut self, urgent: bool) -> &mut Queue {
        if urgent {
            &mut self.urgent_queue
        } else {
            &mut self.bulk_queue
        }
    }

    pub(super) fn batch(&mut self, urgent: bool) -> &mut Batch {
        if urgent { &mut self.urgent } else { &mut self.bulk }
    }

    /// Stages the next fragment of an item.
    pub(super) fn stage_fragment(&mut self, item: &mut Waiting, urgent: bool) -> Fragment {
        let fragment = match item.owner {
            Owner::Stream(key) => self.stream_fragment(key, item, urgent),
            Owner::Call(id) => {
                let staged = self.call_fragment(id, RecordKind::Call, RecordKind::CallPart, item, urgent);
                if staged != Fragment::NoRoom {
                    self.staged_calls.push(id);
                }
                staged
            }
            Owner::Reply(id) => {
                let staged = self.call_fragment(id, RecordKind::Reply, RecordKind::ReplyPart, item, urgent);
                if staged == Fragment::Last {
                    self.serving.over(id);
                }
                staged
            }
        };
        item.begun |= fragment != Fragment::NoRoom;
        fragment
    }

    fn call_fragment(
        &mut self,
        id: u64,
        first: RecordKind,
        more: RecordKind,
        item: &mut Waiting,
        urgent: bool,
    ) -> Fragment {
        let id = id.to_le_bytes();
        let (kind, head): (_, &[u8]) = if item.begun {
            (more, &id)
        } else {
            (first, &item.head)
        };
        let rest = item.body.len() - item.at;
        let len = rest.min(MAX_BODY - head.len());
        let batch = self.batch(urgent);
        if !batch.fits(head.len() + len) {
            return Fragment::NoRoom;
        }
        put(
            batch,
            SlotRef {
                index: 0,
                generation: 0,
            },
            kind,
            head,
            &item.body.slice(item.at..item.at + len),
        );
        item.at += len;
        if len == rest {
            Fragment::Last
        } else {
            Fragment::More
        }
    }

    fn item_gone(&mut self, owner: Owner, wake: &mut Vec<W>) {
        let Owner::Stream(key) = owner else { return };
        if let Some(stream) = self.streams.get_mut(key.0) {
            stream.waiting = false;
            wake.extend(stream.waker.take());
        }
    }
}
