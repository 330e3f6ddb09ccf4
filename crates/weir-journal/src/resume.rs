//! Going on from what a survey found: what is in doubt made durable again, the state rebuilt.
//!
//! What was found out is written into the header of the last segment, so that opening again finds the same.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::error::OpenError;
use crate::format::DATA_START;
use crate::format::record::data_frame;
use crate::format::seed::Seed;
use crate::format::segment::{SegmentHeader, write_head};
use crate::fs::{FsFile, How, Step, read_full, sync, write_all};
use crate::open::Report;
use crate::options::{Durability, Options};
use crate::recover::replay::{Replayed, Tail};
use crate::slots::Slots;
use crate::state::{Active, Segment, Spare, State, Supply};
use crate::survey::{Survey, load, survey};

/// Flips a bit of the last batch back where that makes it whole, and looks again.
pub(crate) fn healed(slots: &Slots, root: &Path, found: Survey) -> Result<Survey, OpenError> {
    let Tail::OneBit { segment, bit, .. } = found.tail else {
        return Ok(found);
    };
    let slot = found.files.by_id.get(&segment).map_or(0, |f| f.slot);
    let path = slots.path(slot);
    let file = slots
        .open(slot, How::Update)
        .map_err(OpenError::io("opening", &path))?;
    flip_bit(&*file, bit).map_err(OpenError::io("healing", &path))?;
    let again = survey(slots, root)?.unwrap_or(found);
    Ok(Survey {
        healed: Some(path),
        ..again
    })
}

/// Flips one bit of a file, durably.
fn flip_bit(file: &dyn FsFile, bit: u64) -> std::io::Result<()> {
    let mut byte = [0];
    read_full(file, &mut byte, bit / 8)?;
    write_all(file, &byte.map(|b| b ^ (1 << (bit % 8))), bit / 8)?;
    sync(file, Step::Reopen)
}

/// Goes on from what a survey found.
pub(crate) fn resume(
    slots: Slots,
    root: &Path,
    options: &Options,
    found: Survey,
) -> Result<(Core, Report), OpenError> {
    let on_disk = found
        .files
        .by_id
        .values()
        .next()
        .map_or(0, |f| f.head.header.segment_bytes);
    if on_disk != options.segment_bytes {
        let bound = format!("{on_disk}, as the segments in {} are", root.display());
        return Err(OpenError::Config {
            field: "segment_bytes",
            value: options.segment_bytes,
            bound,
        });
    }
    for path in &found.files.unfinished {
        slots.fs.remove(path).map_err(OpenError::io("removing", path))?;
    }
    make_durable(&slots, root, options, &found)?;
    let report = Report {
        journal: found
            .files
            .by_id
            .values()
            .next()
            .map_or(0, |f| f.head.header.journal),
        made: false,
        tail: found.tail,
        open_records: found.replay.open.len() as u64,
        scanned_bytes: found.scanned,
        half_headers: found.files.by_id.values().filter(|f| !f.head.both).count() as u64,
        healed: found.healed.clone(),
        foreign: found.files.foreign.clone(),
        took: Duration::ZERO,
    };
    let state = rebuild(&slots, options, found, report.journal)?;
    Ok((Core::new(slots, options.clone(), state), report))
}

/// After an unclean end, above all after a failed sync, the kernel may show what the disk does not hold and not
/// know it. Every segment that no batch says was durable is written again as it was read, the last one with zeros
/// behind its last batch, and synced. After a close, only the header of the last segment is: it tells from now on
/// what an acknowledgement means, and how far seqs may have come.
fn make_durable(slots: &Slots, root: &Path, options: &Options, found: &Survey) -> Result<(), OpenError> {
    let (end_id, _) = found.replay.end();
    let sealed = found.tail == Tail::Sealed;
    let unclean = |s: &Replayed| !sealed && (s.id > end_id || s.last_batch > found.replay.durable);
    let doubtful = |s: &&Replayed| s.id == end_id || unclean(s);
    for segment in found.replay.segments.iter().filter(doubtful) {
        let Some(file) = found.files.by_id.get(&segment.id) else {
            continue;
        };
        let path = slots.path(file.slot);
        let mut bytes = Vec::new();
        load(slots, root, file, &mut bytes)?;
        if segment.id == end_id {
            clean_end(&mut bytes, options, found, &file.head.header, segment.end);
        }
        if sealed || segment.id > end_id {
            // Nothing but the header is in doubt: of a spare, whether its new life has reached the disk.
            bytes.truncate(usize::try_from(DATA_START).unwrap_or(usize::MAX));
        }
        let handle = slots
            .open(file.slot, How::Update)
            .map_err(OpenError::io("opening", &path))?;
        write_all(&*handle, &bytes, 0).map_err(OpenError::io("writing", &path))?;
        sync(&*handle, Step::Reopen).map_err(OpenError::io("syncing", &path))?;
    }
    slots
        .fs
        .sync_dir(&slots.dir, Step::ReopenDir)
        .map_err(OpenError::io("syncing", &slots.dir))
}

/// Zeros behind the last batch, and in the header what was found out: opening again finds the same.
fn clean_end(bytes: &mut [u8], options: &Options, found: &Survey, header: &SegmentHeader, end: u64) {
    let end = usize::try_from(end).unwrap_or(usize::MAX);
    if let Some(behind) = bytes.get_mut(end..) {
        behind.fill(0);
    }
    let (low_water, next_batch) = (found.replay.low_water, found.last_batch() + 1);
    let next_seq = next_seq(options, found);
    let (durability, capacity) = (options.durability, options.capacity);
    let head = write_head(&SegmentHeader {
        low_water,
        next_batch,
        next_seq,
        durability,
        capacity,
        ..*header
    });
    if let Some(start) = bytes.get_mut(..head.len()) {
        start.copy_from_slice(&head);
    }
}

fn rebuild(slots: &Slots, options: &Options, found: Survey, journal: u128) -> Result<State, OpenError> {
    let (end_id, end) = found.replay.end();
    let open_file = |id: u64| -> Result<Arc<dyn FsFile>, OpenError> {
        let slot = found.files.by_id.get(&id).map_or(0, |f| f.slot);
        slots
            .open(slot, How::Update)
            .map_err(OpenError::io("opening", &slots.path(slot)))
    };
    let active = Active {
        file: open_file(end_id)?,
        id: end_id,
        seed: Seed::new(journal, end_id),
        offset: end,
    };
    let mut supply = Supply {
        next_id: found.files.by_id.keys().next_back().map_or(1, |id| id + 1),
        next_slot: found.files.next_slot,
        look: true,
        ..Supply::default()
    };
    let mut segments = VecDeque::new();
    let mut follows_on = true;
    for segment in &found.replay.segments {
        let slot = found.files.by_id.get(&segment.id).map_or(0, |f| f.slot);
        if segment.id <= end_id {
            segments.push_back(counted(segment.id, slot, segment.end, segment.last_batch, &found));
        } else if follows_on && !segment.stale {
            supply.spares.push_back(Spare {
                id: segment.id,
                slot,
                file: open_file(segment.id)?,
            });
        } else {
            follows_on = false;
            supply.retired.push_back((segment.id, slot));
        }
    }
    let dead = found.files.by_id.iter().filter(|(id, _)| !found.log.contains(id));
    supply.retired.extend(dead.map(|(id, f)| (*id, f.slot)));
    supply.retired.make_contiguous().sort_unstable();
    let last = found.last_batch();
    let next_seq = next_seq(options, &found);
    let replay = found.replay;
    let mut state = State {
        chain: replay.expect.map_or(0, |expect| expect.chain),
        next_seq,
        index: replay.open,
        segments,
        ..State::starting(journal, active, supply, last + 1)
    };
    state.retire();
    Ok(state)
}

fn counted(id: u64, slot: u64, end: u64, last_batch: u64, found: &Survey) -> Segment {
    let here = found.replay.open.values().filter(|at| at.segment == id);
    let (live, live_bytes) = here.fold((0, 0), |(n, bytes), at| (n + 1, bytes + u64::from(at.len)));
    Segment {
        live,
        live_bytes,
        end,
        last_batch,
        ..Segment::empty(id, slot)
    }
}

/// The first seq that no record can have had, one lost with the power included. With [`Durability::Buffered`] a
/// record may have been sent and then lost; were its seq used again, its receiver would take the new record for a
/// repeat. At most three segments are written between two headers that tell how far seqs had come.
fn next_seq(options: &Options, found: &Survey) -> u64 {
    let headers = || found.files.by_id.values().map(|f| f.head.header);
    let told = headers().map(|header| header.next_seq).max().unwrap_or(1);
    let buffered = headers().any(|header| header.durability == Durability::Buffered);
    let per_segment = options.usable() / data_frame(0) as u64;
    let jump = if buffered {
        per_segment.saturating_mul(3)
    } else {
        0
    };
    found.replay.next_seq.max(told.saturating_add(jump))
}
