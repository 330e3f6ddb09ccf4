//! A node of a world: its slot table, its deadlines, its links.

use std::{collections::BTreeMap, time::Duration};

use weir_proto::{
    ConsumerSlot, Deadlines, Ending, Progress, SlotAllocator, Time,
    wire::{NodeId, SlotRef},
};

use crate::{
    PartyId,
    agenda::{EndId, Event},
    rng::Rng,
    world::World,
};

/// What a deadline is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    /// An unclaimed ticket expires.
    Claim(SlotRef),
    /// A stream must make progress.
    Progress(SlotRef),
}

/// A slot, the end its ticket was minted for, and its stream.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub(crate) slot: ConsumerSlot<PartyId>,
    pub(crate) end: Option<EndId>,
    pub(crate) stream: Option<usize>,
    pub(crate) progress_timeout: Option<Duration>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) cells: Vec<Cell>,
    pub(crate) allocator: SlotAllocator,
    pub(crate) deadlines: Deadlines<Deadline>,
    pub(crate) links: BTreeMap<usize, EndId>,
}

impl Node {
    pub(crate) fn new(index: usize, rng: &mut Rng) -> Self {
        let max = rng.pick(&[2, 8, 64, 4096]);
        Self {
            id: NodeId([u8::try_from(index + 1).unwrap_or(u8::MAX); 16]),
            cells: Vec::new(),
            allocator: SlotAllocator::new(max),
            deadlines: Deadlines::default(),
            links: BTreeMap::new(),
        }
    }

    /// A free slot, if there is one.
    pub(crate) fn allocate(&mut self) -> Option<u32> {
        let index = self.allocator.allocate()?;
        while self.cells.len() <= index as usize {
            self.cells.push(Cell::default());
        }
        Some(index)
    }
}

impl World {
    pub(crate) fn add_deadline(&mut self, node: usize, at: Time, deadline: Deadline) {
        let look = self.nodes[node].deadlines.insert(self.now, at, deadline);
        self.agenda.plan(look, Event::Deadlines(node));
    }

    /// Looks at what is due, as the node's deadline task does.
    pub(crate) fn deadlines(&mut self, node: usize) {
        let now = self.now;
        let mut deadlines = std::mem::take(&mut self.nodes[node].deadlines);
        deadlines.look(now, |deadline, passed| {
            let again = self.deadline(node, *deadline);
            if let (Some(at), true) = (again, passed) {
                assert!(at > now, "{deadline:?} passed and stays");
            }
            again
        });
        if let Some(next) = deadlines.next() {
            self.agenda
                .plan(next.max(now + Duration::from_millis(1)), Event::Deadlines(node));
        }
        self.nodes[node].deadlines = deadlines;
    }

    fn deadline(&mut self, node: usize, deadline: Deadline) -> Option<Time> {
        let (Deadline::Claim(slot) | Deadline::Progress(slot)) = deadline;
        let cell = &mut self.nodes[node].cells[slot.index as usize];
        let (ending, again) = match deadline {
            Deadline::Claim(_) => {
                let minted = cell.slot.minted_at(slot.generation)?;
                (Ending::Expired, minted + self.mood.lifetime)
            }
            Deadline::Progress(_) => {
                let timeout = cell.progress_timeout?;
                match cell.slot.progress(slot.generation) {
                    Progress::Over => return None,
                    Progress::Flowing => return Some(self.now + timeout),
                    Progress::WaitingSince(since) => (Ending::Stalled(timeout), since + timeout),
                }
            }
        };
        if again > self.now {
            return Some(again);
        }
        if let Some(stream) = cell.stream {
            self.streams[stream].ended_here = true;
        }
        let (waker, event) = cell.slot.end_here(slot.generation, ending);
        self.settle(node, slot.index, event);
        self.wake_all(waker);
        None
    }
}
