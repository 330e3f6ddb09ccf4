//! What can go wrong, by who must act: the caller, the operator, the environment.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::Step;
use crate::recover::Damage;

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option is out of its bounds.
    #[error("{field} is {value}, must be {bound}")]
    Config {
        /// The option.
        field: &'static str,
        /// What was given.
        value: u64,
        /// What would be accepted.
        bound: String,
    },
    /// This process has the root open with other options.
    #[error("{} is open in this process with other options; use the same or close it first", root.display())]
    OptionsDiffer {
        /// The journal.
        root: PathBuf,
    },
    /// Another process holds the root.
    #[error("{} is in use by {holder}; stop it, or use another root", root.display())]
    Locked {
        /// The journal.
        root: PathBuf,
        /// Who holds it, as it said itself.
        holder: String,
    },
    /// The root, or its parent, does not exist.
    #[error("{} does not exist", path.display())]
    Missing {
        /// What is missing.
        path: PathBuf,
    },
    /// Something else stands where the journal needs a folder or a file of its own.
    #[error("{} is {found}, must be {wanted}; move it away", path.display())]
    Unexpected {
        /// What stands there.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What is needed.
        wanted: &'static str,
    },
    /// A newer weir wrote this journal.
    #[error("{} has format {found}, this weir reads up to {known}; use a newer weir", path.display())]
    NewerFormat {
        /// The segment.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// Acknowledged bytes do not verify.
    #[error("{} is damaged: {damage}; run `weir journal check {}`", root.display(), root.display())]
    Corrupt {
        /// The journal.
        root: PathBuf,
        /// Where and what.
        damage: Damage,
    },
    /// There is no room for the first segments.
    #[error("{} has no room for the journal's first segments ({cause})", root.display())]
    NoSpace {
        /// The journal.
        root: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The system refused an operation.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

/// The first failure of a write, a sync or a rename. It stands for good: what had been written may or may not be
/// on the disk, so nothing after it can be promised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal has stopped: {step} failed ({cause}); nothing is acknowledged any more, restart this process once the disk is sound"
)]
pub struct Poison {
    /// What failed.
    pub step: Step,
    /// What the system said.
    pub cause: Arc<str>,
}

/// Why a record was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The payload is longer than a record may be. Nothing was written.
    #[error("a record of {len} bytes is longer than the {max} that this journal takes")]
    TooLarge {
        /// Bytes of the payload.
        len: usize,
        /// The longest payload accepted.
        max: usize,
    },
    /// The record does not fit under the cap, or the disk has no room for another segment. Nothing was written;
    /// settle records, or free space on the disk, and append again.
    #[error(
        "the journal is full: the record needs {needed} bytes, {free} of {capacity} are free; settle records first"
    )]
    Full {
        /// Bytes the record needs, framing included.
        needed: u64,
        /// Bytes that are left for records; where the disk is full, those in the segments there are.
        free: u64,
        /// The cap.
        capacity: u64,
    },
    /// A spare segment could not be made for another reason than space. Nothing was written; the next append
    /// tries again.
    #[error("no spare segment could be made: {cause}")]
    NoSpare {
        /// What the system said.
        cause: Arc<str>,
    },
    /// The journal has stopped. The record may or may not be on the disk: it must not be sent.
    #[error(transparent)]
    Poisoned(#[from] Poison),
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No open record has this seq.
    #[error("record {seq} is not open: it was settled, or never appended")]
    NotOpen {
        /// The seq asked for.
        seq: u64,
    },
    /// The record's bytes do not verify any more.
    #[error("record {seq} does not verify in {} at {offset}; run `weir journal check`", path.display())]
    Damaged {
        /// The record.
        seq: u64,
        /// The segment.
        path: PathBuf,
        /// Where in it.
        offset: u64,
    },
    /// The system refused.
    #[error("reading record {seq}: {source}")]
    Io {
        /// The record.
        seq: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The journal has stopped before the record was written.
    #[error(transparent)]
    Poisoned(#[from] Poison),
}
