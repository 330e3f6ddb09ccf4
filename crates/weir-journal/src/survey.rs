//! What lies in a root: its segment files, the log they form, its open records and how it ends. Writes nothing.
//!
//! Opening, `weir journal check` and the other read-only commands all start from here. The segment folder is
//! listed once; the root itself never is, so what else lies in it costs nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::format::segment::{Head, HeaderFault, read_head};
use crate::format::{DATA_START, VERSION};
use crate::fs::{FsFile, How, NodeKind, read_full};
use crate::recover::replay::{Replay, Tail};
use crate::recover::scan::{Place, beyond};
use crate::recover::{Damage, DamageKind, order};
use crate::slots::{Name, Slots, name_of};

/// One segment file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) slot: u64,
    pub(crate) head: Head,
}

/// The files of a journal.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// By segment id.
    pub(crate) by_id: BTreeMap<u64, Found>,
    /// Slots whose header cannot be read.
    pub(crate) headless: Vec<u64>,
    /// Files that never got their name.
    pub(crate) unfinished: Vec<PathBuf>,
    /// How many names are not ours, and one of them.
    pub(crate) foreign: (u64, Option<PathBuf>),
    /// The first unused slot number.
    pub(crate) next_slot: u64,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) files: Files,
    /// The segments of the log, oldest first.
    pub(crate) log: Vec<u64>,
    pub(crate) replay: Replay,
    pub(crate) tail: Tail,
    /// Bytes read.
    pub(crate) scanned: u64,
    /// The segment that was healed before.
    pub(crate) healed: Option<PathBuf>,
}

impl Survey {
    /// The number of the last batch; with none in the log, one that none written before can have exceeded.
    pub(crate) fn last_batch(&self) -> u64 {
        let floor = || {
            let told = self
                .files
                .by_id
                .values()
                .map(|f| f.head.header.next_batch)
                .max()
                .unwrap_or(1);
            self.replay.highest.max(told.saturating_sub(1))
        };
        self.replay
            .expect
            .map_or_else(floor, |expect| expect.number.saturating_sub(1))
    }
}

/// Lists the segment folder and reads every header.
pub(crate) fn list(slots: &Slots) -> Result<Files, OpenError> {
    let mut files = Files {
        next_slot: 1,
        ..Files::default()
    };
    let names = slots
        .fs
        .list(&slots.dir)
        .map_err(OpenError::io("listing", &slots.dir))?;
    for (name, kind) in names {
        let path = slots.dir.join(&name);
        match name_of(Path::new(&name)) {
            Name::Slot(slot) => {
                check_file(&path, kind)?;
                files.next_slot = files.next_slot.max(slot.saturating_add(1));
                read_slot(slots, slot, &path, &mut files)?;
            }
            Name::Unfinished if kind == NodeKind::File => files.unfinished.push(path),
            Name::Unfinished | Name::Foreign => {
                files.foreign.0 += 1;
                files.foreign.1.get_or_insert(path);
            }
        }
    }
    Ok(files)
}

fn check_file(path: &Path, kind: NodeKind) -> Result<(), OpenError> {
    let found = match kind {
        NodeKind::File => return Ok(()),
        NodeKind::Dir => "a folder",
        NodeKind::Symlink => "a symbolic link",
        NodeKind::Other => "not a regular file",
    };
    Err(OpenError::Unexpected {
        path: path.to_owned(),
        found,
        wanted: "a segment file",
    })
}

fn read_slot(slots: &Slots, slot: u64, path: &Path, files: &mut Files) -> Result<(), OpenError> {
    let mut bytes = vec![0; usize::try_from(DATA_START).unwrap_or_default()];
    let file = slots
        .open(slot, How::Read)
        .map_err(OpenError::io("opening", path))?;
    let n = read_full(&*file, &mut bytes, 0).map_err(OpenError::io("reading", path))?;
    match read_head(bytes.get(..n).unwrap_or_default()) {
        Ok(head) => {
            let other = files
                .by_id
                .values()
                .next()
                .filter(|f| f.head.header.journal != head.header.journal);
            if other.is_some() || files.by_id.contains_key(&head.header.id) {
                let (found, wanted) = (
                    "a segment of another journal, or a copy",
                    "a segment of this journal",
                );
                return Err(OpenError::Unexpected {
                    path: path.to_owned(),
                    found,
                    wanted,
                });
            }
            files.by_id.insert(head.header.id, Found { slot, head });
        }
        Err(HeaderFault::Newer(found)) => {
            return Err(OpenError::NewerFormat {
                path: path.to_owned(),
                found,
                known: VERSION,
            });
        }
        Err(HeaderFault::NoMagic | HeaderFault::Damaged) => files.headless.push(slot),
    }
    Ok(())
}

/// Reads the whole of one segment into `bytes`.
pub(crate) fn load(slots: &Slots, root: &Path, found: &Found, bytes: &mut Vec<u8>) -> Result<(), OpenError> {
    let path = slots.path(found.slot);
    let header = found.head.header;
    let file = slots
        .open(found.slot, How::Read)
        .map_err(OpenError::io("opening", &path))?;
    let have = file.size().map_err(OpenError::io("reading", &path))?;
    if have != header.segment_bytes {
        let kind = DamageKind::Short {
            have,
            want: header.segment_bytes,
        };
        let file = file_name(found.slot);
        let damage = Damage {
            file,
            segment: header.id,
            offset: have.min(header.segment_bytes),
            kind,
        };
        return Err(OpenError::Corrupt {
            root: root.to_owned(),
            damage,
        });
    }
    read_whole(&*file, have, bytes).map_err(OpenError::io("reading", &path))
}

fn read_whole(file: &dyn FsFile, len: u64, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    bytes.resize(usize::try_from(len).map_err(std::io::Error::other)?, 0);
    let n = read_full(file, bytes, 0)?;
    if n < bytes.len() {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(())
    }
}

/// The name of a slot's file, for messages.
pub(crate) fn file_name(slot: u64) -> String {
    format!("{slot:08}.seg")
}

/// Reads the journal whose segment folder is `slots.dir`. None when there is no segment at all.
pub(crate) fn survey(slots: &Slots, root: &Path) -> Result<Option<Survey>, OpenError> {
    let files = list(slots)?;
    let corrupt = |damage| OpenError::Corrupt {
        root: root.to_owned(),
        damage,
    };
    if let Some(slot) = files.headless.first() {
        let damage = Damage {
            file: file_name(*slot),
            segment: 0,
            offset: 0,
            kind: DamageKind::Header,
        };
        return Err(corrupt(damage));
    }
    let Some(newest) = files.by_id.values().next_back() else {
        return Ok(None);
    };
    let journal = newest.head.header.journal;
    let mut bytes = Vec::new();
    let low_water = low_water(slots, root, &files, journal, &mut bytes)?;
    let links = files
        .by_id
        .iter()
        .map(|(id, found)| (*id, found.head.header.after))
        .collect();
    let log = order::chain(&links, low_water).map_err(corrupt)?;
    let mut replay = Replay::new(journal, low_water);
    let mut scanned = 0;
    for id in &log {
        if let Some(found) = files.by_id.get(id) {
            load(slots, root, found, &mut bytes)?;
            scanned += bytes.len() as u64;
            replay.feed(&file_name(found.slot), *id, &bytes);
        }
    }
    let tail = replay.verdict().map_err(corrupt)?;
    Ok(Some(Survey {
        files,
        log,
        replay,
        tail,
        scanned,
        healed: None,
    }))
}

/// The oldest segment that is needed: the newest batch knows, and so does every header.
fn low_water(
    slots: &Slots,
    root: &Path,
    files: &Files,
    journal: u128,
    bytes: &mut Vec<u8>,
) -> Result<u64, OpenError> {
    let mut low_water = files
        .by_id
        .values()
        .map(|f| f.head.header.low_water)
        .max()
        .unwrap_or(0);
    for (id, found) in files.by_id.iter().rev() {
        load(slots, root, found, bytes)?;
        let seen = beyond(bytes, Place::new(journal, *id), DATA_START);
        low_water = low_water.max(seen.low_water);
        if seen.count > 0 {
            break;
        }
    }
    Ok(low_water)
}
