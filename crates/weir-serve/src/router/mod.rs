//! Which worker runs a request, and getting it there.
//!
//! [`links`] keeps a live link to every registered process, [`Fleet`] knows which workers serve a model now, and
//! [`start`] hands a request to one of them and moves on to another until a first token is here. Invariant: a worker is
//! only ever picked over a link that is up, with a model card and a tokenizer that are those of its model.

mod fleet;
mod links;
mod start;

pub(crate) use fleet::{Fleet, Snapshot, Target};
pub(crate) use links::supervise;
pub(crate) use start::{Limits, Started, no_workers, start};
