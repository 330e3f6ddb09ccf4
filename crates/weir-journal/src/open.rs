//! Opening: the lock, the survey, what has to be made durable again, and the state that goes on from there.
//!
//! Opening a journal that exists needs no new space. Everything it writes can be written again: a crash while
//! opening leads to the same opening.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::OpenBatch;
use crate::core::Core;
use crate::error::OpenError;
use crate::format::DATA_START;
use crate::format::record::data_frame;
use crate::format::seed::Seed;
use crate::format::segment::{SegmentHeader, write_head};
use crate::fs::{Fs, FsFile, Hold, How, Locking, NodeKind, Step, read_full, sync, write_all};
use crate::options::{Durability, Options};
use crate::recover::replay::{Replayed, Tail};
use crate::slots::{SEGMENTS, SlotError, Slots};
use crate::state::{Active, Segment, Spare, State, Supply};
use crate::stats::Counters;
use crate::survey::{Survey, load, survey};

/// What opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The journal's id, drawn when it was made. Receivers drop repeats by (journal id, seq).
    pub journal: u128,
    /// Whether it was made by this call.
    pub made: bool,
    /// How the log ended.
    pub tail: Tail,
    /// Open records.
    pub open_records: u64,
    /// Bytes read.
    pub scanned_bytes: u64,
    /// Segments of which one copy of the header is damaged.
    pub half_headers: u64,
    /// The segment of which one bit was flipped back, in a last batch that no later one vouches for.
    pub healed: Option<PathBuf>,
    /// Names in the segment folder that are not the journal's, and one of them. They are left alone.
    pub foreign: (u64, Option<PathBuf>),
    /// How long it took.
    pub took: Duration,
}

/// A journal that is open, and its lock.
pub(crate) struct Opened {
    pub(crate) core: Core,
    pub(crate) report: Report,
    pub(crate) hold: Box<dyn Hold>,
}

/// Opens the journal in `root`.
pub(crate) fn open(fs: &Arc<dyn Fs>, root: &Path, options: &Options) -> Result<Opened, OpenError> {
    let started = Instant::now();
    options.validate()?;
    let slots = prepare(fs, root, options)?;
    let hold = take_lock(&**fs, root, &options.holder)?;
    let (core, mut report) = match survey(&slots, root)? {
        Some(found) => {
            let found = healed(&slots, root, found)?;
            resume(slots, root, options, found)?
        }
        None => create(slots, root, options, journal_id()?, 1, 1)?,
    };
    report.took = started.elapsed();
    Ok(Opened { core, report, hold })
}

/// Checks the root and makes what is missing of it.
fn prepare(fs: &Arc<dyn Fs>, root: &Path, options: &Options) -> Result<Slots, OpenError> {
    let dir = root.join(SEGMENTS);
    for path in [root, &dir] {
        match fs.kind(path).map_err(OpenError::io("looking at", path))? {
            Some(NodeKind::Dir) => {}
            // The root may be a link to a folder; what is in it may not.
            Some(NodeKind::Symlink) if path == root => {}
            Some(_) => {
                let (found, wanted) = ("not a folder", "a folder");
                return Err(OpenError::Unexpected {
                    path: path.to_owned(),
                    found,
                    wanted,
                });
            }
            None if options.create => make_dir(&**fs, path)?,
            None => {
                return Err(OpenError::Missing {
                    path: path.to_owned(),
                });
            }
        }
    }
    Ok(Slots {
        fs: Arc::clone(fs),
        dir,
    })
}

fn make_dir(fs: &dyn Fs, path: &Path) -> Result<(), OpenError> {
    match fs.create_dir(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(OpenError::Missing { path: parent(path) }),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(OpenError::io("making", path)),
    }
}

fn parent(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Makes the names of the root and of the segment folder durable. Only a journal without a segment can lack that.
fn sync_folders(fs: &dyn Fs, root: &Path) -> Result<(), OpenError> {
    for dir in [root.to_owned(), parent(root)] {
        fs.sync_dir(&dir, Step::RootDir)
            .map_err(OpenError::io("syncing", &dir))?;
    }
    Ok(())
}

/// Takes the lock of `root`.
pub(crate) fn take_lock(fs: &dyn Fs, root: &Path, holder: &str) -> Result<Box<dyn Hold>, OpenError> {
    let path = root.join("LOCK");
    match fs.kind(&path).map_err(OpenError::io("looking at", &path))? {
        None | Some(NodeKind::File) => {}
        Some(_) => {
            let (found, wanted) = ("not a regular file", "the journal's lock file");
            return Err(OpenError::Unexpected { path, found, wanted });
        }
    }
    let said = format!("{holder} (process {})", std::process::id());
    match fs.lock(&path, &said).map_err(OpenError::io("locking", &path))? {
        Locking::Held(hold) => Ok(hold),
        Locking::Taken(holder) => Err(OpenError::Locked {
            root: root.to_owned(),
            holder,
        }),
    }
}

fn journal_id() -> Result<u128, OpenError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| OpenError::Io {
        doing: "drawing the id of",
        path: PathBuf::from("a new journal"),
        source: std::io::Error::other(e),
    })?;
    Ok(u128::from_le_bytes(bytes))
}

/// Makes a journal whose first segment has id `id` and whose first record will have seq `seq`.
pub(crate) fn create(
    slots: Slots,
    root: &Path,
    options: &Options,
    journal: u128,
    id: u64,
    seq: u64,
) -> Result<(Core, Report), OpenError> {
    let header = SegmentHeader {
        journal,
        id,
        after: 0,
        low_water: id,
        next_seq: seq,
        next_batch: 1,
        segment_bytes: options.segment_bytes,
        capacity: options.capacity,
        durability: options.durability,
    };
    sync_folders(&*slots.fs, root)?;
    for path in crate::survey::list(&slots)?.unfinished {
        slots.fs.remove(&path).map_err(OpenError::io("removing", &path))?;
    }
    let file = slots.make(1, &header).map_err(|e| not_made(e, root, &slots))?;
    let active = Active {
        file,
        id,
        seed: Seed::new(journal, id),
        offset: DATA_START,
    };
    let first = Segment {
        id,
        slot: 1,
        live: 0,
        live_bytes: 0,
        end: DATA_START,
        last_batch: 0,
        hold: 0,
        dirty: None,
    };
    let supply = Supply {
        next_id: id + 1,
        next_slot: 2,
        ..Supply::default()
    };
    let state = State {
        next_seq: seq,
        segments: VecDeque::from([first]),
        ..State::starting(journal, active, supply, 1)
    };
    let report = Report {
        journal,
        made: true,
        tail: Tail::Open,
        open_records: 0,
        scanned_bytes: 0,
        half_headers: 0,
        healed: None,
        foreign: (0, None),
        took: Duration::ZERO,
    };
    Ok((Core::new(slots, options.clone(), state), report))
}

fn not_made(e: SlotError, root: &Path, slots: &Slots) -> OpenError {
    match e {
        SlotError::NoSpace(e) => OpenError::NoSpace {
            root: root.to_owned(),
            cause: e.to_string(),
        },
        SlotError::NotMade(source) | SlotError::Failed(_, source) => OpenError::Io {
            doing: "making a segment in",
            path: slots.dir.clone(),
            source,
        },
    }
}

/// Flips a bit of the last batch back where that makes it whole, and looks again.
fn healed(slots: &Slots, root: &Path, found: Survey) -> Result<Survey, OpenError> {
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
pub(crate) fn flip_bit(file: &dyn FsFile, bit: u64) -> std::io::Result<()> {
    let mut byte = [0];
    read_full(file, &mut byte, bit / 8)?;
    write_all(file, &byte.map(|b| b ^ (1 << (bit % 8))), bit / 8)?;
    sync(file, Step::Reopen)
}

/// Goes on from what a survey found.
fn resume(slots: Slots, root: &Path, options: &Options, found: Survey) -> Result<(Core, Report), OpenError> {
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
        id,
        slot,
        live,
        live_bytes,
        end,
        last_batch,
        hold: 0,
        dirty: None,
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

impl State {
    /// A state with no record, whose next batch is `number`.
    fn starting(journal: u128, active: Active, supply: Supply, number: u64) -> Self {
        Self {
            active,
            open: OpenBatch::new(number, Vec::new()),
            spare_buffer: Vec::new(),
            leading: false,
            chain: 0,
            written: number - 1,
            durable: number - 1,
            told: 0,
            told_durably: 0,
            next_seq: 1,
            index: std::collections::BTreeMap::new(),
            segments: VecDeque::new(),
            supply,
            marks: Vec::new(),
            marks_armed: false,
            poison: None,
            wakers: Vec::new(),
            room_wakers: Vec::new(),
            waiting: [0; 2],
            waiting_room: 0,
            closing: false,
            journal,
            counters: Counters::default(),
        }
    }
}
