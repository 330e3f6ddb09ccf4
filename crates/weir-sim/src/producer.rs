//! The application that sends: it goes about a sender as the driver's `Sender` and its futures do.

use std::{collections::VecDeque, time::Duration};

use weir_proto::{End, Enqueued, OpenRefused, SendRefused, StreamFate, StreamKey, Window};

use crate::{Party, PartyId, agenda::EndId, model::Sent, world::World};

/// See the module.
#[derive(Debug)]
pub(crate) struct Producer {
    attempt: usize,
    end: EndId,
    key: StreamKey,
    steps: VecDeque<Step>,
    last: Last,
    state: State,
    stop_seen: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Sends an item; with a time, drops the future then.
    Send(usize, Option<Duration>),
    /// Sends an item if that is possible now; if not, may wait until it is.
    Try(usize, bool),
    /// Computes, watching for stop and cancel.
    Pause(Duration),
}

#[derive(Debug, Clone)]
enum Last {
    End(End),
    /// Finishes and waits for the consumer's half.
    Finish,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Next,
    /// The item waits for credit.
    Credit(Sent),
    /// The item waits for room.
    Queued,
    /// Waits until a small item may be sent.
    Ready,
    Pausing,
    Closing,
}

impl World {
    /// A producer opens its ticket.
    pub(crate) fn open(&mut self, attempt: usize) {
        self.pending -= 1;
        let (node, ticket) = (self.attempts[attempt].node, self.attempts[attempt].ticket.clone());
        let stream = self.attempts[attempt].stream;
        let Some(&end) = self.nodes[node].links.get(&self.streams[stream].node) else {
            return;
        };
        let window = Window {
            records: ticket.window_records,
            bytes: ticket.window_bytes,
        };
        let opened = self.stage(end, |outbox| {
            outbox.open(ticket.slot, ticket.token, window, window)
        });
        let now = self.now;
        self.trace.say(now, || {
            format!("attempt {attempt} opens stream {stream} at end {end}: {opened:?}")
        });
        let key = match opened {
            Ok(key) => key,
            Err(OpenRefused::AlreadyOpen) => {
                let earlier = self.ends[end]
                    .attempts
                    .get(&ticket.slot.key())
                    .is_some_and(|list| !list.is_empty());
                assert!(earlier, "already open, and nobody opened it");
                return;
            }
            Err(OpenRefused::Lost) => panic!("a live link is lost"),
        };
        self.ends[end]
            .attempts
            .entry(ticket.slot.key())
            .or_default()
            .push(attempt);
        self.attempts[attempt].open = Some((end, key));
        if self.attempts[attempt].right {
            self.streams[stream].candidates.push(attempt);
        }
        let producer = Producer::new(self, attempt, end, key);
        self.add(PartyId::Producer(attempt), Party::Producer(producer));
    }
}

impl Producer {
    fn new(world: &mut World, attempt: usize, end: EndId, key: StreamKey) -> Self {
        let most = world.mood.max_item;
        let rng = &mut world.rng;
        let count = rng.size(60);
        let (pauses, tries) = (rng.pick(&[0, 10, 50]), rng.pick(&[0, 50, 100]));
        let mut steps = VecDeque::new();
        for _ in 0..count {
            if rng.chance(pauses) {
                steps.push_back(Step::Pause(rng.upto(Duration::from_millis(50))));
            }
            let len = if rng.chance(2) {
                most + 1 + rng.size(5000)
            } else {
                rng.size(most)
            };
            steps.push_back(if rng.chance(tries) {
                Step::Try(len, rng.chance(70))
            } else {
                let patience = rng.chance(10).then(|| rng.upto(Duration::from_millis(20)));
                Step::Send(len, patience)
            });
        }
        if rng.chance(10) {
            steps.push_back(Step::Pause(Duration::from_secs(rng.below(30))));
        }
        let last = match rng.below(10) {
            0 => Last::End(End::Dropped),
            1 => Last::End(End::Detached),
            2 => Last::End(End::Failed(7, "é".repeat(rng.size(1000)))),
            3 => Last::End(End::Finished),
            _ => Last::Finish,
        };
        Self {
            attempt,
            end,
            key,
            steps,
            last,
            state: State::Next,
            stop_seen: false,
        }
    }

    fn id(&self) -> PartyId {
        PartyId::Producer(self.attempt)
    }

    /// Goes on as far as it can; `true` when the sender is gone.
    pub(crate) fn poll(&mut self, world: &mut World, timed: bool) -> bool {
        let mut timed = timed;
        loop {
            let (stop, fate) = world.ends[self.end].outbox.state(self.key);
            let stream = world.attempts[self.attempt].stream;
            if stop && fate.is_none() && !std::mem::replace(&mut self.stop_seen, true) {
                assert!(world.streams[stream].stopped, "a stop that nobody asked for");
                if world.rng.chance(80) {
                    self.steps.clear();
                }
            }
            if let Some(fate) = fate {
                world.judge_fate(self.attempt, self.end, fate);
                if matches!(self.state, State::Queued) {
                    world.ends[self.end].outbox.withdraw(self.key);
                }
                return self.release(world);
            }
            let timer = std::mem::take(&mut timed);
            let pending = match self.state {
                State::Closing => true,
                State::Pausing => !timer && !self.steps.is_empty(),
                State::Next => {
                    if self.next(world) {
                        return true;
                    }
                    false
                }
                State::Ready => world.ends[self.end].outbox.ready(self.key, 0).is_err(),
                State::Credit(sent) => {
                    if timer {
                        self.state = State::Next;
                        false
                    } else {
                        self.offer(world, sent)
                    }
                }
                State::Queued => {
                    if self.queued(world, timer) {
                        return false;
                    }
                    false
                }
            };
            if pending {
                world.ends[self.end].outbox.wake_on_change(self.key, self.id());
                return false;
            }
            if matches!(self.state, State::Ready | State::Pausing) {
                world.timers.remove(&self.id());
                self.state = State::Next;
            }
        }
    }

    /// Waits in the queue still; a timer drops the future.
    fn queued(&mut self, world: &mut World, timer: bool) -> bool {
        let (key, id) = (self.key, self.id());
        let outbox = &mut world.ends[self.end].outbox;
        if timer {
            let before = outbox.sent(key);
            outbox.withdraw(key);
            if outbox.sent(key) < before {
                world.attempts[self.attempt].sent.pop();
            }
            self.state = State::Next;
            return false;
        }
        match outbox.enqueued(key, || id) {
            Ok(Enqueued::Waiting) => true,
            Ok(Enqueued::Sent) | Err(_) => {
                self.state = State::Next;
                false
            }
        }
    }

    /// The next step; `true` when the sender is gone.
    fn next(&mut self, world: &mut World) -> bool {
        world.timers.remove(&self.id());
        let sent = world.ends[self.end].outbox.sent(self.key);
        assert_eq!(
            sent,
            world.attempts[self.attempt].sent.len() as u64,
            "sent by attempt {}",
            self.attempt
        );
        match self.steps.pop_front() {
            None => return self.finish(world),
            Some(Step::Pause(time)) => {
                self.steps.push_front(Step::Pause(Duration::ZERO));
                self.state = State::Pausing;
                if time.is_zero() {
                    self.steps.pop_front();
                    self.state = State::Next;
                } else {
                    world.timer(self.id(), time);
                }
            }
            Some(Step::Send(len, patience)) => self.send(world, len, patience),
            Some(Step::Try(len, wait)) => self.attempt_send(world, len, wait),
        }
        false
    }

    fn item(world: &mut World, len: usize) -> Sent {
        world.records += 1;
        Sent {
            id: world.records,
            len,
        }
    }

    fn send(&mut self, world: &mut World, len: usize, patience: Option<Duration>) {
        let (sent, key) = (Self::item(world, len), self.key);
        let bytes = sent.bytes();
        match world.stage(self.end, |outbox| outbox.send(key, &bytes)) {
            Ok(()) => world.attempts[self.attempt].sent.push(sent),
            Err(SendRefused::NoCredit | SendRefused::NoRoom | SendRefused::Waiting) => {
                self.state = State::Credit(sent);
                if let Some(patience) = patience {
                    world.timer(self.id(), patience);
                }
            }
            Err(refused) => self.refused(world, refused, len),
        }
    }

    fn attempt_send(&mut self, world: &mut World, len: usize, wait: bool) {
        let (sent, key) = (Self::item(world, len), self.key);
        let bytes = sent.bytes();
        let result = world.stage(self.end, |outbox| match outbox.send(key, &bytes) {
            Err(SendRefused::NoRoom) => outbox.enqueue(key, bytes, None).map(|_| ()),
            other => other,
        });
        match result {
            Ok(()) => world.attempts[self.attempt].sent.push(sent),
            Err(SendRefused::NoCredit | SendRefused::NoRoom | SendRefused::Waiting) => {
                if wait {
                    self.state = State::Ready;
                }
            }
            Err(refused) => self.refused(world, refused, len),
        }
    }

    /// The item waits for credit; `true` while it must.
    fn offer(&mut self, world: &mut World, sent: Sent) -> bool {
        let (key, id) = (self.key, self.id());
        let place = world.stage(self.end, |outbox| match outbox.ready(key, sent.len) {
            Err(SendRefused::NoCredit | SendRefused::Waiting) => Ok(None),
            Err(refused) => Err(refused),
            Ok(()) => outbox.enqueue(key, sent.bytes(), Some(id)).map(Some),
        });
        match place {
            Ok(None) => return true,
            Ok(Some(place)) => {
                world.attempts[self.attempt].sent.push(sent);
                self.state = if place == Enqueued::Sent {
                    State::Next
                } else {
                    State::Queued
                };
            }
            Err(refused) => self.refused(world, refused, sent.len),
        }
        false
    }

    fn refused(&mut self, world: &World, refused: SendRefused, len: usize) {
        let window = world.attempts[self.attempt].ticket.window_bytes as usize;
        assert!(
            len > window && refused == SendRefused::TooLarge(window),
            "{len} bytes refused: {refused:?}"
        );
        self.state = State::Next;
    }

    fn finish(&mut self, world: &mut World) -> bool {
        let (end, wait) = match &self.last {
            Last::End(end) => (end.clone(), false),
            Last::Finish => (End::Finished, true),
        };
        world.attempts[self.attempt].ended = Some(end.clone());
        let (now, attempt, key) = (world.now, self.attempt, self.key);
        world.trace.say(now, || format!("attempt {attempt} ends {end:?}"));
        world.stage(self.end, |outbox| outbox.end(key, end));
        if wait {
            self.state = State::Closing;
            return false;
        }
        self.release(world)
    }

    fn release(&mut self, world: &mut World) -> bool {
        let (key, ended) = (self.key, world.attempts[self.attempt].ended.is_some());
        world.stage(self.end, |outbox| {
            if !ended {
                outbox.end(key, End::Dropped);
            }
            outbox.release(key);
        });
        true
    }

    /// It waits for something; if that is there, a wake was lost.
    pub(crate) fn check(&self, world: &World) {
        let outbox = &world.ends[self.end].outbox;
        let (stop, fate) = outbox.state(self.key);
        let what = (self.attempt, self.state);
        assert!(fate.is_none(), "{what:?}: {fate:?} and its producer sleeps");
        assert!(
            !stop || self.stop_seen,
            "{what:?}: stopped and its producer sleeps"
        );
        match self.state {
            State::Credit(sent) => {
                let ready = outbox.ready(self.key, sent.len);
                assert!(
                    matches!(ready, Err(SendRefused::NoCredit | SendRefused::Waiting)),
                    "{what:?}: {ready:?} and its producer sleeps"
                );
            }
            State::Queued => assert_eq!(outbox.ready(self.key, 0), Err(SendRefused::Waiting), "{what:?}"),
            State::Ready => assert!(
                outbox.ready(self.key, 0).is_err(),
                "{what:?}: room and its producer sleeps"
            ),
            State::Next | State::Pausing | State::Closing => {}
        }
    }
}

impl World {
    /// Judges what became of an attempt on the other side.
    fn judge_fate(&mut self, attempt: usize, end: EndId, fate: StreamFate) {
        let now = self.now;
        self.trace
            .say(now, || format!("attempt {attempt} learns {fate:?}"));
        let model = &mut self.attempts[attempt];
        assert!(model.fate.is_none(), "a second fate");
        model.fate = Some(fate);
        let stream = &self.streams[model.stream];
        let alone = stream.attempts.len() == 1 && model.right && stream.end == end ^ 1;
        match fate {
            StreamFate::Lost => assert!(self.ends[end].gone, "lost, and the link is up"),
            StreamFate::Cancelled => assert!(stream.gone || stream.ended_here, "cancelled, and nobody did"),
            StreamFate::Closed(taken) => {
                assert!(model.ended.is_some(), "closed before its end");
                assert_eq!(taken, stream.taken.records, "records taken");
                assert!(taken <= model.sent.len() as u64);
            }
            StreamFate::Refused(_) => {
                assert!(
                    !alone || stream.gone || stream.ended_here,
                    "a good claim was refused"
                );
                assert!(!alone || !stream.claimed, "refused after it was claimed");
            }
        }
    }
}
