//! An operation script over a pair: bytes say what two ends of a link do, in which order, and how their bytes are cut.
//!
//! Both ends keep the rules, so a violation is a fault. Invariant: every stream's items arrive whole and in order, an
//! end that says `Finished` comes after all of them, and when both ends are done nothing is left on either.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use weir_proto::{
    Deliver, End, Ending, Enqueued, Extent, SendRefused, StreamKey, Window, wire::ReplyStatus, wire::SlotRef,
};

use crate::Side;

const SLOTS: u32 = 4;
const WINDOW: Window = Window {
    records: 6,
    bytes: 80_000,
};
/// Rounds in which everything must have come to its end once nobody adds to it.
const SETTLED_AFTER: usize = 200;

#[derive(Debug)]
struct Stream {
    slot: SlotRef,
    key: StreamKey,
    /// Length and fill of items that were sent and not received.
    sent: VecDeque<(usize, u8)>,
    count: u8,
    /// The producer still has its sender.
    held: bool,
    /// The consumer has not seen an ending and has not gone.
    read: bool,
}

/// Two ends; streams go from `producer` to `consumer`, calls from `consumer` to `producer`.
struct Pair {
    consumer: Side,
    producer: Side,
    to_consumer: BytesMut,
    to_producer: BytesMut,
    /// What has arrived of each direction.
    at_consumer: BytesMut,
    at_producer: BytesMut,
    streams: Vec<Stream>,
    calls: Vec<(u64, usize)>,
}

/// Runs a script, then lets both ends finish.
///
/// # Panics
/// When the invariant of the module does not hold.
pub fn pair(script: &[u8]) {
    let mut pair = Pair {
        consumer: Side::new(SLOTS),
        producer: Side::new(0),
        to_consumer: BytesMut::new(),
        to_producer: BytesMut::new(),
        at_consumer: BytesMut::new(),
        at_producer: BytesMut::new(),
        streams: Vec::new(),
        calls: Vec::new(),
    };
    for step in script.chunks_exact(3) {
        pair.step(step[0], usize::from(step[1]), usize::from(step[2]));
    }
    pair.finish();
}

impl Pair {
    fn step(&mut self, what: u8, a: usize, b: usize) {
        let len = a << (b % 10);
        match what % 16 {
            0 => self.open(),
            1..=3 => self.send(b, len),
            4 => self.end(b, a),
            5 => self.each(b, |pair, stream| pair.consumer.stop(stream.slot)),
            6 => self.each(b, |pair, stream| {
                pair.consumer.go(stream.slot);
                stream.read = false;
            }),
            7 | 8 => self.each(b, Self::take),
            9 => drop(self.consumer.write(&mut self.to_producer)),
            10 => drop(self.producer.write(&mut self.to_consumer)),
            11 => self.carry(len, len),
            12 => self.call(len),
            13 => self.answer(),
            14 => self.each(b, Self::withdraw),
            _ => {
                if let Some((id, _)) = self.calls.pop() {
                    self.consumer.outbox.abandon_call(id);
                }
            }
        }
    }

    fn each(&mut self, which: usize, act: impl FnOnce(&mut Self, &mut Stream)) {
        if self.streams.is_empty() {
            return;
        }
        let at = which % self.streams.len();
        let mut stream = self.streams.remove(at);
        act(self, &mut stream);
        self.streams.insert(at, stream);
    }

    fn open(&mut self) {
        let free = (0..SLOTS).find(|index| {
            let held = |stream: &Stream| stream.slot.index == *index && self.consumer.holds(stream.slot);
            !self.streams.iter().any(held)
        });
        let Some(index) = free else { return };
        let slot = self.consumer.mint(index, WINDOW);
        let key = self.producer.open(slot, WINDOW).expect("a fresh ticket");
        self.streams.push(Stream {
            slot,
            key,
            sent: VecDeque::new(),
            count: 0,
            held: true,
            read: true,
        });
    }

    fn send(&mut self, which: usize, len: usize) {
        self.each(which, |pair, stream| {
            if !stream.held {
                return;
            }
            let item = Bytes::from(vec![stream.count; len]);
            let outbox = &mut pair.producer.outbox;
            let taken = match outbox.send(stream.key, &item) {
                Err(SendRefused::NoRoom) => matches!(
                    outbox.enqueue(stream.key, item, None),
                    Ok(Enqueued::Sent | Enqueued::Waiting)
                ),
                other => other.is_ok(),
            };
            if taken {
                stream.sent.push_back((len, stream.count));
                stream.count = stream.count.wrapping_add(1);
            }
        });
    }

    fn withdraw(&mut self, stream: &mut Stream) {
        if !stream.held {
            return;
        }
        let before = self.producer.outbox.sent(stream.key);
        self.producer.outbox.withdraw(stream.key);
        if self.producer.outbox.sent(stream.key) < before {
            stream.sent.pop_back();
        }
    }

    fn end(&mut self, which: usize, how: usize) {
        self.each(which, |pair, stream| {
            if std::mem::take(&mut stream.held) {
                let end = match how % 4 {
                    0 => End::Detached,
                    1 => End::Failed(7, "x".repeat(how * 16)),
                    2 => End::Dropped,
                    _ => End::Finished,
                };
                pair.producer.outbox.end(stream.key, end);
                pair.producer.outbox.release(stream.key);
            }
        });
    }

    fn take(&mut self, stream: &mut Stream) {
        let mut extent = Extent::default();
        while stream.read {
            match self.consumer.take(stream.slot, &mut extent) {
                Deliver::Pending => return,
                Deliver::Records => {
                    for item in extent.by_ref() {
                        let (len, fill) = stream.sent.pop_front().expect("an item that was sent");
                        assert_eq!(item.len(), len);
                        assert!(item.iter().all(|byte| *byte == fill), "items mixed up");
                    }
                }
                Deliver::Ended(ending, _) => {
                    stream.read = false;
                    assert_ne!(ending, Ending::PeerLost);
                    assert!(
                        stream.sent.is_empty(),
                        "{ending:?} with {:?} to come",
                        stream.sent
                    );
                }
            }
        }
    }

    fn call(&mut self, len: usize) {
        if let Ok(id) = self
            .consumer
            .outbox
            .call("f", 5, Bytes::from(vec![1; len]), false)
        {
            self.calls.push((id, len));
        }
    }

    /// Answers the oldest request with a body twice as long.
    fn answer(&mut self) {
        if self.producer.requests.is_empty() {
            return;
        }
        let request = self.producer.requests.remove(0);
        let body = [&request.body[..], &request.body[..]].concat();
        let reply = Bytes::from(body);
        self.producer.outbox.reply(request.id, ReplyStatus::Ok, reply);
    }

    fn replies(&mut self) {
        let outbox = &mut self.consumer.outbox;
        self.calls.retain(|(id, len)| match outbox.reply_to(*id, || 0) {
            Ok(Some((ReplyStatus::Ok, body))) => {
                assert_eq!(body.len(), len * 2);
                false
            }
            Ok(None) => true,
            other => panic!("call {id}: {other:?}"),
        });
    }

    /// So many bytes arrive each way.
    fn carry(&mut self, to_consumer: usize, to_producer: usize) {
        for (from, at, most, side) in [
            (
                &mut self.to_consumer,
                &mut self.at_consumer,
                to_consumer,
                &mut self.consumer,
            ),
            (
                &mut self.to_producer,
                &mut self.at_producer,
                to_producer,
                &mut self.producer,
            ),
        ] {
            at.extend_from_slice(&from.split_to(most.min(from.len())));
            if let Err(violation) = side.read(at) {
                panic!("an honest end is accused: {violation}");
            }
        }
    }

    fn finish(&mut self) {
        for at in 0..self.streams.len() {
            self.end(at, 3);
        }
        for _ in 0..SETTLED_AFTER {
            self.consumer.write(&mut self.to_producer);
            self.producer.write(&mut self.to_consumer);
            self.carry(usize::MAX, usize::MAX);
            (0..self.producer.requests.len()).for_each(|_| self.answer());
            self.replies();
            for at in 0..self.streams.len() {
                self.each(at, Self::take);
            }
            let open = |stream: &Stream| stream.read || self.consumer.holds(stream.slot);
            self.streams.retain(open);
            if self.streams.is_empty() && self.consumer.is_quiet() && self.producer.is_quiet() {
                return;
            }
        }
        panic!("never done: {:?}, calls {:?}", self.streams, self.calls);
    }
}
