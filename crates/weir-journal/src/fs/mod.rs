//! The file system as the journal sees it: few operations, each of which can fail, be cut short or be lost.
//!
//! [`RealFs`] is the operating system's; [`FaultyFs`] is its twin in memory, which loses what was not synced and
//! fails where it is told to. The journal knows only the traits.
//!
//! Every sync names the [`Step`] it serves, so that a failure can be told and a test can take one step away.

mod faulty;
mod real;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use faulty::{Fault, FaultyFs, Mutation};
pub use real::RealFs;

/// The places where the journal must not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Writing a batch.
    Write,
    /// Making a batch durable.
    Commit,
    /// Making buffered batches durable on demand, or before what they replace is given up.
    Flush,
    /// Writing out a new segment file.
    SpareFile,
    /// Giving a new segment file its name.
    SpareName,
    /// Making that name durable.
    SpareDir,
    /// Giving a used segment file a new life.
    Stamp,
    /// Giving a segment file back to the file system.
    Remove,
    /// Making durable again, after an unclean end, what was read at open.
    Reopen,
    /// Making names durable that were found at open.
    ReopenDir,
    /// Making the root's own folders durable.
    RootDir,
    /// Reading a record that is to be moved.
    Carry,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "writing a batch",
            Self::Commit => "syncing a batch",
            Self::Flush => "syncing buffered batches",
            Self::SpareFile => "writing a new segment",
            Self::SpareName => "naming a new segment",
            Self::SpareDir => "syncing the segment folder",
            Self::Stamp => "reusing a segment",
            Self::Remove => "removing a segment",
            Self::Reopen => "syncing a segment at open",
            Self::ReopenDir => "syncing the segment folder at open",
            Self::RootDir => "syncing the journal's folders",
            Self::Carry => "moving a record",
        })
    }
}

/// What a name in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link, which the journal never follows.
    Symlink,
    /// A socket, a device, or the like.
    Other,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Only to read.
    Read,
    /// To read and write what exists.
    Update,
    /// To make it; it must not exist.
    Create,
}

/// The answer of an attempt to lock.
#[derive(Debug)]
pub enum Locking {
    /// The lock is held until the value is dropped or the process ends.
    Held(Box<dyn Hold>),
    /// Someone else holds it, and says this of itself.
    Taken(String),
}

/// A lock that lasts as long as the value.
pub trait Hold: fmt::Debug + Send + Sync {}

/// A file system.
pub trait Fs: fmt::Debug + Send + Sync {
    /// What `path` is, links not followed; None when nothing is there.
    fn kind(&self, path: &Path) -> io::Result<Option<NodeKind>>;
    /// Makes one folder.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<(OsString, NodeKind)>>;
    /// Opens a file.
    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn FsFile>>;
    /// Gives a file another name, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()>;
    /// Takes the lock file at `path`, making it if need be, and writes `holder` into it.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locking>;
    /// What tells two names of one folder to be the same folder; None where handles cannot be shared.
    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>>;
}

/// An open file.
pub trait FsFile: fmt::Debug + Send + Sync {
    /// Its length.
    fn size(&self) -> io::Result<u64>;
    /// Reads at `offset`; may be short.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`; may be short.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes what was written durable.
    fn sync(&self, step: Step) -> io::Result<()>;
}

/// Writes all of `bytes` at `offset`, going on after short writes and interruptions.
pub(crate) fn write_all(file: &dyn FsFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or_default();
                offset = offset.saturating_add(n as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads up to `bytes.len()` bytes at `offset`, going on after short reads and interruptions; the count is smaller
/// only at the end of the file.
pub(crate) fn read_full(file: &dyn FsFile, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done = done.saturating_add(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Syncs, going on after an interruption.
pub(crate) fn sync(file: &dyn FsFile, step: Step) -> io::Result<()> {
    loop {
        match file.sync(step) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
