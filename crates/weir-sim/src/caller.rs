//! Callers, the handlers that answer them, and those who wait for a flush.

use std::time::Duration;

use weir_proto::{CallFailure, CallRequest, Flush, wire::ReplyStatus};

use crate::{
    Party, PartyId,
    agenda::{EndId, Event},
    model::{Call, Sent},
    world::World,
};

/// Waits for a reply; with `patience`, gives up when its timer fires.
#[derive(Debug)]
pub(crate) struct Caller {
    call: usize,
    end: EndId,
    id: u64,
}

/// Waits until everything that was staged has left.
#[derive(Debug)]
pub(crate) struct Flusher {
    number: usize,
    end: EndId,
    flush: Flush,
    /// Attempts of this end: records sent by then, and whether the end was staged.
    attempts: Vec<(usize, usize, bool)>,
    calls: Vec<u64>,
}

impl World {
    /// Makes a call or a cast over an end.
    pub(crate) fn call(&mut self, end: EndId) {
        let call = self.calls.len();
        let cast = self.rng.chance(30);
        self.records += 2;
        let most = self.mood.max_call;
        let body = Sent {
            id: self.records,
            len: self.rng.size(most),
        };
        let reply = Sent {
            id: self.records - 1,
            len: self.rng.size(most),
        };
        let name = format!("call-{call}");
        let made = self.stage(end, |outbox| outbox.call(&name, 1000, body.bytes(), cast));
        let now = self.now;
        self.trace.say(now, || {
            format!(
                "end {end} calls {name} with {} bytes (cast: {cast}): {made:?}",
                body.len
            )
        });
        let id = made.unwrap_or_else(|failure| panic!("a call was not made: {failure:?}"));
        self.calls.push(Call {
            end,
            cast,
            body,
            reply,
            arrived: false,
            answered: false,
            abandoned: false,
        });
        self.ends[end].calls.insert(id, call);
        if !cast {
            let party = PartyId::Caller(call);
            self.add(party, Party::Caller(Caller { call, end, id }));
            if self.rng.chance(20) {
                let patience = self.rng.upto(Duration::from_millis(100));
                self.timer(party, patience);
            }
        }
    }

    /// A call of the peer is whole.
    pub(crate) fn serve(&mut self, end: EndId, request: Option<CallRequest>) {
        let Some(request) = request else { return };
        let call = *self.ends[end ^ 1]
            .calls
            .get(&request.id)
            .expect("a call of the twin");
        let model = &mut self.calls[call];
        assert!(
            !std::mem::replace(&mut model.arrived, true),
            "call {call} arrived twice"
        );
        assert_eq!((request.name, request.cast), (format!("call-{call}"), model.cast));
        assert!(
            request.body == model.body.bytes(),
            "the request of call {call} is wrong"
        );
        self.ends[end].serving.insert(request.id, call);
        self.pending += 1;
        let at = self.now + self.rng.upto(Duration::from_millis(50));
        self.agenda.plan(at, Event::Answer(end, request.id));
    }

    /// A handler is done.
    pub(crate) fn answer(&mut self, end: EndId, id: u64) {
        self.pending -= 1;
        let Some(call) = self.ends[end].serving.remove(&id) else {
            return;
        };
        self.calls[call].answered = true;
        let body = if self.calls[call].cast {
            bytes::Bytes::new()
        } else {
            self.calls[call].reply.bytes()
        };
        self.stage(end, |outbox| outbox.reply(id, ReplyStatus::Ok, body));
    }

    /// Waits for everything staged over an end so far.
    pub(crate) fn flush(&mut self, end: EndId) {
        let number = self.summary.flushes;
        self.summary.flushes += 1;
        let ends = &self.ends[end];
        let attempts = ends.attempts.values().filter(|list| list.len() == 1).flatten();
        let attempts = attempts.map(|at| {
            (
                *at,
                self.attempts[*at].sent.len(),
                self.attempts[*at].ended.is_some(),
            )
        });
        let flusher = Flusher {
            number,
            end,
            flush: ends.outbox.flush(),
            attempts: attempts.collect(),
            calls: ends.calls.keys().copied().collect(),
        };
        self.add(PartyId::Flusher(number), Party::Flusher(flusher));
    }
}

impl Caller {
    pub(crate) fn poll(&mut self, world: &mut World, timed: bool) -> bool {
        let (party, id) = (PartyId::Caller(self.call), self.id);
        let reply = world.ends[self.end].outbox.reply_to(id, || party);
        let call = &mut world.calls[self.call];
        match reply {
            Ok(None) if timed => {
                call.abandoned = true;
                world.stage(self.end, |outbox| outbox.abandon_call(id));
            }
            Ok(None) => return false,
            Ok(Some((status, body))) => {
                assert!(call.answered, "a reply that nobody gave");
                assert_eq!(status, ReplyStatus::Ok);
                assert!(
                    body == call.reply.bytes(),
                    "the reply of call {} is wrong",
                    self.call
                );
            }
            Err(CallFailure::NotSent) => assert!(!call.arrived, "not sent, and it arrived"),
            Err(failure) => {
                assert_eq!(failure, CallFailure::Unknown);
                assert!(world.ends[self.end].gone, "lost, and the link is up");
            }
        }
        true
    }
}

impl Flusher {
    pub(crate) fn poll(&mut self, world: &mut World) -> bool {
        let party = PartyId::Flusher(self.number);
        let end = &mut world.ends[self.end];
        if !end.outbox.flushed(&mut self.flush, || party) {
            return false;
        }
        if end.gone {
            return true;
        }
        for (attempt, sent, ended) in &self.attempts {
            let model = &world.attempts[*attempt];
            let stream = &world.streams[model.stream];
            if !model.right || stream.gone || stream.ended_here || stream.end != self.end ^ 1 {
                continue; // Its claim may be refused, or what waited may be dropped.
            }
            let left = end.left(model.ticket.slot.key());
            let sent = (*sent).min(model.sent.len()) as u64;
            assert!(
                left.items >= sent,
                "flushed, and {} of {sent} records of attempt {attempt} left",
                left.items
            );
            assert!(left.opens == 1, "flushed, and attempt {attempt} has not claimed");
            assert!(
                !ended || left.ends == 1,
                "flushed, and the end of attempt {attempt} has not left"
            );
        }
        for id in &self.calls {
            let call = &world.calls[end.calls[id]];
            let left = end.call_bytes_left.get(id).copied().unwrap_or(0);
            assert!(
                call.abandoned || left >= call.body.len,
                "flushed, and {left} bytes of call {id} left"
            );
        }
        true
    }
}
