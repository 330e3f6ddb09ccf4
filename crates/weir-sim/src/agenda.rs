//! What happens when: the events of a world in order of time, those of one moment in order of planning.

use std::{cmp::Reverse, collections::BinaryHeap};

use weir_proto::Time;

use crate::PartyId;

/// One end of a link: its index in the world. The twin's is `id ^ 1`.
pub(crate) type EndId = usize;

/// Something that happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A random operation begins.
    Operation,
    /// A woken party runs.
    Run(PartyId),
    /// A party's timer fires, unless it was set anew.
    Timer(PartyId),
    /// An attempt opens its ticket.
    Open(usize),
    /// A consumer acts unprompted.
    Act(usize),
    /// A handler answers a call.
    Answer(EndId, u64),
    /// A writer runs.
    Write(EndId),
    /// Bytes that this end wrote arrive at its twin.
    Arrive(EndId),
    /// An end judges whether its peer is silent.
    Judge(EndId),
    /// A node looks at its deadlines.
    Deadlines(usize),
    /// An end learns that its connection is broken.
    Lose(EndId),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    planned: u64,
}

impl Agenda {
    pub(crate) fn plan(&mut self, at: Time, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, event)));
    }

    pub(crate) fn next(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
