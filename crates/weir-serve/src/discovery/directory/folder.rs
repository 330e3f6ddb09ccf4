//! The files themselves: write, withdraw, and remove what dead processes left.
//!
//! Writers and removers hold `workers/.lock`, so a file that was judged stale cannot be replaced by a live one before
//! it is removed.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::super::{DiscoveryError, Registration};

/// Longest name of a process.
const MAX_NAME: usize = 64;
/// Largest registration that is read.
const MAX_FILE: u64 = 1 << 20;

/// The directory of registrations.
#[derive(Debug)]
pub(super) struct Folder {
    run_dir: PathBuf,
    workers: PathBuf,
}

impl Folder {
    pub(super) fn new(run_dir: PathBuf) -> Self {
        let workers = run_dir.join("workers");
        Self { run_dir, workers }
    }

    pub(super) fn path(&self) -> &Path {
        &self.workers
    }

    /// Makes the directory, for this user only, and checks that it can be written.
    pub(super) fn create(&self) -> Result<(), DiscoveryError> {
        let created = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.workers);
        created
            .and_then(|()| self.lock())
            .map(drop)
            .map_err(|error| self.unusable(&error))
    }

    /// Publishes a registration under its name.
    pub(super) fn publish(&self, registration: &Registration) -> Result<(), DiscoveryError> {
        let name = &registration.name;
        if !is_valid(name) {
            return Err(DiscoveryError(bad_name(name)));
        }
        self.create()?;
        let _lock = self.lock().map_err(|error| self.unusable(&error))?;
        let path = self.file(name);
        if let Ok(other) = read(&path)
            && other.pid != registration.pid
            && is_alive(other.pid)
        {
            let (pid, dir) = (other.pid, self.run_dir.display());
            let what =
                format!("worker name {name} is taken by process {pid} in {dir}; choose another --name");
            return Err(DiscoveryError(what));
        }
        let aside = self.workers.join(format!(".{name}.{}", registration.pid));
        let json = serde_json::to_vec_pretty(registration).map_err(io::Error::from);
        let written = json
            .and_then(|json| fs::write(&aside, json))
            .and_then(|()| fs::rename(&aside, &path));
        written.map_err(|error| self.unusable(&error))
    }

    /// Removes a registration, unless another process has taken the name since.
    pub(super) fn withdraw(&self, registration: &Registration) {
        self.remove_if(&self.file(&registration.name), |found| {
            found.pid == registration.pid
        });
    }

    /// Removes the registration of a process that is no more.
    pub(super) fn remove_stale(&self, path: &Path) {
        self.remove_if(path, |found| !is_alive(found.pid));
    }

    fn remove_if(&self, path: &Path, unwanted: impl Fn(&Registration) -> bool) {
        let Ok(_lock) = self.lock() else { return };
        if read(path).is_ok_and(|found| unwanted(&found))
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a registration");
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.workers.join(format!("{name}.json"))
    }

    /// Held until the file is dropped.
    fn lock(&self) -> io::Result<File> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.workers.join(".lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn unusable(&self, error: &io::Error) -> DiscoveryError {
        let dir = self.run_dir.display();
        DiscoveryError(format!(
            "cannot use run directory {dir}: {error}; choose one that can be written with --run-dir"
        ))
    }
}

/// Reads one registration.
pub(super) fn read(path: &Path) -> io::Result<Registration> {
    // Opening anything else may wait for ever: a pipe waits for its writer.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut json = Vec::new();
    File::open(path)?.take(MAX_FILE).read_to_end(&mut json)?;
    let registration: Registration = serde_json::from_slice(&json)?;
    match is_valid(&registration.name) {
        true => Ok(registration),
        false => Err(io::Error::other(bad_name(&registration.name))),
    }
}

/// Whether a process of this id exists on this host.
pub(super) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

fn bad_name(name: &str) -> String {
    let cut: String = name.chars().take(MAX_NAME).collect();
    format!("worker name {cut:?} is not 1 to {MAX_NAME} letters, digits, dots, dashes and underscores")
}

fn is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}
