//! The arms `naive` and `estimate`: the journal that decays, and its first repair. They exist only here.
//!
//! One file a record; before each write the journal asks how full it is. `naive` lists and stats its folder for
//! that every time; `estimate` keeps a figure and does so at start and again past half the cap. Nothing is ever
//! retired in either.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;

use super::Level;
use super::arm::{Arm, Writer};
use super::measure::Cell;

/// The cap, far enough that no cell reaches it.
const CAP: u64 = 8 << 30;

/// How occupancy is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupancy {
    /// By walking the folder before every write.
    Walk,
    /// By a figure that only over-counts, walked again past half the cap.
    Estimate,
}

/// One folder of records.
pub(crate) struct Naive {
    folder: PathBuf,
    level: Level,
    occupancy: Occupancy,
    estimate: AtomicU64,
}

struct NaiveWriter<'a> {
    journal: &'a Naive,
    index: usize,
}

impl Naive {
    pub(crate) fn open(dir: &Path, cell: &Cell, occupancy: Occupancy) -> anyhow::Result<Self> {
        let folder = dir.join("records");
        fs::create_dir(&folder)?;
        let naive = Self {
            folder,
            level: cell.durability,
            occupancy,
            estimate: AtomicU64::new(0),
        };
        naive.estimate.store(naive.occupied()?, Ordering::Relaxed);
        Ok(naive)
    }

    fn occupied(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.folder)? {
            bytes += fs::symlink_metadata(entry?.path())?.len();
        }
        Ok(bytes)
    }

    fn require_room(&self, len: u64) -> anyhow::Result<()> {
        let occupied = match self.occupancy {
            Occupancy::Walk => self.occupied()?,
            Occupancy::Estimate => {
                let estimate = self.estimate.fetch_add(len, Ordering::Relaxed);
                if estimate > CAP / 2 {
                    self.occupied()?
                } else {
                    estimate
                }
            }
        };
        ensure!(occupied + len <= CAP, "the journal is full");
        Ok(())
    }
}

impl Arm for Naive {
    fn writer(&self, index: usize) -> anyhow::Result<Box<dyn Writer + '_>> {
        Ok(Box::new(NaiveWriter { journal: self, index }))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

impl Writer for NaiveWriter<'_> {
    fn append(&mut self, n: u64, payload: &[u8]) -> anyhow::Result<()> {
        self.journal.require_room(payload.len() as u64)?;
        let name = format!("{:03}-{n:012}.record", self.index);
        let mut file = File::create_new(self.journal.folder.join(name))?;
        file.write_all(payload)?;
        if self.journal.level == Level::Data {
            file.sync_all()?;
            File::open(&self.journal.folder)?.sync_all()?;
        }
        Ok(())
    }

    fn settle(&mut self, _n: u64) -> anyhow::Result<()> {
        Ok(())
    }
}
