//! A seeded world of weir-proto nodes over lossy lanes.
//!
//! Two or three nodes are composed of `weir_proto` types as the driver composes them. Lanes deliver late, in random
//! pieces, stall and break; applications mint, open, send, withdraw, stop, cancel, call and flush at random; and a
//! model that knows what was sent judges every record, ending, grant, wake and flush. It is no test of the driver's
//! tasks and locks. Invariant: a seed is a world; a failed seed fails again.

mod agenda;
mod caller;
mod check;
mod consumer;
mod content;
mod end;
pub mod fuzz;
mod model;
mod node;
mod operations;
mod pipe;
mod producer;
mod read;
mod rng;
mod script;
mod side;
mod trace;
mod world;
mod write;

pub use rng::Rng;
pub use side::{Side, TOKEN};

use weir_proto::{Ending, Time};

/// Who is woken: an application of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PartyId {
    Consumer(usize),
    Producer(usize),
    Caller(usize),
    Flusher(usize),
}

#[derive(Debug)]
pub(crate) enum Party {
    Consumer(consumer::Consumer),
    Producer(producer::Producer),
    Caller(caller::Caller),
    Flusher(caller::Flusher),
}

/// What a world came to; its numbers say that it was no empty one.
#[derive(Debug, Default, Clone, Copy)]
#[non_exhaustive]
pub struct Summary {
    /// Events that happened.
    pub events: u64,
    /// Records read.
    pub records: u64,
    /// Records for slots that were over, and repeated claims.
    pub stale: u64,
    /// Link ends lost.
    pub links_lost: u64,
    /// Flushes waited for.
    pub flushes: usize,
    /// Streams: finished, detached, dropped, failed, peer lost, expired, stalled, consumer gone.
    pub endings: [u64; 8],
    pub(crate) last_operation: Time,
}

/// Lives through the world of `seed`; with `traced`, a failure prints what led to it.
///
/// # Panics
/// When the protocol broke one of its promises.
#[must_use]
pub fn run(seed: u64, traced: bool) -> Summary {
    world::World::new(seed, traced).live()
}

impl Summary {
    fn count(&mut self, streams: &[model::Stream]) {
        for stream in streams {
            let at = match stream.over.as_ref().map(|(ending, _)| ending) {
                Some(Ending::Finished) => 0,
                Some(Ending::Detached) => 1,
                Some(Ending::Dropped) => 2,
                Some(Ending::Failed(..)) => 3,
                Some(Ending::PeerLost) => 4,
                Some(Ending::Expired) => 5,
                Some(Ending::Stalled(_)) => 6,
                Some(Ending::Cancelled) | None => 7,
            };
            self.endings[at] += 1;
        }
    }

    /// Adds the numbers of another world.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.records += other.records;
        self.stale += other.stale;
        self.links_lost += other.links_lost;
        self.flushes += other.flushes;
        for (sum, count) in self.endings.iter_mut().zip(other.endings) {
            *sum += count;
        }
    }
}
