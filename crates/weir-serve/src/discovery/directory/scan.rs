//! Looks at the directory again and again, and reads only the files that changed.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
};

use super::{
    super::Registration,
    folder::{Folder, is_alive, read},
};

/// What tells one version of a file from the next.
type Version = (u64, i64, i64, u64);

/// The directory as it was last seen.
#[derive(Debug)]
pub(super) struct Scan {
    folder: Arc<Folder>,
    seen: BTreeMap<PathBuf, (Version, Option<Registration>)>,
    /// The directory could not be read; said once.
    unreadable: bool,
}

impl Scan {
    pub(super) fn new(folder: Arc<Folder>) -> Self {
        Self {
            folder,
            seen: BTreeMap::new(),
            unreadable: false,
        }
    }

    /// Registrations of live processes now, by name. An unreadable directory changes nothing.
    pub(super) fn look(&mut self) -> Vec<Registration> {
        match fs::read_dir(self.folder.path()).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>) {
            Ok(entries) => {
                self.unreadable = false;
                self.update(&entries);
            }
            Err(error) if !self.unreadable => {
                self.unreadable = true;
                tracing::error!(directory = %self.folder.path().display(), %error, "cannot read the directory of workers");
            }
            Err(_) => {}
        }
        self.drop_dead();
        self.seen
            .values()
            .filter_map(|(_, registration)| registration.clone())
            .collect()
    }

    fn update(&mut self, entries: &[DirEntry]) {
        let files = entries.iter().filter_map(|entry| {
            let path = entry.path();
            (path.extension()? == "json").then_some((path, version(&entry.metadata().ok()?)))
        });
        let mut before = std::mem::take(&mut self.seen);
        self.seen = files
            .map(|(path, version)| match before.remove(&path) {
                Some(known) if known.0 == version => (path, known),
                _ => {
                    let registration = parsed(&path);
                    (path, (version, registration))
                }
            })
            .collect();
    }

    fn drop_dead(&mut self) {
        for (path, (_, registration)) in &mut self.seen {
            if let Some(dead) = registration.take_if(|found| !is_alive(found.pid)) {
                tracing::info!(worker = %dead.name, pid = dead.pid, "removing the registration of a dead process");
                self.folder.remove_stale(path);
            }
        }
    }
}

fn version(metadata: &Metadata) -> Version {
    (
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.size(),
    )
}

fn parsed(path: &std::path::Path) -> Option<Registration> {
    let read = read(path);
    if let Err(error) = &read
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "ignoring a file that is no registration");
    }
    read.ok()
}
