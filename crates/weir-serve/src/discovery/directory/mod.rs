//! Discovery by a directory of files, for one host: `RUN_DIR/workers/NAME.json` is a registration.
//!
//! Files appear whole (written aside, then renamed) and go with their lease. A process that was killed leaves its
//! file behind; whoever notices first removes it. Invariant: a published registration names a live process.

mod folder;
mod scan;

use std::{path::PathBuf, sync::Arc, time::Duration};

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

    async fn register(&self, registration: &Registration) -> Result<DirectoryLease, DiscoveryError> {
        let (folder, registration) = (Arc::clone(&self.folder), registration.clone());
        blocking(move || {
            folder.publish(&registration)?;
            Ok(DirectoryLease { folder, registration })
        })
        .await
    }

    async fn watch(&self) -> Result<watch::Receiver<Vec<Registration>>, DiscoveryError> {
        let folder = Arc::clone(&self.folder);
        let (mut scan, found) = blocking(move || {
            folder.create()?;
            let mut scan = Scan::new(folder);
            let found = scan.look();
            Ok((scan, found))
        })
        .await?;
        let (sender, receiver) = watch::channel(found);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(INTERVAL);
            loop {
                tokio::select! {
                    _ = tick.tick() => {}
                    () = sender.closed() => return,
                }
                let looked = blocking(move || {
                    let found = scan.look();
                    Ok((scan, found))
                });
                let Ok((next, found)) = looked.await else { return };
                scan = next;
                sender.send_if_modified(|known| {
                    let changed = *known != found;
                    *known = found;
                    changed
                });
            }
        });
        Ok(receiver)
    }
}

/// Runs file operations where they hold nobody up.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DiscoveryError> + Send + 'static,
) -> Result<T, DiscoveryError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(DiscoveryError(format!("directory discovery stopped: {error}"))))
}
