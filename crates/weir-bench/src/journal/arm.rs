//! What an arm is: a journal that writers append to and settle in.

use std::path::{Path, PathBuf};

use super::measure::Cell;
use super::{floor, naive, ours};

/// The arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    /// This workspace's journal.
    Weir,
    /// A bare write and fdatasync: each writer its own range of one zero-written file, no lock.
    Floor,
    /// One file a record, a walk over the folder before each write, nothing retired.
    Naive,
    /// The same with a walk at start and again only past half the cap.
    Estimate,
    /// The crate raft-engine.
    #[cfg(feature = "peers")]
    RaftEngine,
    /// The crate fjall.
    #[cfg(feature = "peers")]
    Fjall,
    /// The crate redb.
    #[cfg(feature = "peers")]
    Redb,
}

/// One journal under test.
pub(crate) trait Arm: Send + Sync {
    /// A writer of its own for one thread.
    fn writer(&self, index: usize) -> anyhow::Result<Box<dyn Writer + '_>>;
    /// The folder of its records, where padding goes.
    fn folder(&self) -> PathBuf;
}

/// One thread's side of an arm.
pub(crate) trait Writer: Send {
    /// Appends record `n` of this writer, as durable as the cell asks.
    fn append(&mut self, n: u64, payload: &[u8]) -> anyhow::Result<()>;
    /// Settles record `n` of this writer.
    fn settle(&mut self, n: u64) -> anyhow::Result<()>;
}

impl Kind {
    /// Its name in rows.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Opens it in `dir`.
    pub(crate) fn open(self, dir: &Path, cell: &Cell) -> anyhow::Result<Box<dyn Arm>> {
        Ok(match self {
            Self::Weir => Box::new(ours::Ours::open(dir, cell)?),
            Self::Floor => Box::new(floor::Floor::open(dir, cell)?),
            Self::Naive => Box::new(naive::Naive::open(dir, cell, naive::Occupancy::Walk)?),
            Self::Estimate => Box::new(naive::Naive::open(dir, cell, naive::Occupancy::Estimate)?),
            #[cfg(feature = "peers")]
            Self::RaftEngine => Box::new(super::peers::Raft::open(dir, cell)?),
            #[cfg(feature = "peers")]
            Self::Fjall => Box::new(super::peers::Fjall::open(dir, cell)?),
            #[cfg(feature = "peers")]
            Self::Redb => Box::new(super::peers::Redb::open(dir, cell)?),
        })
    }
}
