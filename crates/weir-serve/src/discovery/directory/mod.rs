//! Discovery by a directory of files, for one host: `RUN_DIR/workers/NAME.json` is a registration.
//!
//! Files appear whole (written aside, then renamed) and go with their lease. A process that was killed leaves its
//! file behind; whoever notices first removes it. Invariant: a published registration names a live process.

mod folder;
mod scan;

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use tokio::sync::watch;

use super::{Discovery, DiscoveryError, Registration};
use folder::Folder;
use scan::Scan;

/// How often the directory is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// Discovery by files in one directory.
#[derive(Debug, Clone)]
pub struct Directory {
    folder: Arc<Folder>,
}

/// Keeps a registration published; dropping it removes the file.
#[derive(Debug)]
pub struct DirectoryLease {
    folder: Arc<Folder>,
    registration: Registration,
}

impl Drop for DirectoryLease {
    fn drop(&mut self) {
        self.folder.withdraw(&self.registration);
    }
}

impl Directory {
    /// Uses `run_dir`; it is made when it is first needed.
    pub fn new(run_dir: impl Into<PathBuf>) -> Self {
        Self {
            folder: Arc::new(Folder::new(run_dir.into())),
        }
    }
}

impl Discovery for Directory {
    type Lease = DirectoryLease;

    // A handful of small file operations, once in a process's life: not worth a thread of the pool.
    async fn register(&self, registration: &Registration) -> Result<DirectoryLease, DiscoveryError> {
        self.folder.publish(registration)?;
        Ok(DirectoryLease {
            folder: Arc::clone(&self.folder),
            registration: registration.clone(),
        })
    }

    async fn watch(&self) -> Result<watch::Receiver<Vec<Registration>>, DiscoveryError> {
        self.folder.create()?;
        let mut scan = Scan::new(Arc::clone(&self.folder));
        let (sender, receiver) = watch::channel(scan.look());
        let watcher = thread::Builder::new().name("weir-discovery".to_owned());
        let started = watcher.spawn(move || follow(&mut scan, &sender));
        started.map_err(|error| {
            DiscoveryError(format!("cannot start the thread that watches workers: {error}"))
        })?;
        Ok(receiver)
    }
}

/// Looks at the directory until nobody wants to know. A thread of its own, because a large directory would hold up a
/// runtime thread, and a pool thread borrowed this often would keep every other idle one alive.
fn follow(scan: &mut Scan, sender: &watch::Sender<Vec<Registration>>) {
    while !sender.is_closed() {
        thread::sleep(INTERVAL);
        let found = scan.look();
        sender.send_if_modified(|known| {
            let changed = *known != found;
            *known = found;
            changed
        });
    }
}
