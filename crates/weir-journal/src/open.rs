//! Opening: the lock, the survey, what has to be made durable again, and the state that goes on from there.
//!
//! Opening a journal that exists needs no new space. Everything it writes can be written again: a crash while
//! opening leads to the same opening.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::error::OpenError;
use crate::format::DATA_START;
use crate::format::seed::Seed;
use crate::format::segment::SegmentHeader;
use crate::fs::{Fs, Hold, Locking, NodeKind, Step};
use crate::options::Options;
use crate::recover::replay::Tail;
use crate::resume::{healed, resume};
use crate::slots::{SEGMENTS, SlotError, Slots};
use crate::state::{Active, Segment, State, Supply};
use crate::survey::survey;

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
        // The root may be a link to a folder; what is in it may not.
        if !is_folder(&**fs, path, path == root)? {
            if !options.create {
                return Err(OpenError::Missing {
                    path: path.to_owned(),
                });
            }
            make_dir(&**fs, path)?;
        }
    }
    Ok(Slots {
        fs: Arc::clone(fs),
        dir,
    })
}

/// Whether `path` is a folder; false when nothing is there.
pub(crate) fn is_folder(fs: &dyn Fs, path: &Path, or_link: bool) -> Result<bool, OpenError> {
    match fs.kind(path).map_err(OpenError::io("looking at", path))? {
        Some(NodeKind::Dir) => Ok(true),
        Some(NodeKind::Symlink) if or_link => Ok(true),
        Some(_) => {
            let (found, wanted) = ("not a folder", "a folder");
            Err(OpenError::Unexpected {
                path: path.to_owned(),
                found,
                wanted,
            })
        }
        None => Ok(false),
    }
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
    let supply = Supply {
        next_id: id + 1,
        next_slot: 2,
        ..Supply::default()
    };
    let state = State {
        next_seq: seq,
        segments: VecDeque::from([Segment::empty(id, 1)]),
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
