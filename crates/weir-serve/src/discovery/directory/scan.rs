//! Looks at the directory again and again, and reads only the files that changed.
//!
//! Files appear and go whole, so the directory's own modification time tells whether a look is needed.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    super::Registration,
    folder::{Folder, is_alive, read},
};

/// What tells one version of a file from the next.
type Version = (u64, i64, i64, u64);

/// How old a modification time must be to tell the next change apart, whatever the file system's granularity.
const SETTLED: Duration = Duration::from_secs(2);

/// The directory as it was last seen.
#[derive(Debug)]
pub(super) struct Scan {
    folder: Arc<Folder>,
    seen: BTreeMap<PathBuf, (Version, Option<Registration>)>,
    /// The directory's modification time before the last look, unless it was so young that a change after the look
    /// may have the same.
    stamp: Option<SystemTime>,
    /// The directory could not be read; said once.
    unreadable: bool,
}

impl Scan {
    pub(super) fn new(folder: Arc<Folder>) -> Self {
        Self {
            folder,
            seen: BTreeMap::new(),
            stamp: None,
            unreadable: false,
        }
    }

    /// Whether another look would see the same. A few system calls, no reading.
    pub(super) fn is_current(&self) -> bool {
        let alive = |registration: &Registration| is_alive(registration.pid);
        self.stamp.is_some()
            && self.stamp == self.modified()
            && self
                .seen
                .values()
                .filter_map(|(_, registration)| registration.as_ref())
                .all(alive)
    }

    fn modified(&self) -> Option<SystemTime> {
        fs::metadata(self.folder.path())
            .and_then(|metadata| metadata.modified())
            .ok()
    }

    /// Registrations of live processes now, by name. An unreadable directory changes nothing.
    pub(super) fn look(&mut self) -> Vec<Registration> {
        self.stamp = self
            .modified()
            .filter(|stamp| stamp.elapsed().is_ok_and(|age| age > SETTLED));
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

#[cfg(test)]
mod tests {
    use std::{fs::FileTimes, process::Command};

    use super::*;

    /// A scan that has seen the registration of `pid`, in a directory that has not changed for long.
    fn settled(run_dir: &std::path::Path, pid: u32) -> Scan {
        let folder = Folder::new(run_dir.to_owned());
        folder.publish(&registration(pid)).expect("a registration");
        let long_ago = SystemTime::now() - SETTLED * 10;
        let times = FileTimes::new().set_modified(long_ago);
        fs::File::open(folder.path())
            .and_then(|dir| dir.set_times(times))
            .expect("a directory of its own");
        let mut scan = Scan::new(Arc::new(folder));
        assert_eq!(scan.look(), [registration(pid)]);
        scan
    }

    fn registration(pid: u32) -> Registration {
        Registration {
            name: "w0".to_owned(),
            addr: ([127, 0, 0, 1], 1).into(),
            pid,
            workers: Vec::new(),
        }
    }

    #[test]
    fn an_unchanged_directory_is_current_and_a_change_is_noticed() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut scan = settled(dir.path(), std::process::id());
        assert!(scan.is_current());
        scan.folder.withdraw(&registration(std::process::id()));
        assert!(!scan.is_current());
        assert_eq!(scan.look(), []);
        // A change right after this look could have the same modification time.
        assert!(!scan.is_current());
    }

    #[test]
    fn a_process_that_died_is_noticed_in_an_unchanged_directory() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut scan = settled(dir.path(), child.id());
        assert!(scan.is_current());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!scan.is_current());
        assert_eq!(scan.look(), []);
    }
}
