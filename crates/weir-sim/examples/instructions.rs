//! Scenarios of weir-proto for counting instructions: `instructions NAME ROUNDS`, no arguments to list the names.
//!
//! It prepares the same worlds whatever ROUNDS is and runs the scenario in the first ROUNDS of them, so that the
//! difference of two runs is the scenario alone. No clock, no chance, no threads. It prints the records of one round.

#![expect(clippy::print_stdout, reason = "what it did is its output")]

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use weir_proto::{Deliver, End, Extent, StreamKey, Window, wire::ReplyStatus, wire::SlotRef};
use weir_sim::Side;

/// Worlds that are prepared.
const WORLDS: usize = 4;
const WIDE: Window = Window {
    records: 1 << 20,
    bytes: 1 << 30,
};
const ITEM: [u8; 160] = [5; 160];
/// A first item; those of 1,000 streams fit into one urgent batch.
const FIRST: [u8; 16] = [4; 16];

type Scenario = (&'static str, fn(usize) -> u64);

const SCENARIOS: [Scenario; 5] = [
    ("stage", |rounds| measure(rounds, World::streaming, World::stage)),
    ("deliver", |rounds| measure(rounds, World::staged, World::deliver)),
    ("grants", |rounds| measure(rounds, World::drained, World::grant)),
    ("lifecycle", |rounds| {
        measure(rounds, World::warm, World::lifecycle)
    }),
    ("call", |rounds| measure(rounds, World::empty, World::call)),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next();
    let rounds = args.next().and_then(|rounds| rounds.parse().ok());
    let chosen = SCENARIOS
        .iter()
        .find(|(known, _)| Some(*known) == name.as_deref());
    match (chosen, rounds) {
        (Some((_, scenario)), Some(rounds)) => println!("{}", scenario(rounds)),
        _ => SCENARIOS.iter().for_each(|(name, _)| println!("{name}")),
    }
}

/// The records of one round.
fn measure(rounds: usize, prepare: fn() -> World, run: fn(&mut World) -> u64) -> u64 {
    let mut worlds: Vec<World> = (0..WORLDS).map(|_| prepare()).collect();
    let mut records = 0;
    for world in worlds.iter_mut().take(rounds) {
        records = black_box(run(black_box(world)));
    }
    // Dropping what a round left behind is not part of the scenario.
    std::mem::forget(worlds);
    records
}

/// A consumer's end, a producer's end, and their streams.
struct World {
    consumer: Side,
    producer: Side,
    wire: BytesMut,
    back: BytesMut,
    streams: Vec<(SlotRef, StreamKey)>,
    extent: Extent,
}

impl World {
    fn empty() -> Self {
        Self {
            consumer: Side::new(1000),
            producer: Side::new(0),
            wire: BytesMut::with_capacity(4 << 20),
            back: BytesMut::with_capacity(1 << 20),
            streams: Vec::new(),
            extent: Extent::default(),
        }
    }

    fn open(&mut self, streams: u32) {
        for index in 0..streams {
            let slot = self.consumer.mint(index, WIDE);
            let key = self.producer.open(slot, WIDE).expect("a fresh ticket");
            self.producer.outbox.send(key, &FIRST).expect("room");
            self.streams.push((slot, key));
        }
    }

    /// 100 streams that are past their first item, with buffers as large as they get.
    fn streaming() -> Self {
        let mut world = Self::empty();
        world.open(100);
        world.exchange();
        world.stage();
        world.deliver();
        world.exchange();
        world
    }

    fn staged() -> Self {
        let mut world = Self::streaming();
        world.stage();
        world
    }

    /// 1,000 streams whose consumers have just read.
    fn drained() -> Self {
        let mut world = Self::empty();
        world.open(1000);
        world.exchange();
        for (_, key) in &world.streams {
            world.producer.outbox.send(*key, &ITEM).expect("room");
        }
        world.producer.write(&mut world.wire);
        world.deliver();
        world
    }

    /// A table and maps that have held 1,000 streams before.
    fn warm() -> Self {
        let mut world = Self::empty();
        world.lifecycle();
        world
    }

    /// Everything travels and is read, both ways.
    fn exchange(&mut self) -> u64 {
        let mut records = 0;
        loop {
            let moved = self.producer.write(&mut self.wire) + self.consumer.write(&mut self.back);
            records += moved;
            self.consumer.read(&mut self.wire).expect("an honest producer");
            self.producer.read(&mut self.back).expect("an honest consumer");
            for at in 0..self.streams.len() {
                self.take(at);
            }
            if moved == 0 {
                return records;
            }
        }
    }

    fn take(&mut self, at: usize) {
        let (slot, _) = self.streams[at];
        while self.consumer.holds(slot) {
            match self.consumer.take(slot, &mut self.extent) {
                Deliver::Records => drop(black_box(
                    self.extent.by_ref().map(|item| item.len()).sum::<usize>(),
                )),
                Deliver::Ended(..) | Deliver::Pending => return,
            }
        }
    }

    /// Stages 1,000 small items over the streams and takes them as bytes.
    fn stage(&mut self) -> u64 {
        for _ in 0..10 {
            for (_, key) in &self.streams {
                self.producer.outbox.send(*key, &ITEM).expect("room");
            }
        }
        self.producer.write(&mut self.wire)
    }

    /// Parses what lies on the wire, delivers it into the slots, and reads it there.
    fn deliver(&mut self) -> u64 {
        let records = self.consumer.read(&mut self.wire).expect("an honest producer");
        for at in 0..self.streams.len() {
            self.take(at);
        }
        records
    }

    /// Renders the grants that are due and applies them.
    fn grant(&mut self) -> u64 {
        self.consumer.write(&mut self.back);
        self.producer.read(&mut self.back).expect("an honest consumer")
    }

    /// Opens 1,000 streams with one item each, finishes, reads and closes them.
    fn lifecycle(&mut self) -> u64 {
        self.open(1000);
        for (_, key) in &self.streams {
            self.producer.outbox.end(*key, End::Finished);
            self.producer.outbox.release(*key);
        }
        let records = self.exchange();
        assert!(self.producer.is_quiet(), "a stream is left");
        self.streams.clear();
        records
    }

    /// A call with a request of 1 MiB and a small reply.
    fn call(&mut self) -> u64 {
        let body = Bytes::from(vec![3; 1 << 20]);
        let outbox = &mut self.consumer.outbox;
        let id = outbox.call("f", 1000, body, false).expect("credit for a call");
        let mut records = self.exchange();
        let request = self.producer.requests.pop().expect("the request");
        let reply = request.body.slice(..100);
        self.producer.outbox.reply(request.id, ReplyStatus::Ok, reply);
        records += self.exchange();
        let reply = self.consumer.outbox.reply_to(id, || 0);
        assert!(matches!(reply, Ok(Some(_))), "no reply");
        records
    }
}
