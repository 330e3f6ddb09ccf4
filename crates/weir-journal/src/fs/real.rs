//! The operating system's file system.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::{Fs, FsFile, Hold, How, Locking, NodeKind, Step};

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

#[derive(Debug)]
struct RealFile(File);

#[derive(Debug)]
struct RealHold {
    _locked: File,
}

impl Hold for RealHold {}

fn kind_of(kind: fs::FileType) -> NodeKind {
    if kind.is_symlink() {
        NodeKind::Symlink
    } else if kind.is_dir() {
        NodeKind::Dir
    } else if kind.is_file() {
        NodeKind::File
    } else {
        NodeKind::Other
    }
}

impl Fs for RealFs {
    fn kind(&self, path: &Path) -> io::Result<Option<NodeKind>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(kind_of(metadata.file_type()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(OsString, NodeKind)>> {
        fs::read_dir(dir)?
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name(), kind_of(entry.file_type()?)))
            })
            .collect()
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn FsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(0o600);
        match how {
            How::Read => {}
            How::Update => {
                options.write(true);
            }
            How::Create => {
                options.write(true).create_new(true);
            }
        }
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path, _step: Step) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locking> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.write_all(holder.as_bytes())?;
                Ok(Locking::Held(Box::new(RealHold { _locked: file })))
            }
            Err(TryLockError::WouldBlock) => {
                let mut said = String::new();
                file.take(256).read_to_string(&mut said)?;
                Ok(Locking::Taken(if said.is_empty() {
                    "another process".to_owned()
                } else {
                    said
                }))
            }
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        let metadata = fs::metadata(path)?;
        Ok(Some((metadata.dev(), metadata.ino())))
    }
}

impl FsFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self, _step: Step) -> io::Result<()> {
        self.0.sync_data()
    }
}
