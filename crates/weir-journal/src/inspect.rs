//! A journal looked at from outside, without its lock and without a write: for `weir journal ls`, `stats`, `dump`
//! and `check`.
//!
//! Of a journal that is in use it tells one moment; a batch that is just going out may show as a torn tail.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{OpenError, ReadError};
use crate::format::segment::SegmentHeader;
use crate::fs::{Fs, How, RealFs};
use crate::open::is_folder;
use crate::options::{Durability, Options, Upkeep};
use crate::read::{payload_of, read_frame};
use crate::record::{OpenRecord, Record};
use crate::recover::replay::Tail;
use crate::slots::{SEGMENTS, Slots};
use crate::survey::{Survey, file_name, survey};

/// What a segment file is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentUse {
    /// It holds a part of the log.
    Log,
    /// It is ready to be written to.
    Spare,
    /// Nothing in it is needed.
    Free,
}

/// One segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its file name.
    pub file: String,
    /// The id of its present life.
    pub id: u64,
    /// What it is used for.
    pub used_as: SegmentUse,
    /// The offset behind its last batch.
    pub end: u64,
    /// Open records in it.
    pub open_records: u64,
}

/// A journal seen from outside.
#[derive(Debug)]
pub struct Inspection {
    /// The journal's id.
    pub journal: u128,
    /// The cap it was last opened with.
    pub capacity: u64,
    /// The size of its segments.
    pub segment_bytes: u64,
    /// What its writer promises.
    pub durability: Durability,
    /// How the log ends.
    pub tail: Tail,
    /// Batches in the log.
    pub batches: u64,
    /// Its segment files by id.
    pub segments: Vec<SegmentInfo>,
    /// Names in the segment folder that are not the journal's, and one of them.
    pub foreign: (u64, Option<PathBuf>),
    slots: Slots,
    found: Survey,
}

/// The segment folder of an existing journal.
pub(crate) fn existing(root: &Path) -> Result<Slots, OpenError> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let dir = root.join(SEGMENTS);
    for path in [root, &dir] {
        if !is_folder(&*fs, path, path == root)? {
            return Err(OpenError::Missing {
                path: path.to_owned(),
            });
        }
    }
    Ok(Slots { fs, dir })
}

/// Looks at the journal in `root`.
///
/// # Errors
/// As [`Journal::open`](crate::Journal::open), the lock apart; [`OpenError::Missing`] when there is no journal.
pub fn inspect(root: &Path) -> Result<Inspection, OpenError> {
    let slots = existing(root)?;
    let missing = || OpenError::Missing {
        path: slots.dir.join(file_name(1)),
    };
    let found = survey(&slots, root)?.ok_or_else(missing)?;
    let (end, _) = found.replay.end();
    let newest = newest_header(&found, end).ok_or_else(missing)?;
    Ok(Inspection {
        journal: newest.journal,
        capacity: newest.capacity,
        segment_bytes: newest.segment_bytes,
        durability: newest.durability,
        tail: found.tail,
        batches: found.replay.batches,
        segments: segments(&found, end),
        foreign: found.files.foreign.clone(),
        slots,
        found,
    })
}

fn newest_header(found: &Survey, end: u64) -> Option<SegmentHeader> {
    let files = &found.files.by_id;
    files
        .get(&end)
        .or_else(|| files.values().next_back())
        .map(|f| f.head.header)
}

fn segments(found: &Survey, end: u64) -> Vec<SegmentInfo> {
    let info = |(id, file): (&u64, &crate::survey::Found)| {
        let part = found.replay.segments.iter().find(|segment| segment.id == *id);
        let used_as = match part {
            Some(_) if *id <= end => SegmentUse::Log,
            Some(segment) if !segment.stale => SegmentUse::Spare,
            _ => SegmentUse::Free,
        };
        let open_records = found.replay.open.values().filter(|at| at.segment == *id).count() as u64;
        let end = part.map_or(0, |segment| segment.end);
        SegmentInfo {
            file: file_name(file.slot),
            id: *id,
            used_as,
            end,
            open_records,
        }
    };
    found.files.by_id.iter().map(info).collect()
}

impl Inspection {
    /// The open records in order of seq.
    pub fn open_records(&self) -> Vec<OpenRecord> {
        self.found
            .replay
            .open
            .iter()
            .map(|(seq, at)| at.entry(*seq))
            .collect()
    }

    /// Bytes of the open records, framing included.
    pub fn open_bytes(&self) -> u64 {
        self.found.replay.open.values().map(|at| u64::from(at.len)).sum()
    }

    /// Reads one open record.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, seq: u64) -> Result<Record, ReadError> {
        let at = self
            .found
            .replay
            .open
            .get(&seq)
            .ok_or(ReadError::NotOpen { seq })?;
        let slot = self.found.files.by_id.get(&at.segment).map_or(0, |f| f.slot);
        let file = self
            .slots
            .open(slot, How::Read)
            .map_err(|source| ReadError::Io { seq, source })?;
        let frame = read_frame(&*file, at).map_err(|source| ReadError::Io { seq, source })?;
        let payload = payload_of(self.journal, seq, at, &frame).ok_or_else(|| ReadError::Damaged {
            seq,
            path: self.slots.path(slot),
            offset: at.offset,
        })?;
        Ok(Record {
            entry: at.entry(seq),
            payload,
        })
    }

    /// Options that open this journal for a short task of an operator: as it is, without threads.
    pub fn options(&self) -> Options {
        options_of(self.capacity, self.segment_bytes, self.durability)
    }
}

/// Options for a journal of which only the headers are known.
pub(crate) fn options_of(capacity: u64, segment_bytes: u64, durability: Durability) -> Options {
    let base = Options {
        capacity: capacity.max(segment_bytes.saturating_mul(3)),
        segment_bytes,
        durability,
        upkeep: Upkeep::Caller,
        create: false,
        holder: "weir journal".to_owned(),
        ..Options::default()
    };
    Options {
        max_record: base.longest_record(),
        ..base
    }
}
