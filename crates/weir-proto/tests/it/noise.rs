//! Well-formed records in no sensible order, between operations of this side: nothing panics, what waits is bounded,
//! and when the link is lost nothing is left.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use weir_proto::{
    Amount, Batch, CALLS_IN_FLIGHT, CallRequest, ConsumerSlot, End, Ending, Extent, Outbox, StreamFate,
    StreamKey, Time, Violation,
    wire::{Record, RecordHeader, Records, ReplyStatus, SlotRef},
};

use crate::{
    codec::{Raw, record},
    pair::{LANE, PEER, WINDOW, outbox, take, token},
};

#[derive(Debug, Clone)]
enum Step {
    /// A record of the peer: small slots and ids, so that it often hits something.
    Peer(Raw, u8),
    Open(u8),
    Send(u8, usize),
    End(u8),
    Release(u8),
    Call(usize),
    Reply(u8, usize),
    Abandon(u8),
    Turn,
    Mint(u8),
    Take(u8),
    EndHere(u8),
    Go(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (record(), any::<u8>()).prop_map(|(raw, bits)| Step::Peer(raw, bits)),
        1 => any::<u8>().prop_map(Step::Open),
        3 => (any::<u8>(), 0..70_000_usize).prop_map(|(which, len)| Step::Send(which, len)),
        1 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::Release),
        1 => (0..70_000_usize).prop_map(Step::Call),
        1 => (any::<u8>(), 0..70_000_usize).prop_map(|(id, len)| Step::Reply(id, len)),
        1 => any::<u8>().prop_map(Step::Abandon),
        2 => Just(Step::Turn),
        2 => any::<u8>().prop_map(Step::Mint),
        2 => any::<u8>().prop_map(Step::Take),
        1 => any::<u8>().prop_map(Step::EndHere),
        1 => any::<u8>().prop_map(Step::Go),
    ]
}

struct Side {
    outbox: Outbox<u8>,
    slots: Vec<(ConsumerSlot<u8>, u16)>,
    keys: Vec<StreamKey>,
}

fn place(bits: u8) -> SlotRef {
    SlotRef {
        index: u32::from(bits % 4),
        generation: u16::from(bits / 64 % 2) + 1,
    }
}

impl Side {
    fn step(&mut self, step: Step) -> Result<(), Violation> {
        let at = |which: u8| usize::from(which % 4);
        match step {
            Step::Peer(raw, bits) => self.peer(raw, bits)?,
            Step::Open(bits) => self
                .keys
                .extend(self.outbox.open(place(bits), token(1), WINDOW, WINDOW)),
            Step::Send(which, len) => {
                if let Some(key) = self.keys.get(at(which)).copied() {
                    let item = Bytes::from(vec![which; len]);
                    if self.outbox.send(key, &item).is_err() {
                        let _refused = self.outbox.enqueue(key, item, Some(which));
                    }
                    if which > 200 {
                        self.outbox.withdraw(key);
                    }
                }
            }
            Step::End(which) => self
                .keys
                .get(at(which))
                .into_iter()
                .for_each(|key| self.outbox.end(*key, End::Finished)),
            Step::Release(which) => {
                if at(which) < self.keys.len() {
                    let key = self.keys.remove(at(which));
                    self.outbox.end(key, End::Dropped);
                    self.outbox.release(key);
                }
            }
            Step::Call(len) => drop(self.outbox.call("name", 1, vec![0; len].into(), len % 2 == 0)),
            Step::Reply(id, len) => {
                self.outbox
                    .reply(u64::from(id % 8), ReplyStatus::Ok, vec![0; len].into())
            }
            Step::Abandon(id) => self.outbox.abandon_call(u64::from(id % 8)),
            Step::Turn => {
                let mut turn = take(&mut self.outbox);
                self.outbox.turn_written(&mut turn.wake);
                let mut batch = Batch::new(usize::MAX);
                for (index, (slot, _)) in (0..).zip(&mut self.slots) {
                    slot.render(index, LANE, &mut batch, Time::ZERO);
                }
            }
            Step::Mint(which) => {
                let (slot, generation) = &mut self.slots[at(which)];
                if !slot.is(*generation) {
                    *generation = slot.mint(token(1), PEER, LANE, WINDOW, Time::ZERO);
                }
            }
            Step::Take(which) => {
                let (slot, generation) = &mut self.slots[at(which)];
                let mut extent = Extent::default();
                let (_, _event) = slot.take(*generation, &mut extent, || which);
                walk(extent);
            }
            Step::EndHere(which) => {
                let (slot, generation) = &mut self.slots[at(which)];
                let (_, _event) = slot.end_here(*generation, Ending::Expired);
            }
            Step::Go(which) => {
                let (slot, generation) = &mut self.slots[at(which)];
                let _event = slot.go(*generation);
            }
        }
        Ok(())
    }

    fn peer(&mut self, (_, kind, mut body): Raw, bits: u8) -> Result<(), Violation> {
        if kind.byte() >= 32 && body.len() >= 8 {
            body[..8].copy_from_slice(&u64::from(bits % 8).to_le_bytes());
        } else if kind.byte() <= 2 && bits > 100 {
            body[..16].fill(1);
        } else if kind.byte() == 16 && bits > 100 {
            body[2..8].fill(0);
            body[11..16].fill(0);
        }
        let header = RecordHeader {
            slot: place(bits),
            kind,
            body: body.len() as u16,
        };
        let bytes = Bytes::from([&header.encode()[..], &body].concat());
        Records::new(&bytes).try_for_each(|record| self.record(record?, &bytes))
    }

    fn record(&mut self, record: Record<'_>, frame: &Bytes) -> Result<(), Violation> {
        let outbox = &mut self.outbox;
        match record {
            Record::Open(slot, token, item) => {
                let consumer = &mut self.slots[slot.index as usize].0;
                if let weir_proto::Claim::Refused(code) =
                    consumer.claim(slot.generation, token, PEER, LANE, Time::ZERO)
                {
                    outbox.refuse(slot, code)?;
                }
                item.map_or(Ok(()), |body| self.item(slot, body, frame, true))
            }
            Record::Item(slot, body) => self.item(slot, body, frame, true),
            Record::Part(slot, body) => self.item(slot, body, frame, false),
            Record::End(slot, code, failure, message) => {
                let consumer = &mut self.slots[slot.index as usize].0;
                let (_, _event) = consumer.end(slot.generation, LANE, code, failure, message);
                Ok(())
            }
            Record::Grant(slot, records, bytes) => outbox.grant(slot, Amount { records, bytes }).map(drop),
            Record::Stop(slot) => self.heard(|outbox| outbox.stop(slot)),
            Record::Cancel(slot) => self.heard(|outbox| outbox.over(slot, StreamFate::Cancelled)),
            Record::Closed(slot, taken) => self.heard(|outbox| outbox.over(slot, StreamFate::Closed(taken))),
            Record::Refused(slot, code) => self.heard(|outbox| outbox.over(slot, StreamFate::Refused(code))),
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
                outbox.call_begins(head, len, bytes).map(drop)
            }
            Record::CallPart(id, bytes) => outbox.call_arrives(id, bytes).map(drop),
            Record::Reply(id, status, len, bytes) => outbox.reply_begins(id, status, len, bytes).map(drop),
            Record::ReplyPart(id, bytes) => outbox.reply_arrives(id, bytes).map(drop),
            Record::CallCancel(id) => {
                outbox.reply(id, ReplyStatus::Failed, Bytes::new());
                Ok(())
            }
            Record::Handlers(_) => Ok(()),
        }
    }

    fn heard(&mut self, say: impl FnOnce(&mut Outbox<u8>) -> Option<u8>) -> Result<(), Violation> {
        let _waker = say(&mut self.outbox);
        Ok(())
    }

    fn item(&mut self, slot: SlotRef, body: &[u8], frame: &Bytes, last: bool) -> Result<(), Violation> {
        let consumer = &mut self.slots[slot.index as usize].0;
        consumer
            .item(slot.generation, LANE, body, frame, last, Time::ZERO)
            .map(drop)
    }
}

fn walk(mut extent: Extent) {
    let announced = extent.remaining();
    assert_eq!(extent.by_ref().count(), announced);
}

proptest! {
    #[test]
    fn nothing_a_peer_says_does_harm(steps in vec(step(), 1..120)) {
        let slots = (0..4).map(|_| (ConsumerSlot::default(), 0)).collect();
        let mut side = Side { outbox: outbox(), slots, keys: Vec::new() };
        for step in steps {
            let ours = !matches!(step, Step::Peer(..));
            match side.step(step) {
                Ok(()) => {}
                Err(violation) => {
                    prop_assert!(!ours, "{violation} by ourselves");
                    break;
                }
            }
            let (items, _) = side.outbox.waiting();
            prop_assert!(items <= side.outbox.streams() + side.outbox.calls_in_flight() + CALLS_IN_FLIGHT);
        }
        let mut wake = Vec::new();
        side.outbox.lose(&mut wake);
        side.keys.iter().for_each(|key| side.outbox.release(*key));
        (1..200).for_each(|id| side.outbox.abandon_call(id));
        prop_assert_eq!((side.outbox.streams(), side.outbox.calls_in_flight()), (0, 0));
        prop_assert_eq!((side.outbox.waiting(), side.outbox.has_work()), ((0, 0), false));
        for (slot, generation) in &mut side.slots {
            let (_, _event) = slot.lose(LANE);
            let _event = slot.go(*generation);
            prop_assert!(!slot.is(*generation), "a slot outlives its link");
        }
    }
}
