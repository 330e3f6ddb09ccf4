//! A world: nodes, links, parties, and the loop that lets one event happen after the other.
//!
//! Its links are composed of `weir_proto` parts as the driver composes them; a party acts only when one of its wakers
//! was woken or its timer fired. Invariant: everything follows from the seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_proto::{ConsumerEvent, Liveness, Mark, Outbox, Time, Window};

use crate::{
    Party, PartyId, Summary,
    agenda::{Agenda, EndId, Event},
    end::End,
    model::{Attempt, Call, Stream},
    node::Node,
    pipe::Pipe,
    rng::Rng,
    trace::Trace,
};

/// A link that is silent this long is dead.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// A quiet world must be done within this time after its last operation.
const SETTLES: Duration = Duration::from_secs(400);

/// What differs from world to world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mood {
    pub(crate) operations: u64,
    pub(crate) gap: Duration,
    pub(crate) window: Window,
    pub(crate) max_item: usize,
    pub(crate) max_call: usize,
    pub(crate) piece: usize,
    pub(crate) linger: Duration,
    pub(crate) lifetime: Duration,
    pub(crate) cuts: u64,
    pub(crate) slow: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    pub(crate) mood: Mood,
    pub(crate) agenda: Agenda,
    pub(crate) woken: BTreeSet<PartyId>,
    pub(crate) timers: BTreeMap<PartyId, Time>,
    pub(crate) parties: BTreeMap<PartyId, Party>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ends: Vec<End>,
    /// What each end wrote and its twin has not read.
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) calls: Vec<Call>,
    pub(crate) operations_left: u64,
    /// Attempts and answers that are planned and have not happened.
    pub(crate) pending: u64,
    pub(crate) records: u64,
    pub(crate) summary: Summary,
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mood = Mood::of(&mut rng);
        let count = if rng.chance(60) { 2 } else { 3 };
        let nodes = (0..count).map(|index| Node::new(index, &mut rng)).collect();
        let mut world = Self {
            now: Time::ZERO,
            trace: Trace::new(traced),
            agenda: Agenda::default(),
            woken: BTreeSet::new(),
            timers: BTreeMap::new(),
            parties: BTreeMap::new(),
            nodes,
            ends: Vec::new(),
            pipes: Vec::new(),
            streams: Vec::new(),
            attempts: Vec::new(),
            calls: Vec::new(),
            operations_left: mood.operations,
            pending: 0,
            records: 0,
            summary: Summary::default(),
            mood,
            rng,
        };
        for a in 0..count {
            for b in a + 1..count {
                world.connect(a, b);
            }
        }
        world.agenda.plan(Time::ZERO, Event::Operation);
        world
    }

    /// Lives until nothing is left to do, then checks that nothing is left.
    pub(crate) fn live(mut self) -> Summary {
        let mut deadline = None;
        while let Some((at, event)) = self.agenda.next() {
            self.now = at;
            self.happen(event);
            self.summary.events += 1;
            self.check_step();
            if self.is_quiet() {
                let since = *deadline.get_or_insert(self.now + Duration::from_secs(200));
                if self.now >= since {
                    break;
                }
            } else {
                deadline = None;
                let idle = self.now.since(self.summary.last_operation);
                assert!(
                    self.operations_left > 0 || idle < SETTLES,
                    "stuck: {}",
                    self.stuck()
                );
            }
        }
        self.check_end();
        self.summary.count(&self.streams);
        std::mem::take(&mut self.summary)
    }

    /// Only keepalives and deadlines are left.
    fn is_quiet(&self) -> bool {
        self.operations_left == 0 && self.pending == 0 && self.parties.is_empty()
    }

    fn stuck(&self) -> String {
        let mut what = format!("{} planned acts, parties:", self.pending);
        for (id, party) in self.parties.iter().take(8) {
            what.push_str(&format!(" {id:?} {party:?};"));
        }
        what
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Operation => self.operation(),
            Event::Run(party) => {
                if self.woken.remove(&party) {
                    self.run(party, false);
                }
            }
            Event::Timer(party) => {
                if self.timers.get(&party) == Some(&self.now) {
                    self.timers.remove(&party);
                    self.run(party, true);
                }
            }
            Event::Open(attempt) => self.open(attempt),
            Event::Act(consumer) => self.act(consumer),
            Event::Answer(end, id) => self.answer(end, id),
            Event::Write(end) => self.write(end),
            Event::Arrive(end) => self.arrive(end),
            Event::Judge(end) => self.judge(end),
            Event::Deadlines(node) => self.deadlines(node),
            Event::Lose(end) => self.lose(end, "the connection broke"),
        }
    }

    fn run(&mut self, id: PartyId, timed: bool) {
        let Some(mut party) = self.parties.remove(&id) else {
            return;
        };
        let over = match &mut party {
            Party::Consumer(consumer) => consumer.poll(self, timed),
            Party::Producer(producer) => producer.poll(self, timed),
            Party::Caller(caller) => caller.poll(self, timed),
            Party::Flusher(flusher) => flusher.poll(self),
        };
        if over {
            self.woken.remove(&id);
            self.timers.remove(&id);
        } else {
            self.parties.insert(id, party);
        }
    }

    /// Adds a party and lets it run for the first time.
    pub(crate) fn add(&mut self, id: PartyId, party: Party) {
        self.parties.insert(id, party);
        self.wake(id);
    }

    pub(crate) fn wake(&mut self, id: PartyId) {
        if self.woken.insert(id) {
            let at = self.now + self.rng.upto(Duration::from_micros(200));
            self.agenda.plan(at, Event::Run(id));
        }
    }

    pub(crate) fn wake_all(&mut self, wakers: impl IntoIterator<Item = PartyId>) {
        wakers.into_iter().for_each(|waker| self.wake(waker));
    }

    pub(crate) fn timer(&mut self, id: PartyId, after: Duration) {
        let at = self.now + after.max(Duration::from_nanos(1));
        self.timers.insert(id, at);
        self.agenda.plan(at, Event::Timer(id));
    }

    /// Runs `change` on an outbox and wakes its writer if it sleeps and there is work now.
    pub(crate) fn stage<R>(&mut self, end: EndId, change: impl FnOnce(&mut Outbox<PartyId>) -> R) -> R {
        let outbox = &mut self.ends[end].outbox;
        let result = change(outbox);
        if outbox.must_wake() {
            self.wake_writer(end);
        }
        result
    }

    pub(crate) fn wake_writer(&mut self, end: EndId) {
        if !std::mem::replace(&mut self.ends[end].writer.woken, true) {
            let at = self.now + self.rng.upto(Duration::from_micros(100));
            self.agenda.plan(at, Event::Write(end));
        }
    }

    /// The slot has something due to the peer.
    pub(crate) fn mark(&mut self, end: EndId, index: u32, mark: Mark) {
        self.ends[end].dirty.insert(index);
        if Some(mark) > self.ends[end].marked {
            self.ends[end].marked = Some(mark);
            self.wake_writer(end);
        }
    }

    /// Does what an operation on a slot asks for.
    pub(crate) fn settle(&mut self, node: usize, index: u32, event: ConsumerEvent) {
        let cell = &mut self.nodes[node].cells[index as usize];
        let (Some(end), Some(stream)) = (cell.end, cell.stream) else {
            assert_eq!(
                event,
                ConsumerEvent::default(),
                "slot {index} of node {node} is free"
            );
            return;
        };
        if event.freed {
            cell.end = None;
            cell.stream = None;
            cell.progress_timeout = None;
            self.nodes[node].allocator.free(index);
            self.ends[end].owned.remove(&index);
            let stream = &self.streams[stream];
            assert!(
                stream.over.is_some() || stream.gone,
                "slot {index} is free before its consumer is done"
            );
            assert!(
                !stream.claimed || stream.lost || stream.end_came,
                "slot {index} is free and records of it may come"
            );
        }
        if let Some(mark) = event.mark {
            self.mark(end, index, mark);
        }
    }

    /// A fresh link between two nodes.
    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        for (node, peer) in [(a, b), (b, a)] {
            let id = self.ends.len();
            let liveness = Liveness::new(PEER_TIMEOUT, self.now);
            let end = End::new(id, node, peer, liveness, self.now + PEER_TIMEOUT / 4);
            self.ends.push(end);
            self.pipes.push(Pipe::new(&mut self.rng));
            self.nodes[node].links.insert(peer, id);
            self.agenda.plan(self.now + PEER_TIMEOUT, Event::Judge(id));
            self.announce(id);
            self.wake_writer(id);
        }
        let now = self.now;
        self.trace.say(now, || format!("nodes {a} and {b} are linked"));
    }

    /// An end's link ends for good: every stream and call of it is told once.
    pub(crate) fn lose(&mut self, id: EndId, reason: &str) {
        let end = &mut self.ends[id];
        if std::mem::replace(&mut end.gone, true) {
            return;
        }
        let now = self.now;
        self.trace.say(now, || format!("end {id} is gone: {reason}"));
        let mut wake = Vec::new();
        end.outbox.lose(&mut wake);
        end.serving.clear();
        let (node, peer, lane) = (end.node, end.peer, end.lane);
        for index in std::mem::take(&mut end.owned) {
            let cell = &mut self.nodes[node].cells[index as usize];
            if let Some(stream) = cell.stream {
                self.streams[stream].lost = true;
            }
            let (waker, event) = cell.slot.lose(lane);
            wake.extend(waker);
            self.settle(node, index, event);
        }
        if self.nodes[node].links.get(&peer) == Some(&id) {
            self.nodes[node].links.remove(&peer);
        }
        self.wake_all(wake);
        self.pipes[id ^ 1].broken = true;
        if self.rng.chance(50) {
            self.pipes[id].cut(&mut self.rng);
        }
        self.pipes[id].closed = true;
        self.plan_arrival(id);
        self.summary.links_lost += 1;
    }
}

impl Mood {
    fn of(rng: &mut Rng) -> Self {
        let bytes = 1 << rng.within(10, 18);
        Self {
            operations: rng.within(20, 250),
            gap: Duration::from_micros(1 << rng.within(4, 15)),
            window: Window {
                records: u32::try_from(rng.pick(&[1, 2, 3, 8, 32, 64])).unwrap_or(1),
                bytes,
            },
            max_item: bytes as usize,
            max_call: 1 << rng.within(4, 19),
            piece: 1 << rng.within(12, 16),
            linger: rng.pick(&[
                Duration::ZERO,
                Duration::from_millis(1),
                Duration::from_millis(20),
            ]),
            lifetime: rng.pick(&[
                Duration::from_millis(40),
                Duration::from_secs(3),
                Duration::from_secs(120),
            ]),
            cuts: rng.pick(&[0, 0, 1, 3]),
            slow: rng.pick(&[0, 5, 30]),
        }
    }
}
