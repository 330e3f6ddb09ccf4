//! The writer of an end, step by step as the driver's writer task goes, with a pause possible between any two.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_proto::{
    Batch, ConsumerEvent, Mark, Piece,
    wire::{FRAME_HEADER, FrameHeader, FrameKind, MAX_FRAME, Record, Records, SlotRef},
};

use crate::{
    agenda::{EndId, Event},
    end::{Class, Phase},
    world::{PEER_TIMEOUT, World},
};

/// An ack leaves within this time.
const ACK_WITHIN: Duration = Duration::from_millis(25);
/// First records and replies up to this size must go urgent.
const URGENT_ITEM: usize = 4 * 1024;

impl World {
    pub(crate) fn write(&mut self, end: EndId) {
        let (now, writer) = (self.now, &mut self.ends[end].writer);
        writer.woken = false;
        writer.timer = writer.timer.filter(|at| *at > now);
        while !self.ends[end].gone {
            if !self.push(end) {
                return;
            }
            match self.ends[end].writer.phase {
                Phase::Idle => {
                    if !self.start(end) {
                        return;
                    }
                }
                Phase::Piece => self.piece(end),
                Phase::Writing { bulk } => self.written(end, bulk),
                Phase::Bye => {
                    self.ends[end].writer.phase = Phase::Stopped;
                    self.pipes[end].closed = true;
                    self.plan_arrival(end);
                }
                Phase::Stopped => return,
            }
            if self.rng.chance(25) {
                self.wake_writer(end);
                return;
            }
        }
    }

    /// Hands bytes to the lane; `false` when some are left.
    fn push(&mut self, end: EndId) -> bool {
        let pipe = &mut self.pipes[end];
        let out = &mut self.ends[end].writer.out;
        if out.is_empty() {
            return true;
        }
        if pipe.broken {
            self.lose(end, "write failed");
            return false;
        }
        pipe.write(out, self.now, &mut self.rng);
        let done = out.is_empty();
        self.plan_arrival(end);
        if !done && self.rng.chance(20) {
            // The kernel took less than it could; the task polls again.
            self.wake_writer(end);
        }
        done
    }

    pub(crate) fn plan_arrival(&mut self, end: EndId) {
        let after = self.now + self.rng.upto(Duration::from_micros(50));
        let pipe = &mut self.pipes[end];
        let Some(at) = pipe.readable_at(self.now) else {
            return;
        };
        let at = at.max(after);
        if pipe.planned.is_none_or(|planned| at < planned) {
            pipe.planned = Some(at);
            self.agenda.plan(at, Event::Arrive(end));
        }
    }

    /// Begins to write if there is cause; else goes to sleep.
    fn start(&mut self, id: EndId) -> bool {
        let (now, linger) = (self.now, self.mood.linger);
        let end = &mut self.ends[id];
        if end.closing {
            self.turn(id, false);
            return true;
        }
        if end.outbox.has_work() {
            self.turn(id, false);
            return true;
        }
        end.outbox.sleep();
        let writer = &mut end.writer;
        if end.marked > writer.lingering {
            writer.lingering = end.marked;
            let by = match end.marked {
                Some(Mark::Now) => now,
                Some(Mark::Lazy) => now + linger * 5,
                _ => now + linger,
            };
            writer.linger = Some(writer.linger.map_or(by, |known| known.min(by)));
        }
        if end.ack_due && writer.ack.is_none() {
            writer.ack = Some(now + ACK_WITHIN);
        }
        let replies = [writer.linger, writer.ack].into_iter().flatten().min();
        if replies.is_some_and(|at| at <= now) {
            self.turn(id, true);
            return true;
        }
        if writer.keepalive <= now {
            writer.out.extend_from_slice(&header(FrameKind::Keepalive, 0, 0));
            writer.keepalive = now + PEER_TIMEOUT / 4;
            return true;
        }
        let at = replies.map_or(writer.keepalive, |at| at.min(writer.keepalive));
        if writer.timer != Some(at) {
            writer.timer = Some(at);
            self.agenda.plan(at, Event::Write(id));
        }
        false
    }

    fn turn(&mut self, id: EndId, by_timer: bool) {
        self.control(id);
        let end = &mut self.ends[id];
        let writer = &mut end.writer;
        writer.linger = None;
        writer.lingering = None;
        writer.ack = None;
        if std::mem::take(&mut end.ack_due) && end.inbox.taken() > writer.acked {
            writer.acked = end.inbox.taken();
            writer
                .out
                .extend_from_slice(&header(FrameKind::Ack, 0, writer.acked));
        }
        end.outbox.take(&mut writer.turn);
        end.answers = std::mem::take(&mut end.cancelled);
        writer.phase = Phase::Piece;
        let wake: Vec<_> = writer.turn.wake.drain(..).collect();
        let now = self.now;
        self.trace
            .say(now, || format!("end {id} takes a turn (timer: {by_timer})"));
        self.wake_all(wake);
    }

    /// Renders what is due to the producers of the peer.
    fn control(&mut self, id: EndId) {
        let (node, lane) = (self.ends[id].node, self.ends[id].lane);
        self.ends[id].marked = None;
        for index in std::mem::take(&mut self.ends[id].dirty) {
            let cell = &mut self.nodes[node].cells[index as usize];
            let before = self.ends[id].writer.control.records();
            let rendered = cell
                .slot
                .render(index, lane, &mut self.ends[id].writer.control, self.now);
            let records = self.ends[id].writer.control.records() - before;
            if let Some(stream) = cell.stream {
                let stream = &mut self.streams[stream];
                if rendered.granted {
                    stream.granted = stream.taken.plus(self.mood.window);
                    stream.heard = self.now;
                }
                if stream.stop_counts() && std::mem::take(&mut stream.stop_due) {
                    assert!(records > u64::from(rendered.granted), "a stop was not told");
                }
            }
            let event = ConsumerEvent {
                mark: None,
                freed: rendered.freed,
            };
            self.settle(node, index, event);
        }
    }

    /// Puts control, urgent and the next piece of bulk on their way.
    fn piece(&mut self, id: EndId) {
        let most = self.mood.piece;
        let end = &mut self.ends[id];
        let writer = &mut end.writer;
        let number = &mut writer.next_number;
        let control = writer.control.piece(usize::MAX, number);
        let urgent = writer.turn.urgent.piece(usize::MAX, number);
        let bulk = writer.turn.bulk.piece(most, number);
        end.sent = writer.next_number - 1;
        for (class, batch, piece) in [
            (Class::Control, &writer.control, &control),
            (Class::Urgent, &writer.turn.urgent, &urgent),
            (Class::Bulk, &writer.turn.bulk, &bulk),
        ] {
            if let Some(piece) = piece {
                let bytes = bytes_of(batch, piece);
                writer.out.extend_from_slice(&bytes);
                writer.leaving.push((class, bytes));
            }
        }
        writer.phase = Phase::Writing { bulk: bulk.is_some() };
    }

    /// A piece is in the kernel's hands.
    fn written(&mut self, id: EndId, bulk: bool) {
        for (class, bytes) in std::mem::take(&mut self.ends[id].writer.leaving) {
            self.left(id, class, bytes);
        }
        let end = &mut self.ends[id];
        let writer = &mut end.writer;
        writer.turn.urgent.clear();
        let mut wake = Vec::new();
        if bulk {
            if writer.turn.bulk.has_more() {
                end.outbox.take_urgent(&mut writer.turn);
                wake.append(&mut writer.turn.wake);
            }
            writer.phase = Phase::Piece;
        } else {
            for slot in std::mem::take(&mut end.answers) {
                let left = end.left.get(&slot).copied().unwrap_or_default();
                assert!(left.ends > 0, "a cancel was not answered by the next turn");
            }
            end.outbox.turn_written(&mut wake);
            writer.control.clear();
            writer.turn.bulk.clear();
            writer.keepalive = self.now + PEER_TIMEOUT / 4;
            writer.phase = Phase::Idle;
            if end.closing {
                writer.out.extend_from_slice(&header(FrameKind::Bye, 2, 0));
                writer.out.extend_from_slice(&[0, 0]);
                writer.phase = Phase::Bye;
            }
        }
        self.wake_all(wake);
    }

    /// Takes note of records that left, and judges their class.
    fn left(&mut self, id: EndId, class: Class, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let mut head = [0; FRAME_HEADER];
            head.copy_from_slice(&bytes[..FRAME_HEADER]);
            let header = FrameHeader::parse(head).expect("a frame of ours is well formed");
            let frame = bytes.split_to(FRAME_HEADER + header.payload as usize);
            assert!(frame.len() <= MAX_FRAME, "a frame of {} bytes", frame.len());
            for record in Records::new(&frame[FRAME_HEADER..]) {
                let record = record.expect("a record of ours is well formed");
                self.record_left(id, class, record);
            }
        }
    }

    fn record_left(&mut self, id: EndId, class: Class, record: Record<'_>) {
        // Where a ticket was opened twice over this end, whose first item it is cannot be told.
        let again = |slot: SlotRef| {
            self.ends[id]
                .attempts
                .get(&slot.key())
                .is_none_or(|list| list.len() != 1)
        };
        let expected = match record {
            Record::Open(..) | Record::Refused(..) | Record::Handlers(..) => Class::Urgent,
            Record::Grant(..) | Record::Stop(..) | Record::Cancel(..) | Record::Closed(..) => Class::Control,
            Record::Item(slot, _) if again(slot) => class,
            Record::Item(slot, body)
                if self.ends[id].left(slot.key()).items_and_parts() == 0 && body.len() <= URGENT_ITEM =>
            {
                Class::Urgent
            }
            Record::Reply(_, _, len, _) if len as usize <= URGENT_ITEM => Class::Urgent,
            _ => Class::Bulk,
        };
        assert!(class == expected, "{class:?}: {}", brief(&record));
        let now = self.now;
        self.trace
            .say(now, || format!("end {id} wrote {}", brief(&record)));
        match record {
            Record::Open(slot, _, item) => {
                let left = self.left_of(id, slot);
                left.opens += 1;
                left.items += u64::from(item.is_some());
            }
            Record::Item(slot, _) | Record::Part(slot, _) => {
                let left = self.left_of(id, slot);
                assert!(left.opens > 0, "an item of {slot:?} left before its claim");
                match record {
                    Record::Item(..) => left.items += 1,
                    _ => left.parts += 1,
                }
            }
            Record::End(slot, ..) => self.left_of(id, slot).ends += 1,
            Record::Call { id: call, bytes, .. } | Record::CallPart(call, bytes) => {
                *self.ends[id].call_bytes_left.entry(call).or_default() += bytes.len();
            }
            Record::Cancel(slot) | Record::Closed(slot, _) => {
                let left = self.left_of(id, slot);
                left.closes += 1;
                assert!(left.closes == 1, "{slot:?} was closed twice");
            }
            _ => {}
        }
    }

    fn left_of(&mut self, id: EndId, slot: SlotRef) -> &mut crate::end::Left {
        self.ends[id].left.entry(slot.key()).or_default()
    }
}

fn bytes_of(batch: &Batch, piece: &Piece) -> Bytes {
    let mut bytes = BytesMut::with_capacity(piece.bytes);
    for slice in batch.slices(piece) {
        bytes.extend_from_slice(slice);
    }
    assert_eq!(bytes.len(), piece.bytes, "bytes of a piece");
    bytes.freeze()
}

fn header(kind: FrameKind, payload: u32, number: u64) -> [u8; FRAME_HEADER] {
    FrameHeader {
        payload,
        kind,
        number,
    }
    .encode()
}

/// A record without its bytes.
pub(crate) fn brief(record: &Record<'_>) -> String {
    match record {
        Record::Open(slot, _, item) => format!("open {slot:?} with {:?} bytes", item.map(<[u8]>::len)),
        Record::Item(slot, body) => format!("item {slot:?} of {} bytes", body.len()),
        Record::Part(slot, body) => format!("part {slot:?} of {} bytes", body.len()),
        Record::Call {
            id, cast, len, bytes, ..
        } => format!("call {id} (cast: {cast}) {} of {len} bytes", bytes.len()),
        Record::CallPart(id, bytes) => format!("call part {id} of {} bytes", bytes.len()),
        Record::Reply(id, status, len, bytes) => {
            format!("reply {id} status {status} {} of {len}", bytes.len())
        }
        Record::ReplyPart(id, bytes) => format!("reply part {id} of {} bytes", bytes.len()),
        Record::Handlers(_) => "handlers".to_owned(),
        other => format!("{other:?}"),
    }
}
