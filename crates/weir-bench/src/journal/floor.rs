//! The arm `floor`: what the write and the sync cost with nothing around them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Level;
use super::arm::{Arm, Writer};
use super::measure::Cell;

/// Bytes of the file that all writers share.
const FILE: u64 = 64 << 20;

/// One zero-written file.
pub(crate) struct Floor {
    file: File,
    folder: PathBuf,
    range: u64,
    level: Level,
}

struct FloorWriter<'a> {
    floor: &'a Floor,
    from: u64,
    at: u64,
}

impl Floor {
    pub(crate) fn open(dir: &Path, cell: &Cell) -> anyhow::Result<Self> {
        let file = File::create_new(dir.join("floor"))?;
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
        Ok(Self {
            file,
            folder: dir.to_owned(),
            range: FILE / cell.writers.max(1) as u64,
            level: cell.durability,
        })
    }
}

impl Arm for Floor {
    fn writer(&self, index: usize) -> anyhow::Result<Box<dyn Writer + '_>> {
        Ok(Box::new(FloorWriter {
            floor: self,
            from: index as u64 * self.range,
            at: 0,
        }))
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

impl Writer for FloorWriter<'_> {
    fn append(&mut self, _n: u64, payload: &[u8]) -> anyhow::Result<()> {
        let len = payload.len() as u64;
        if self.at + len > self.floor.range {
            self.at = 0;
        }
        self.floor.file.write_all_at(payload, self.from + self.at)?;
        self.at += len;
        if self.floor.level == Level::Data {
            self.floor.file.sync_data()?;
        }
        Ok(())
    }

    fn settle(&mut self, _n: u64) -> anyhow::Result<()> {
        Ok(())
    }
}
