//! The application that owns an anchor: it mints, reads at its own pace, stops, goes, and judges what it got.

use std::time::Duration;

use weir_proto::{
    Amount, Deliver, Extent, Progress, Time,
    wire::{self, ClaimToken, SlotRef},
};

use crate::{
    Party, PartyId,
    agenda::{EndId, Event},
    model::{Attempt, Stream},
    node::Deadline,
    rng::Rng,
    world::World,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Consumer {
    stream: usize,
    node: usize,
    slot: SlotRef,
    extent: Extent,
    plan: Plan,
    /// Its timer runs: wakes are left for later.
    paused: bool,
}

/// How it behaves.
#[derive(Debug)]
struct Plan {
    pauses: u64,
    pause: Duration,
    stop_at: Option<u64>,
    go_at: Option<u64>,
    /// Stops reading for a long time.
    rest_at: Option<u64>,
}

impl Plan {
    fn of(rng: &mut Rng) -> Self {
        let mut sometimes = |percent, most| rng.chance(percent).then(|| rng.below(most));
        let (stop_at, go_at, rest_at) = (sometimes(8, 20), sometimes(8, 30), sometimes(8, 10));
        Self {
            pauses: rng.pick(&[0, 10, 60]),
            pause: Duration::from_micros(1 << rng.within(4, 15)),
            stop_at,
            go_at,
            rest_at,
        }
    }
}

impl World {
    /// Mints a ticket over an end and plans who opens it, and when.
    pub(crate) fn mint(&mut self, end: EndId) {
        let node = self.ends[end].node;
        let Some(index) = self.nodes[node].allocate() else {
            return;
        };
        let (peer, lane) = (self.nodes[self.ends[end].peer].id, self.ends[end].lane);
        let token = ClaimToken(std::array::from_fn(|_| self.rng.next().to_le_bytes()[0]));
        let (window, now) = (self.mood.window, self.now);
        let progress_timeout = self
            .rng
            .chance(10)
            .then(|| self.rng.upto(Duration::from_secs(4)) + Duration::from_millis(1));
        let cell = &mut self.nodes[node].cells[index as usize];
        let generation = cell.slot.mint(token, peer, lane, window, now);
        let stream = self.streams.len();
        cell.end = Some(end);
        cell.stream = Some(stream);
        cell.progress_timeout = progress_timeout;
        self.ends[end].owned.insert(index);
        let slot = SlotRef { index, generation };
        let ticket = wire::Ticket {
            node: self.nodes[node].id,
            incarnation: 1,
            peer,
            slot,
            token,
            window_records: window.records,
            window_bytes: window.bytes,
            expires_unix_ms: 0,
        };
        let ticket = wire::Ticket::decode(&ticket.encode()).expect("a ticket reads back");
        self.streams
            .push(Stream::new(ticket, node, end, now, progress_timeout));
        self.add_deadline(node, now + self.mood.lifetime, Deadline::Claim(slot));
        if let Some(timeout) = progress_timeout {
            self.add_deadline(node, now + timeout, Deadline::Progress(slot));
        }
        let consumer = Consumer {
            stream,
            node,
            slot,
            extent: Extent::default(),
            plan: Plan::of(&mut self.rng),
            paused: false,
        };
        self.trace.say(now, || {
            format!("stream {stream} is minted at {slot:?} of node {node}: {consumer:?}")
        });
        self.add(PartyId::Consumer(stream), Party::Consumer(consumer));
        if self.rng.chance(10) {
            let at = now + self.rng.upto(Duration::from_secs(1));
            self.pending += 1;
            self.agenda.plan(at, Event::Act(stream));
        }
        self.plan_attempts(stream);
    }

    fn plan_attempts(&mut self, stream: usize) {
        let ticket = self.streams[stream].ticket.clone();
        let home = self.ends[self.streams[stream].end].peer;
        if self.rng.chance(95) {
            self.attempt(stream, ticket.clone(), home, true);
        }
        if self.rng.chance(8) {
            self.attempt(stream, ticket.clone(), home, true);
        }
        if self.rng.chance(8) {
            let mut wrong = ticket.clone();
            wrong.token.0[self.rng.index(16)] ^= 1;
            self.attempt(stream, wrong, home, false);
        }
        let others = self.nodes.len();
        if others > 2 && self.rng.chance(8) {
            let other = (0..others).find(|node| *node != home && *node != self.streams[stream].node);
            self.attempt(stream, ticket, other.unwrap_or(home), false);
        }
    }

    fn attempt(&mut self, stream: usize, ticket: wire::Ticket, node: usize, right: bool) {
        let late = self.mood.lifetime.saturating_mul(2);
        let after = if self.rng.chance(10) {
            self.rng.upto(late)
        } else {
            self.rng.upto(Duration::from_millis(20))
        };
        let attempt = self.attempts.len();
        self.attempts.push(Attempt::new(stream, ticket, node, right));
        self.streams[stream].attempts.push(attempt);
        self.pending += 1;
        self.agenda.plan(self.now + after, Event::Open(attempt));
    }

    /// A slot was claimed by a record on this end.
    pub(crate) fn claimed(&mut self, node: usize, slot: SlotRef, end: EndId) {
        let stream = self.nodes[node].cells[slot.index as usize]
            .stream
            .expect("a claimed slot is a stream's");
        let stream = &mut self.streams[stream];
        assert!(!stream.claimed, "{slot:?} is claimed twice");
        assert!(
            stream.end == end && stream.ticket.slot == slot,
            "claimed over another link"
        );
        assert!(
            !stream.gone && !stream.ended_here,
            "{slot:?} is claimed after its consumer went"
        );
        stream.claimed = true;
    }

    /// A consumer acts whatever it is waiting for.
    pub(crate) fn act(&mut self, stream: usize) {
        self.pending -= 1;
        let id = PartyId::Consumer(stream);
        let Some(Party::Consumer(mut consumer)) = self.parties.remove(&id) else {
            return;
        };
        if self.rng.chance(40) {
            consumer.stop(self);
            self.parties.insert(id, Party::Consumer(consumer));
        } else {
            consumer.go(self);
            self.woken.remove(&id);
            self.timers.remove(&id);
        }
    }
}

impl Consumer {
    /// Reads as far as it can; `true` when it is done.
    pub(crate) fn poll(&mut self, world: &mut World, timed: bool) -> bool {
        if self.paused && !timed {
            return false;
        }
        self.paused = false;
        loop {
            let id = PartyId::Consumer(self.stream);
            let cell = &mut world.nodes[self.node].cells[self.slot.index as usize];
            let (deliver, event) = cell.slot.take(self.slot.generation, &mut self.extent, || id);
            match deliver {
                Deliver::Records => {
                    let before = world.streams[self.stream].taken.records;
                    self.read(world);
                    world.settle(self.node, self.slot.index, event);
                    if self.react(world, before) {
                        return true;
                    }
                    if self.paused {
                        return false;
                    }
                }
                Deliver::Ended(ending, delivered) => {
                    let (now, stream) = (world.now, self.stream);
                    world.trace.say(now, || {
                        format!("stream {stream} ended {ending:?} after {delivered}")
                    });
                    world.streams[stream].ends(&world.attempts, &ending, delivered, now);
                    world.settle(self.node, self.slot.index, event);
                    return true;
                }
                Deliver::Pending => {
                    world.settle(self.node, self.slot.index, event);
                    return false;
                }
            }
        }
    }

    fn read(&mut self, world: &mut World) {
        let stream = &mut world.streams[self.stream];
        for item in self.extent.by_ref() {
            let at = usize::try_from(stream.taken.records).unwrap_or(usize::MAX);
            stream.deliver(&world.attempts, at, &item);
            stream.taken.records += 1;
            stream.taken.bytes += item.len() as u64;
        }
    }

    /// Does what the plan says once records came; `true` when it goes.
    fn react(&mut self, world: &mut World, before: u64) -> bool {
        let taken = world.streams[self.stream].taken.records;
        let passed = |at: Option<u64>| at.is_some_and(|at| (before..taken).contains(&at));
        if passed(self.plan.go_at) {
            self.go(world);
            return true;
        }
        if passed(self.plan.stop_at) {
            self.stop(world);
        }
        let pause = if passed(self.plan.rest_at) {
            Some(Duration::from_secs(20))
        } else {
            world
                .rng
                .chance(self.plan.pauses)
                .then(|| world.rng.upto(self.plan.pause))
        };
        if let Some(pause) = pause {
            self.paused = true;
            world.timer(PartyId::Consumer(self.stream), pause);
        }
        false
    }

    fn stop(&self, world: &mut World) {
        world.streams[self.stream].stopped = true;
        let event = world.nodes[self.node].cells[self.slot.index as usize]
            .slot
            .stop(self.slot.generation);
        world.settle(self.node, self.slot.index, event);
    }

    fn go(&mut self, world: &mut World) {
        let (now, stream) = (world.now, self.stream);
        world
            .trace
            .say(now, || format!("the consumer of stream {stream} goes"));
        world.streams[stream].gone = true;
        let slot = &mut world.nodes[self.node].cells[self.slot.index as usize].slot;
        assert_eq!(
            slot.delivered(self.slot.generation),
            world.streams[stream].taken.records
        );
        let event = slot.go(self.slot.generation);
        world.settle(self.node, self.slot.index, event);
    }

    /// It waits for records or the end; if either is there, a wake was lost.
    pub(crate) fn check(&self, world: &World) {
        if self.paused {
            return;
        }
        let cell = &world.nodes[self.node].cells[self.slot.index as usize];
        let marked = cell
            .end
            .is_some_and(|end| world.ends[end].dirty.contains(&self.slot.index));
        match cell.slot.progress(self.slot.generation) {
            Progress::Over => panic!("stream {} ended and its consumer sleeps", self.stream),
            Progress::Flowing if !marked => panic!(
                "stream {} has mail, or a grant due that no mark tells of",
                self.stream
            ),
            _ => {}
        }
    }
}

impl Stream {
    fn new(
        ticket: wire::Ticket,
        node: usize,
        end: EndId,
        minted: Time,
        progress_timeout: Option<Duration>,
    ) -> Self {
        let window = weir_proto::Window {
            records: ticket.window_records,
            bytes: ticket.window_bytes,
        };
        Self {
            ticket,
            node,
            end,
            minted,
            claimed: false,
            lost: false,
            stopped: false,
            gone: false,
            ended_here: false,
            progress_timeout,
            taken: Amount::default(),
            granted: Amount::default().plus(window),
            received: Amount::default(),
            end_came: false,
            over: None,
            attempts: Vec::new(),
            candidates: Vec::new(),
        }
    }
}

impl Attempt {
    fn new(stream: usize, ticket: wire::Ticket, node: usize, right: bool) -> Self {
        Self {
            stream,
            ticket,
            node,
            right,
            open: None,
            sent: Vec::new(),
            ended: None,
            fate: None,
        }
    }
}
