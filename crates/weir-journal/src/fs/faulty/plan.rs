//! What goes wrong and when: faults by operation number, steps taken out or exchanged, room that ends.

use std::collections::BTreeMap;
use std::io;

use crate::fs::Step;

/// One sync of the journal taken out, or two exchanged. With any of these in force a crash test must fail: that is
/// what shows that the test would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The syncs of this step do nothing.
    Drop(Step),
    /// A sync of the first step is done only after the next sync of the second.
    Swap(Step, Step),
}

/// What happens to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this error number and does nothing; a failed sync also forgets what it should have written,
    /// as Linux does.
    Errno(i32),
    /// It is interrupted and does nothing.
    Interrupted,
    /// A read or write does one byte only.
    Short,
    /// The process dies half way through it.
    Die,
}

/// The plan of one twin.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Operations seen so far.
    pub(super) seen: u64,
    /// Faults by operation number, the first being 1.
    pub(super) faults: BTreeMap<u64, Fault>,
    /// The fault of the n-th sync of a step from now.
    pub(super) at_step: Option<(Step, u64, Fault)>,
    /// The mutation in force.
    pub(super) mutation: Option<Mutation>,
    /// Bytes that all files may take.
    pub(super) room: Option<u64>,
}

impl Plan {
    /// Counts one operation and tells what becomes of it.
    pub(super) fn next(&mut self, step: Option<Step>) -> Option<Fault> {
        self.seen += 1;
        if let (Some((wanted, left, fault)), Some(step)) = (&mut self.at_step, step)
            && *wanted == step
        {
            *left -= 1;
            if *left == 0 {
                let fault = *fault;
                self.at_step = None;
                return Some(fault);
            }
        }
        self.faults.remove(&self.seen)
    }
}

/// The error of a process that is no more.
pub(super) fn dead() -> io::Error {
    io::Error::other("the process that opened this is dead")
}

/// A small generator (splitmix64): the same seed, the same losses.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn heads(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) & 1 == 1
    }
}
