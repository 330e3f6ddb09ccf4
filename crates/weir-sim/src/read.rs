//! The reader of an end, as the driver's reader task goes: a read, every whole frame, every record, then the wakes.
//!
//! Every peer of a world keeps the rules, so any violation is a fault.

use std::time::Duration;

use bytes::Bytes;
use weir_proto::{
    Accept, Amount, CallRequest, Claim, LivenessVerdict, Mark, Received, StreamFate, Violation,
    wire::{Cursor, Record, Records, ReplyStatus, SlotRef},
};

use crate::{
    PartyId,
    agenda::{EndId, Event},
    world::{PEER_TIMEOUT, World},
    write::brief,
};

impl World {
    /// Bytes that `from` wrote arrive at its twin.
    pub(crate) fn arrive(&mut self, from: EndId) {
        let id = from ^ 1;
        if self.ends[id].gone {
            return;
        }
        let pipe = &mut self.pipes[from];
        if pipe.planned != Some(self.now) {
            return;
        }
        pipe.planned = None;
        if pipe.readable_at(self.now).is_none_or(|at| at > self.now) {
            self.plan_arrival(from);
            return;
        }
        let end = &mut self.ends[id];
        if self.pipes[from].read(&mut end.buf, self.now, &mut self.rng) == 0 {
            self.lose(id, "closed by the peer");
            return;
        }
        end.liveness.heard(self.now);
        if !self.ends[from].writer.out.is_empty() {
            self.wake_writer(from);
        }
        self.pass(id);
        self.plan_arrival(from);
    }

    fn pass(&mut self, id: EndId) {
        let before = self.ends[id].inbox.taken();
        let mut wake = Vec::new();
        loop {
            let end = &mut self.ends[id];
            let received = end.inbox.next(&mut end.buf);
            match received.unwrap_or_else(|violation| panic!("end {id}: {violation}")) {
                None => break,
                Some(Received::Keepalive) => {}
                Some(Received::Batch(frame)) => self.frame(id, &frame, &mut wake),
                Some(Received::Ack(number)) => {
                    let sent = self.ends[id].sent;
                    assert!(number <= sent, "ack of frame {number}, {sent} were sent");
                    let acked = &mut self.ends[id].acked;
                    *acked = number.max(*acked);
                }
                Some(Received::Bye(..)) => {
                    self.wake_all(wake);
                    self.lose(id, "the peer said bye");
                    return;
                }
            }
        }
        let end = &mut self.ends[id];
        if end.inbox.taken() > before && !std::mem::replace(&mut end.ack_due, true) {
            self.wake_writer(id);
        }
        self.wake_all(wake);
    }

    fn frame(&mut self, id: EndId, frame: &Bytes, wake: &mut Vec<PartyId>) {
        for record in Records::new(frame) {
            let record = record.unwrap_or_else(|violation| panic!("end {id}: {violation}"));
            self.summary.records += 1;
            let now = self.now;
            self.trace
                .say(now, || format!("end {id} reads {}", brief(&record)));
            if let Err(violation) = self.record(id, record, frame, wake) {
                panic!("end {id}: {violation} at {}", brief(&record));
            }
        }
    }

    fn record(
        &mut self,
        id: EndId,
        record: Record<'_>,
        frame: &Bytes,
        wake: &mut Vec<PartyId>,
    ) -> Result<(), Violation> {
        match record {
            Record::Item(slot, body) => self.item(id, slot, body, frame, true, wake),
            Record::Part(slot, body) => self.item(id, slot, body, frame, false, wake),
            Record::Open(slot, token, item) => {
                let (node, lane) = (self.ends[id].node, self.ends[id].lane);
                let peer = self.nodes[self.ends[id].peer].id;
                assert!(
                    slot.index < self.nodes[node].allocator.used(),
                    "{slot:?} is outside the table"
                );
                let cell = &mut self.nodes[node].cells[slot.index as usize];
                match cell.slot.claim(slot.generation, token, peer, lane, self.now) {
                    Claim::Claimed => {
                        self.claimed(node, slot, id);
                        self.mark(id, slot.index, Mark::Soon);
                    }
                    Claim::Repeated => self.summary.stale += 1,
                    Claim::Refused(code) => self.stage(id, |outbox| outbox.refuse(slot, code))?,
                }
                match item {
                    Some(body) => self.item(id, slot, body, frame, true, wake),
                    None => Ok(()),
                }
            }
            Record::End(slot, code, failure, message) => {
                let (node, lane) = (self.ends[id].node, self.ends[id].lane);
                let cell = &mut self.nodes[node].cells[slot.index as usize];
                let (accept, event) = cell.slot.end(slot.generation, lane, code, failure, message);
                if let (Accept::Taken(_), Some(stream)) = (&accept, cell.stream) {
                    self.streams[stream].end_came = true;
                }
                self.settle(node, slot.index, event);
                self.accepted(accept, wake);
                Ok(())
            }
            other => self.for_outbox(id, other, wake),
        }
    }

    fn item(
        &mut self,
        id: EndId,
        slot: SlotRef,
        body: &[u8],
        frame: &Bytes,
        last: bool,
        wake: &mut Vec<PartyId>,
    ) -> Result<(), Violation> {
        let (node, lane) = (self.ends[id].node, self.ends[id].lane);
        let cell = &mut self.nodes[node].cells[slot.index as usize];
        let accept = cell
            .slot
            .item(slot.generation, lane, body, frame, last, self.now)?;
        if let (Accept::Taken(_), Some(stream)) = (&accept, cell.stream) {
            let stream = &mut self.streams[stream];
            assert!(!stream.end_came, "a record of {slot:?} counts after its end");
            stream.heard = self.now;
            stream.received.records += u64::from(last);
            stream.received.bytes += body.len() as u64;
            let (received, granted) = (stream.received, stream.granted);
            assert!(
                received.records <= granted.records && received.bytes <= granted.bytes,
                "{slot:?} received {received:?} of {granted:?}"
            );
        }
        self.accepted(accept, wake);
        Ok(())
    }

    fn accepted(&mut self, accept: Accept<PartyId>, wake: &mut Vec<PartyId>) {
        match accept {
            Accept::Taken(waker) => wake.extend(waker),
            Accept::Stale => self.summary.stale += 1,
        }
    }

    fn for_outbox(
        &mut self,
        id: EndId,
        record: Record<'_>,
        wake: &mut Vec<PartyId>,
    ) -> Result<(), Violation> {
        let outbox = &mut self.ends[id].outbox;
        match record {
            Record::Grant(slot, records, bytes) => {
                wake.extend(outbox.grant(slot, Amount { records, bytes })?);
            }
            Record::Stop(slot) => wake.extend(outbox.stop(slot)),
            Record::Cancel(slot) => self.over(id, slot, StreamFate::Cancelled, wake),
            Record::Closed(slot, taken) => self.over(id, slot, StreamFate::Closed(taken), wake),
            Record::Refused(slot, code) => self.over(id, slot, StreamFate::Refused(code), wake),
            Record::Call {
                id: call,
                cast,
                deadline_ms,
                len,
                name,
                bytes,
            } => {
                let head = CallRequest {
                    id: call,
                    cast,
                    deadline_ms,
                    name: name.to_owned(),
                    body: Bytes::new(),
                };
                let request = outbox.call_begins(head, len, bytes)?;
                self.serve(id, request);
            }
            Record::CallPart(call, bytes) => {
                let request = outbox.call_arrives(call, bytes)?;
                self.serve(id, request);
            }
            Record::Reply(call, status, len, bytes) => {
                wake.extend(outbox.reply_begins(call, status, len, bytes)?);
            }
            Record::ReplyPart(call, bytes) => wake.extend(outbox.reply_arrives(call, bytes)?),
            Record::CallCancel(call) => self.call_cancelled(id, call),
            Record::Handlers(changes) => {
                let mut cursor = Cursor::new(changes);
                while !cursor.is_empty() {
                    let (added, len) = (cursor.u8(), cursor.u8());
                    let name = len
                        .and_then(|len| cursor.bytes(usize::from(len)))
                        .unwrap_or_default();
                    let name = String::from_utf8_lossy(name).into_owned();
                    match added {
                        Some(1) => self.ends[id].known.insert(name),
                        _ => self.ends[id].known.remove(&name),
                    };
                }
            }
            Record::Item(..) | Record::Part(..) | Record::Open(..) | Record::End(..) => {}
        }
        Ok(())
    }

    fn over(&mut self, id: EndId, slot: SlotRef, fate: StreamFate, wake: &mut Vec<PartyId>) {
        wake.extend(self.stage(id, |outbox| outbox.over(slot, fate)));
        let end = &mut self.ends[id];
        let alone = (end.attempts.get(&slot.key())).is_some_and(|list| list.len() == 1);
        if fate == StreamFate::Cancelled && alone {
            end.cancelled.push(slot.key());
        }
    }

    fn call_cancelled(&mut self, id: EndId, call: u64) {
        self.stage(id, |outbox| {
            outbox.reply(call, ReplyStatus::Failed, Bytes::from_static(b"cancelled"))
        });
        if let Some(served) = self.ends[id].serving.get(&call) {
            self.calls[*served].answered = true;
        }
    }

    /// Silence counts only after one more look.
    pub(crate) fn judge(&mut self, id: EndId) {
        if self.ends[id].gone {
            return;
        }
        let again = match self.ends[id].liveness.judge(self.now) {
            LivenessVerdict::Alive(deadline) => deadline,
            LivenessVerdict::ReadFirst => self.now + Duration::from_millis(1),
            LivenessVerdict::Silent => {
                let pipe = &self.pipes[id ^ 1];
                let stalled = pipe.stalled_until + PEER_TIMEOUT / 2 >= self.now;
                assert!(
                    stalled || self.ends[id ^ 1].gone,
                    "end {id} takes a live peer for dead"
                );
                self.lose(id, "silent");
                return;
            }
        };
        self.agenda.plan(again, Event::Judge(id));
    }
}
