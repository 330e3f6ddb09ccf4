//! The arm `weir`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use weir_journal::{Durability, Journal, Meta, Options};

use super::Level;
use super::arm::{Arm, Writer};
use super::measure::Cell;

/// This workspace's journal with its defaults.
pub(crate) struct Ours {
    journal: Journal,
    folder: PathBuf,
}

struct OurWriter<'a> {
    journal: &'a Journal,
    open: VecDeque<u64>,
}

impl Ours {
    pub(crate) fn open(dir: &Path, cell: &Cell) -> anyhow::Result<Self> {
        let durability = match cell.durability {
            Level::Buffered => Durability::Buffered,
            Level::Data => Durability::Data,
        };
        let journal = Journal::open(
            dir,
            &Options {
                durability,
                ..Options::default()
            },
        )?;
        Ok(Self {
            journal,
            folder: dir.join("segments"),
        })
    }
}

impl Arm for Ours {
    fn writer(&self, _index: usize) -> anyhow::Result<Box<dyn Writer + '_>> {
        Ok(Box::new(OurWriter {
            journal: &self.journal,
            open: VecDeque::new(),
        }))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

impl Writer for OurWriter<'_> {
    fn append(&mut self, n: u64, payload: &[u8]) -> anyhow::Result<()> {
        let meta = Meta {
            request: u128::from(n),
            step: 0,
        };
        self.open.push_back(self.journal.append_blocking(meta, payload)?);
        Ok(())
    }

    fn settle(&mut self, _n: u64) -> anyhow::Result<()> {
        if let Some(seq) = self.open.pop_front() {
            self.journal.settle(seq);
        }
        Ok(())
    }
}
