//! Saving what can be saved of a damaged journal.
//!
//! Every batch that verifies, or does with one bit flipped back, is taken; the open records that come of them are
//! written into fresh segments. The old folder is kept under another name: no byte that could not be parsed is
//! deleted, and a crash half way leaves either the old or the new journal in place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::core::Core;
use crate::error::OpenError;
use crate::format::record::{Fields, Kind, data_frame, payload_crc};
use crate::format::segment::SegmentHeader;
use crate::format::{DATA_START, SECTOR};
use crate::fs::{NodeKind, Step};
use crate::inspect::{existing, options_of};
use crate::open::{create, take_lock};
use crate::recover::flip::healed_batch;
use crate::recover::order;
use crate::recover::scan::{Batch, Place, batch_at};
use crate::slots::{SEGMENTS, Slots};
use crate::state::{Admit, Claim};
use crate::survey::{Files, list, load};

/// What can be saved, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvage {
    /// Open records that verify.
    pub open_records: u64,
    /// Batches that verify.
    pub batches: u64,
    /// Batches healed by flipping one bit.
    pub healed: u64,
    /// Batches that are missing between those, with whatever was in them.
    pub lost_batches: u64,
    /// Segment files that cannot be read at all.
    pub lost_files: u64,
    /// Where the damaged segments are kept, once repaired.
    pub kept: Option<PathBuf>,
}

/// A record and its payload.
type Saved = BTreeMap<u64, (Fields, Vec<u8>)>;

/// The bits of a damaged journal that verify.
#[derive(Default)]
struct Pieces {
    by_number: BTreeMap<u64, Vec<Piece>>,
    next_seq: u64,
    healed: u64,
    lost_files: u64,
}

enum Piece {
    Data(Fields, Vec<u8>),
    Settled(u64),
}

/// Tells what [`repair`] would save. Changes nothing.
///
/// # Errors
/// When the journal cannot be looked at.
pub fn salvage(root: &Path) -> Result<Salvage, OpenError> {
    let slots = existing(root)?;
    let files = list(&slots)?;
    let pieces = collect(&slots, root, &files);
    Ok(pieces.fold().1)
}

/// Replaces a damaged journal by one that holds what can be saved.
///
/// # Errors
/// When the journal is in use, or the new one cannot be written; the old one is then still in place.
pub fn repair(root: &Path) -> Result<Salvage, OpenError> {
    let slots = existing(root)?;
    let _hold = take_lock(&*slots.fs, root, "weir journal repair")?;
    let files = list(&slots)?;
    let pieces = collect(&slots, root, &files);
    let next_seq = pieces.next_seq;
    let (saved, mut told) = pieces.fold();
    let Some(header) = files.by_id.values().next_back().map(|f| f.head.header) else {
        return Err(OpenError::Missing { path: slots.dir });
    };
    let fresh = Slots {
        fs: slots.fs.clone(),
        dir: root.join("repaired"),
    };
    write_fresh(&fresh, root, &header, next_seq, &saved)?;
    let kept = free_name(&slots, root)?;
    slots
        .fs
        .rename(&slots.dir, &kept)
        .map_err(OpenError::io("renaming", &slots.dir))?;
    slots
        .fs
        .rename(&fresh.dir, &root.join(SEGMENTS))
        .map_err(OpenError::io("renaming", &fresh.dir))?;
    slots
        .fs
        .sync_dir(root, Step::RootDir)
        .map_err(OpenError::io("syncing", root))?;
    told.kept = Some(kept);
    Ok(told)
}

fn free_name(slots: &Slots, root: &Path) -> Result<PathBuf, OpenError> {
    for n in 1u32.. {
        let path = root.join(format!("{SEGMENTS}.damaged-{n}"));
        if slots
            .fs
            .kind(&path)
            .map_err(OpenError::io("looking at", &path))?
            .is_none()
        {
            return Ok(path);
        }
    }
    Err(OpenError::Missing {
        path: root.to_owned(),
    })
}

fn collect(slots: &Slots, root: &Path, files: &Files) -> Pieces {
    let mut pieces = Pieces {
        lost_files: files.headless.len() as u64,
        next_seq: 1,
        ..Pieces::default()
    };
    let low_water = files
        .by_id
        .values()
        .map(|f| f.head.header.low_water)
        .max()
        .unwrap_or(0);
    let links = files
        .by_id
        .iter()
        .map(|(id, f)| (*id, f.head.header.after))
        .collect();
    // With a link missing, everything that may be needed is taken.
    let log = order::chain(&links, low_water).unwrap_or_else(|_| {
        files
            .by_id
            .keys()
            .copied()
            .filter(|id| *id >= low_water)
            .collect()
    });
    let mut bytes = Vec::new();
    for (id, found) in files.by_id.iter().filter(|(id, _)| log.contains(id)) {
        pieces.next_seq = pieces.next_seq.max(found.head.header.next_seq);
        if load(slots, root, found, &mut bytes).is_ok() {
            pieces.take_segment(&bytes, Place::new(found.head.header.journal, *id));
        } else {
            pieces.lost_files += 1;
        }
    }
    pieces
}

impl Pieces {
    fn take_segment(&mut self, bytes: &[u8], place: Place) {
        let mut at = DATA_START;
        while at < bytes.len() as u64 {
            if let Some(batch) = batch_at(bytes, place, at) {
                at = batch.end();
                self.take(&batch);
                continue;
            }
            if let Some(healed) = healed_batch(bytes, place, at)
                && let Some(batch) = batch_at(&healed, place, at)
            {
                at = batch.end();
                self.healed += 1;
                self.take(&batch);
                continue;
            }
            at += SECTOR as u64;
        }
    }

    fn take(&mut self, batch: &Batch<'_>) {
        self.next_seq = self.next_seq.max(batch.header.next_seq);
        let pieces = self.by_number.entry(batch.header.number).or_default();
        for frame in &batch.frames {
            match frame.kind {
                Kind::Append | Kind::Carry => {
                    pieces.extend(frame.fields().map(|f| Piece::Data(f, frame.payload().to_vec())));
                }
                Kind::Settle => pieces.extend(frame.settles().map(Piece::Settled)),
                Kind::Seal => {}
            }
        }
    }

    fn fold(self) -> (Saved, Salvage) {
        let mut saved = Saved::new();
        let (first, last) = (self.by_number.keys().next(), self.by_number.keys().next_back());
        let span = last.zip(first).map_or(0, |(last, first)| last - first + 1);
        let batches = self.by_number.len() as u64;
        for piece in self.by_number.into_values().flatten() {
            match piece {
                Piece::Data(fields, payload) => {
                    saved.insert(fields.seq, (fields, payload));
                }
                Piece::Settled(seq) => {
                    saved.remove(&seq);
                }
            }
        }
        let told = Salvage {
            open_records: saved.len() as u64,
            batches,
            healed: self.healed,
            lost_batches: span.saturating_sub(batches),
            lost_files: self.lost_files,
            kept: None,
        };
        (saved, told)
    }
}

/// Writes `saved` into a new journal in the folder of `fresh`.
fn write_fresh(
    fresh: &Slots,
    root: &Path,
    header: &SegmentHeader,
    next_seq: u64,
    saved: &Saved,
) -> Result<(), OpenError> {
    clear(fresh)?;
    let options = options_of(header.capacity, header.segment_bytes, header.durability);
    // Seqs of what was lost are not given again: their receivers may have seen them.
    let per_segment = options.usable() / data_frame(0) as u64;
    let first = next_seq.saturating_add(per_segment.saturating_mul(3));
    let (core, _) = create(
        fresh.clone(),
        root,
        &options,
        header.journal,
        header.id + 1,
        first,
    )?;
    for (fields, payload) in saved.values() {
        place(&core, fields, payload).map_err(|cause| OpenError::Io {
            doing: "writing a saved record to",
            path: fresh.dir.clone(),
            source: std::io::Error::other(cause),
        })?;
    }
    core.close();
    match core.lock().poison.clone() {
        Some(poison) => Err(OpenError::Io {
            doing: "writing",
            path: fresh.dir.clone(),
            source: std::io::Error::other(poison.to_string()),
        }),
        None => Ok(()),
    }
}

/// Removes what an interrupted repair left.
fn clear(fresh: &Slots) -> Result<(), OpenError> {
    match fresh
        .fs
        .kind(&fresh.dir)
        .map_err(OpenError::io("looking at", &fresh.dir))?
    {
        Some(NodeKind::Dir) => {
            for (name, _) in fresh
                .fs
                .list(&fresh.dir)
                .map_err(OpenError::io("listing", &fresh.dir))?
            {
                let path = fresh.dir.join(name);
                fresh.fs.remove(&path).map_err(OpenError::io("removing", &path))?;
            }
            Ok(())
        }
        _ => fresh
            .fs
            .create_dir(&fresh.dir)
            .map_err(OpenError::io("making", &fresh.dir)),
    }
}

fn place(core: &Core, fields: &Fields, payload: &[u8]) -> Result<(), String> {
    let crc = payload_crc(payload);
    let mut state = core.lock();
    loop {
        match state.admit(&core.options, data_frame(payload.len()), Claim::Carry) {
            Admit::Here => break,
            Admit::Drain => {
                let number = state.open.number;
                state = core.drain(state, number).map_err(|e| e.to_string())?;
            }
            Admit::Upkeep => {
                drop(state);
                if !core.upkeep_round() {
                    return Err("no room for another segment".to_owned());
                }
                state = core.lock();
            }
            Admit::Refused(e) => return Err(e.to_string()),
        }
    }
    state.encode(Kind::Carry, fields, payload, crc);
    Ok(())
}
