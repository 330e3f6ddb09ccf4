//! One end of a link without tasks, time or chance: an outbox, a few consumer slots, and the bytes between.
//!
//! It composes `weir_proto` as the driver does and judges nothing; fuzz targets and instruction counts drive it.

use bytes::{Bytes, BytesMut};
use weir_proto::{
    Amount, Batch, CallRequest, Claim, ConsumerEvent, ConsumerSlot, Deliver, Extent, Inbox, LaneKey, Outbox,
    Received, StreamFate, StreamKey, Time, Turn, Violation, Window,
    wire::{ClaimToken, NodeId, Record, Records, ReplyStatus, SlotRef},
};

const LANE: LaneKey = LaneKey(1);
const NODE: NodeId = NodeId([7; 16]);
/// The claim token of every stream of a [`Side`].
pub const TOKEN: ClaimToken = ClaimToken([1; 16]);

/// See the module.
#[derive(Debug)]
pub struct Side {
    /// What it sends.
    pub outbox: Outbox<u32>,
    /// Calls of the other side that arrived whole and were not answered yet.
    pub requests: Vec<CallRequest>,
    slots: Vec<ConsumerSlot<u32>>,
    dirty: Vec<u32>,
    inbox: Inbox,
    turn: Turn<u32>,
    control: Batch,
    next_frame: u64,
}

impl Side {
    /// An end with so many consumer slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            outbox: Outbox::new(LANE),
            requests: Vec::new(),
            slots: (0..slots).map(|_| ConsumerSlot::default()).collect(),
            dirty: Vec::new(),
            inbox: Inbox::default(),
            turn: Turn::default(),
            control: Batch::new(usize::MAX),
            next_frame: 1,
        }
    }

    /// Mints a ticket for the free slot at `index`.
    pub fn mint(&mut self, index: u32, window: Window) -> SlotRef {
        let generation = self.slots[index as usize].mint(TOKEN, NODE, LANE, window, Time::ZERO);
        SlotRef { index, generation }
    }

    /// Opens a stream of the other side's.
    pub fn open(&mut self, slot: SlotRef, window: Window) -> Option<StreamKey> {
        self.outbox.open(slot, TOKEN, window, window).ok()
    }

    /// Whether the slot still holds this stream.
    #[must_use]
    pub fn holds(&self, slot: SlotRef) -> bool {
        self.slots[slot.index as usize].is(slot.generation)
    }

    /// What the consumer of `slot` finds.
    pub fn take(&mut self, slot: SlotRef, extent: &mut Extent) -> Deliver {
        let consumer = &mut self.slots[slot.index as usize];
        let (deliver, event) = consumer.take(slot.generation, extent, || slot.index);
        self.settle(slot.index, event);
        deliver
    }

    /// The consumer of `slot` asks to finish.
    pub fn stop(&mut self, slot: SlotRef) {
        let event = self.slots[slot.index as usize].stop(slot.generation);
        self.settle(slot.index, event);
    }

    /// The consumer of `slot` goes.
    pub fn go(&mut self, slot: SlotRef) {
        let event = self.slots[slot.index as usize].go(slot.generation);
        self.settle(slot.index, event);
    }

    fn settle(&mut self, index: u32, event: ConsumerEvent) {
        if event.mark.is_some() {
            self.dirty.push(index);
        }
    }

    /// Writes everything that may leave to `wire`; how many records that was.
    pub fn write(&mut self, wire: &mut BytesMut) -> u64 {
        for index in self.dirty.drain(..) {
            self.slots[index as usize].render(index, LANE, &mut self.control, Time::ZERO);
        }
        self.outbox.take(&mut self.turn);
        let mut records = 0;
        for batch in [&mut self.control, &mut self.turn.urgent, &mut self.turn.bulk] {
            records += batch.records();
            while let Some(piece) = batch.piece(64 * 1024, &mut self.next_frame) {
                for slice in batch.slices(&piece) {
                    wire.extend_from_slice(slice);
                }
            }
            batch.clear();
        }
        self.outbox.turn_written(&mut self.turn.wake);
        self.turn.wake.clear();
        records
    }

    /// Takes every whole frame out of `wire`; how many records that was.
    ///
    /// # Errors
    /// The other side broke the protocol.
    pub fn read(&mut self, wire: &mut BytesMut) -> Result<u64, Violation> {
        let mut records = 0;
        while let Some(received) = self.inbox.next(wire)? {
            if let Received::Batch(frame) = received {
                records += self.frame(&frame)?;
            }
        }
        Ok(records)
    }

    /// Takes the records of one frame.
    ///
    /// # Errors
    /// The other side broke the protocol.
    pub fn frame(&mut self, frame: &Bytes) -> Result<u64, Violation> {
        let mut records = 0;
        for record in Records::new(frame) {
            match record? {
                Record::Item(slot, body) => self.item(slot, body, frame, true)?,
                Record::Part(slot, body) => self.item(slot, body, frame, false)?,
                Record::Open(slot, token, item) => {
                    self.claim(slot, token)?;
                    item.map_or(Ok(()), |body| self.item(slot, body, frame, true))?;
                }
                Record::End(slot, code, failure, message) => {
                    let (_, event) = self
                        .slot(slot)?
                        .end(slot.generation, LANE, code, failure, message);
                    self.settle(slot.index, event);
                }
                other => self.control(other)?,
            }
            records += 1;
        }
        Ok(records)
    }

    fn slot(&mut self, slot: SlotRef) -> Result<&mut ConsumerSlot<u32>, Violation> {
        let outside = Violation::SlotOutOfTable(slot.index);
        self.slots.get_mut(slot.index as usize).ok_or(outside)
    }

    fn item(&mut self, slot: SlotRef, body: &[u8], frame: &Bytes, last: bool) -> Result<(), Violation> {
        let consumer = self.slot(slot)?;
        consumer.item(slot.generation, LANE, body, frame, last, Time::ZERO)?;
        Ok(())
    }

    fn claim(&mut self, slot: SlotRef, token: ClaimToken) -> Result<(), Violation> {
        match self
            .slot(slot)?
            .claim(slot.generation, token, NODE, LANE, Time::ZERO)
        {
            Claim::Claimed => self.dirty.push(slot.index),
            Claim::Repeated => {}
            Claim::Refused(code) => self.outbox.refuse(slot, code)?,
        }
        Ok(())
    }

    /// Records of the other side's consumers, and calls.
    fn control(&mut self, record: Record<'_>) -> Result<(), Violation> {
        let outbox = &mut self.outbox;
        match record {
            Record::Grant(slot, records, bytes) => drop(outbox.grant(slot, Amount { records, bytes })?),
            Record::Stop(slot) => drop(outbox.stop(slot)),
            Record::Cancel(slot) => drop(outbox.over(slot, StreamFate::Cancelled)),
            Record::Closed(slot, taken) => drop(outbox.over(slot, StreamFate::Closed(taken))),
            Record::Refused(slot, code) => drop(outbox.over(slot, StreamFate::Refused(code))),
            Record::Call {
                id,
                cast,
                deadline_ms,
                len,
                name,
                bytes,
            } => {
                let head = CallRequest {
                    id,
                    cast,
                    deadline_ms,
                    name: name.to_owned(),
                    body: Bytes::new(),
                };
                self.requests.extend(outbox.call_begins(head, len, bytes)?);
            }
            Record::CallPart(id, bytes) => self.requests.extend(outbox.call_arrives(id, bytes)?),
            Record::Reply(id, status, len, bytes) => drop(outbox.reply_begins(id, status, len, bytes)?),
            Record::ReplyPart(id, bytes) => drop(outbox.reply_arrives(id, bytes)?),
            Record::CallCancel(id) => {
                self.requests.retain(|request| request.id != id);
                outbox.reply(id, ReplyStatus::Failed, Bytes::new());
            }
            Record::Handlers(_)
            | Record::Item(..)
            | Record::Part(..)
            | Record::Open(..)
            | Record::End(..) => {}
        }
        Ok(())
    }

    /// Nothing is open, in flight or waiting here.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let outbox = &self.outbox;
        (outbox.streams(), outbox.calls_in_flight(), outbox.waiting()) == (0, 0, (0, 0)) && !outbox.has_work()
    }
}
