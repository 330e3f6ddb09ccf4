//! Segment files: their names, how one is made, given a new life, and given back.
//!
//! A file is written out with zeros and its header before it gets its name, so a file that has its name is whole.
//! Files are kept open only by who writes to them: a journal of any size holds few descriptors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::segment::{SegmentHeader, write_head};
use crate::fs::{Fs, FsFile, How, Step, sync, write_all};

/// The folder of the segments, in the root.
pub(crate) const SEGMENTS: &str = "segments";
const ZEROS: usize = 256 << 10;

/// Why a segment file was not made or given a new life.
#[derive(Debug)]
pub(crate) enum SlotError {
    /// There is no room. Nothing is left behind.
    NoSpace(io::Error),
    /// It could not be opened or made, for want of descriptors or permission. Nothing is left behind.
    NotMade(io::Error),
    /// A write, a sync or a rename failed.
    Failed(Step, io::Error),
}

impl SlotError {
    fn at(step: Step) -> impl Fn(io::Error) -> Self {
        move |e| {
            if no_space(&e) {
                Self::NoSpace(e)
            } else {
                Self::Failed(step, e)
            }
        }
    }
}

/// Whether an error says that there is no room.
pub(crate) fn no_space(e: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The folder of segment files.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
}

impl Slots {
    /// The file of slot `slot`.
    pub(crate) fn path(&self, slot: u64) -> PathBuf {
        self.dir.join(format!("{slot:08}.seg"))
    }

    fn new_path(&self, slot: u64) -> PathBuf {
        self.dir.join(format!("{slot:08}.new"))
    }

    /// Opens slot `slot`.
    pub(crate) fn open(&self, slot: u64, how: How) -> io::Result<Arc<dyn FsFile>> {
        self.fs.open(&self.path(slot), how)
    }

    /// Makes slot `slot`: zeros, header, sync, name, sync of the name.
    pub(crate) fn make(&self, slot: u64, header: &SegmentHeader) -> Result<Arc<dyn FsFile>, SlotError> {
        let new = self.new_path(slot);
        let made = self.fs.open(&new, How::Create).map_err(|e| {
            if no_space(&e) {
                SlotError::NoSpace(e)
            } else {
                SlotError::NotMade(e)
            }
        });
        let made = made.and_then(|file| {
            write_out(&*file, header).map_err(SlotError::at(Step::SpareFile))?;
            sync(&*file, Step::SpareFile).map_err(SlotError::at(Step::SpareFile))?;
            self.fs
                .rename(&new, &self.path(slot))
                .map_err(SlotError::at(Step::SpareName))?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                self.sync_names(Step::SpareDir)?;
                Ok(file)
            }
            Err(e) => {
                // The error that counts is `e`; a leftover is removed at the next open.
                let _ = self.fs.remove(&new);
                Err(e)
            }
        }
    }

    /// Gives slot `slot`, in which nothing is open, a new life.
    pub(crate) fn stamp(&self, slot: u64, header: &SegmentHeader) -> Result<Arc<dyn FsFile>, SlotError> {
        let file = self.open(slot, How::Update).map_err(SlotError::NotMade)?;
        let failed = |e| SlotError::Failed(Step::Stamp, e);
        write_all(&*file, &write_head(header), 0).map_err(failed)?;
        sync(&*file, Step::Stamp).map_err(failed)?;
        Ok(file)
    }

    /// Removes slot `slot`, in which nothing is open.
    pub(crate) fn remove(&self, slot: u64) -> Result<(), SlotError> {
        self.fs
            .remove(&self.path(slot))
            .map_err(|e| SlotError::Failed(Step::Remove, e))
    }

    /// Makes the names of the segment files durable.
    pub(crate) fn sync_names(&self, step: Step) -> Result<(), SlotError> {
        self.fs
            .sync_dir(&self.dir, step)
            .map_err(|e| SlotError::Failed(step, e))
    }
}

fn write_out(file: &dyn FsFile, header: &SegmentHeader) -> io::Result<()> {
    let head = write_head(header);
    write_all(file, &head, 0)?;
    let zeros = vec![0; ZEROS];
    let mut at = head.len() as u64;
    while at < header.segment_bytes {
        let left = usize::try_from(header.segment_bytes - at)
            .unwrap_or(ZEROS)
            .min(ZEROS);
        write_all(file, zeros.get(..left).unwrap_or(&zeros), at)?;
        at += left as u64;
    }
    Ok(())
}

/// What a name in the segment folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A segment file.
    Slot(u64),
    /// A segment file that never got its name.
    Unfinished,
    /// Not ours.
    Foreign,
}

/// Reads a file name.
pub(crate) fn name_of(name: &Path) -> Name {
    let digits = |s: &str| s.len() >= 8 && s.bytes().all(|b| b.is_ascii_digit());
    let Some(name) = name.to_str() else {
        return Name::Foreign;
    };
    match name.rsplit_once('.') {
        Some((stem, "seg")) if digits(stem) => stem.parse().map_or(Name::Foreign, Name::Slot),
        Some((stem, "new")) if digits(stem) => Name::Unfinished,
        _ => Name::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_ours() {
        assert_eq!(name_of(Path::new("00000012.seg")), Name::Slot(12));
        assert_eq!(name_of(Path::new("123456789.seg")), Name::Slot(123_456_789));
        assert_eq!(name_of(Path::new("00000012.new")), Name::Unfinished);
        for foreign in [
            "12.seg",
            "0000001x.seg",
            "00000012.seg.bak",
            "lost+found",
            "99999999999999999999999.seg",
        ] {
            assert_eq!(name_of(Path::new(foreign)), Name::Foreign, "{foreign}");
        }
    }
}
