//! What must hold after every step, and at the end of a world.

use weir_proto::{CALLS_IN_FLIGHT, End as Ended, Ending, StreamFate};

use crate::{
    Party,
    end::Phase,
    model::{Attempt, Stream},
    world::World,
};

impl World {
    /// Whoever could go on is awake, and queues are bounded.
    pub(crate) fn check_step(&self) {
        for end in &self.ends {
            let writer = &end.writer;
            if end.gone
                || end.closing
                || writer.woken
                || writer.phase != Phase::Idle
                || !writer.out.is_empty()
            {
                continue;
            }
            assert!(
                !end.outbox.has_work(),
                "end {} has work and its writer sleeps",
                end.id
            );
            assert!(
                end.dirty.is_empty() || writer.linger.is_some(),
                "end {} has marks and its writer sleeps",
                end.id
            );
            assert!(
                !end.ack_due || writer.ack.is_some(),
                "end {} owes an ack and its writer sleeps",
                end.id
            );
            let (items, _) = end.outbox.waiting();
            assert!(
                items == 0,
                "end {} has {items} items waiting and its writer sleeps",
                end.id
            );
        }
        if self.summary.events % 4 != 0 {
            return;
        }
        for (id, party) in &self.parties {
            if self.woken.contains(id) {
                continue;
            }
            match party {
                Party::Consumer(consumer) => consumer.check(self),
                Party::Producer(producer) => producer.check(self),
                Party::Caller(_) | Party::Flusher(_) => {}
            }
        }
        for end in &self.ends {
            let (items, bytes) = end.outbox.waiting();
            let most = end.outbox.streams() + end.outbox.calls_in_flight() + CALLS_IN_FLIGHT;
            assert!(items <= most, "{items} items wait, {most} may");
            let largest = self.mood.max_item.max(self.mood.max_call);
            assert!(bytes <= items * largest, "{bytes} bytes wait in {items} items");
        }
    }

    /// Nothing is left, everybody was told once, and what was told is true.
    pub(crate) fn check_end(&self) {
        for end in &self.ends {
            let (id, outbox) = (end.id, &end.outbox);
            assert_eq!(
                outbox.streams(),
                0,
                "streams left at end {id} (gone: {})",
                end.gone
            );
            assert_eq!(
                outbox.calls_in_flight(),
                0,
                "calls left at end {id} (gone: {})",
                end.gone
            );
            assert_eq!(outbox.waiting(), (0, 0), "items left at end {id}");
            if end.gone {
                continue;
            }
            let twin = &self.ends[id ^ 1];
            assert!(!outbox.has_work(), "work left at end {id}");
            assert_eq!(end.acked, end.sent, "frames acked of those sent at end {id}");
            assert_eq!(twin.known, end.announced, "handlers of end {id}");
            assert!(end.serving.is_empty());
        }
        for node in &self.nodes {
            assert_eq!(node.allocator.live(), 0, "slots left at {:?}", node.id);
            assert!(
                node.deadlines.is_empty(),
                "{} deadlines left",
                node.deadlines.len()
            );
        }
        for stream in &self.streams {
            self.check_stream(stream);
        }
        for call in &self.calls {
            let up = !self.ends[call.end].gone && !self.ends[call.end ^ 1].gone;
            assert!(!up || call.arrived || call.abandoned, "a call did not arrive");
        }
    }

    fn check_stream(&self, stream: &Stream) {
        let slot = stream.ticket.slot;
        assert!(
            stream.over.is_some() != stream.gone,
            "{slot:?}: over {:?}, gone {}",
            stream.over,
            stream.gone
        );
        let left = self.ends[stream.end].left(slot.key());
        let expected = u64::from(stream.claimed);
        assert!(
            self.ends[stream.end].gone || left.closes == expected,
            "{slot:?} was closed {} times",
            left.closes
        );
        let [only] = stream.attempts.as_slice() else {
            return;
        };
        let only = &self.attempts[*only];
        if stream.lost || stream.gone || stream.ended_here || only.open.is_none() || !only.right {
            return;
        }
        self.check_undisturbed(stream, only);
    }

    /// Nothing disturbed the stream: its consumer got everything and the ending the producer chose.
    fn check_undisturbed(&self, stream: &Stream, attempt: &Attempt) {
        let slot = stream.ticket.slot;
        let (ending, delivered) = stream.over.as_ref().expect("checked by the caller");
        assert_eq!(
            *delivered,
            attempt.sent.len() as u64,
            "{slot:?}: records delivered"
        );
        let same = match &attempt.ended {
            Some(Ended::Finished) => *ending == Ending::Finished,
            Some(Ended::Detached) => *ending == Ending::Detached,
            Some(Ended::Dropped) => *ending == Ending::Dropped,
            Some(Ended::Failed(..)) => matches!(ending, Ending::Failed(..)),
            None => false,
        };
        assert!(
            same,
            "{slot:?}: the producer said {:?}, the consumer heard {ending:?}",
            attempt.ended
        );
        if let Some(fate) = attempt.fate.filter(|fate| *fate != StreamFate::Lost) {
            assert_eq!(
                fate,
                StreamFate::Closed(*delivered),
                "{slot:?}: what its producer was told"
            );
        }
    }
}
