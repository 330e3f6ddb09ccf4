//! The faulty twin: a file system in memory that fails, cuts short, and loses what was not synced.
//!
//! It is for tests, of this crate and of what is built on it. A value stands for the view of one process:
//! [`kill`](FaultyFs::kill) ends that process and keeps what the kernel has, [`lose_power`](FaultyFs::lose_power)
//! ends it and keeps what the disk has. Operations of an ended process fail.

mod disk;
mod plan;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::disk::Disk;
use self::plan::{Dice, Plan, dead};
pub use self::plan::{Fault, Mutation};
use super::{Fs, FsFile, Hold, How, Locking, NodeKind, Step};

#[derive(Debug, Default)]
struct World {
    disk: Disk,
    plan: Plan,
    life: u64,
    locks: BTreeMap<PathBuf, String>,
    deferred: Vec<(Step, Deferred)>,
}

#[derive(Clone, Debug)]
enum Deferred {
    File(usize),
    Dir(PathBuf),
}

/// A file system in memory that does what a bad day does.
#[derive(Clone, Debug)]
pub struct FaultyFs {
    world: Arc<Mutex<World>>,
    life: u64,
}

#[derive(Debug)]
struct FaultyFile {
    fs: FaultyFs,
    node: usize,
}

#[derive(Debug)]
struct FaultyHold {
    fs: FaultyFs,
    path: PathBuf,
}

impl Hold for FaultyHold {}

impl Drop for FaultyHold {
    fn drop(&mut self) {
        if let Ok(mut world) = self.fs.alive() {
            world.locks.remove(&self.path);
        }
    }
}

impl FaultyFs {
    /// A disk that holds one folder, `root`.
    pub fn new(root: &Path) -> Self {
        let world = World {
            disk: Disk::with_dir(root),
            ..World::default()
        };
        Self {
            world: Arc::new(Mutex::new(world)),
            life: 0,
        }
    }

    /// Puts `mutation` in force.
    pub fn mutate(&self, mutation: Mutation) {
        self.world().plan.mutation = Some(mutation);
    }

    /// Has the `nth` operation from now (1 is the next) meet `fault`.
    pub fn fail_at(&self, nth: u64, fault: Fault) {
        let mut world = self.world();
        let at = world.plan.seen + nth;
        world.plan.faults.insert(at, fault);
    }

    /// Has the `nth` operation of `step` from now meet `fault`.
    pub fn fail_step(&self, step: Step, nth: u64, fault: Fault) {
        self.world().plan.at_step = Some((step, nth, fault));
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.world().plan.seen
    }

    /// Lets all files together take at most `bytes`.
    pub fn limit(&self, bytes: Option<u64>) {
        self.world().plan.room = bytes;
    }

    /// Bytes that all files take.
    pub fn used(&self) -> u64 {
        self.world().disk.used()
    }

    /// The content of a file as the kernel shows it.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        let node = world.disk.find(path).ok()?;
        world.disk.nodes.get(node).map(|node| node.now.clone())
    }

    /// Makes `bytes` the durable content of a file, past all faults.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut world = self.world();
        let found = world.disk.find(path);
        if let Ok(node) = found.or_else(|_| world.disk.make(path, false)) {
            if let Some(node) = world.disk.nodes.get_mut(node) {
                node.now.truncate(bytes.len());
            }
            world.disk.write(node, bytes, 0);
            world.disk.sync_file(node);
        }
        if let Some(parent) = path.parent() {
            world.disk.sync_dir(parent);
        }
    }

    /// The names of all files and folders.
    pub fn names(&self) -> Vec<PathBuf> {
        self.world().disk.names.keys().cloned().collect()
    }

    /// Ends the process; the kernel keeps what it has. Returns the view of the next process.
    pub fn kill(&self) -> Self {
        let mut world = self.world();
        world.life += 1;
        world.locks.clear();
        world.deferred.clear();
        world.plan.faults.clear();
        world.plan.at_step = None;
        Self {
            world: Arc::clone(&self.world),
            life: world.life,
        }
    }

    /// Ends the process and the host; of what was not synced, `seed` decides what stays.
    pub fn lose_power(&self, seed: u64) -> Self {
        let next = self.kill();
        next.world().disk.lose_power(&mut Dice(seed));
        next
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world();
        if world.life == self.life {
            Ok(world)
        } else {
            Err(dead())
        }
    }

    /// Counts an operation and meets its fault; true for one that is to be cut short.
    fn operate(&self, step: Option<Step>) -> io::Result<(MutexGuard<'_, World>, Option<Fault>)> {
        let mut world = self.alive()?;
        match world.plan.next(step) {
            Some(Fault::Errno(code)) => Ok((world, Some(Fault::Errno(code)))),
            Some(Fault::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
            other => {
                if other == Some(Fault::Die) {
                    world.life += 1;
                    world.locks.clear();
                }
                Ok((world, other))
            }
        }
    }

    /// An operation that either happens or fails.
    fn simple(&self, step: Option<Step>) -> io::Result<MutexGuard<'_, World>> {
        match self.operate(step)? {
            (_, Some(Fault::Errno(code))) => Err(io::Error::from_raw_os_error(code)),
            (_, Some(Fault::Die)) => Err(dead()),
            (world, _) => Ok(world),
        }
    }
}

impl World {
    fn do_sync(&mut self, what: &Deferred) {
        match what {
            Deferred::File(node) => self.disk.sync_file(*node),
            Deferred::Dir(dir) => self.disk.sync_dir(dir),
        }
    }

    /// A sync as the mutation in force has it.
    fn sync(&mut self, step: Step, what: Deferred) {
        match self.plan.mutation {
            Some(Mutation::Drop(dropped)) if dropped == step => {}
            Some(Mutation::Swap(late, _)) if late == step => self.deferred.push((step, what)),
            Some(Mutation::Swap(_, first)) if first == step => {
                self.do_sync(&what);
                for (_, late) in std::mem::take(&mut self.deferred) {
                    self.do_sync(&late);
                }
            }
            _ => self.do_sync(&what),
        }
    }

    fn check_room(&self, growth: u64) -> io::Result<()> {
        match self.plan.room {
            Some(room) if self.disk.used() + growth > room => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl Fs for FaultyFs {
    fn kind(&self, path: &Path) -> io::Result<Option<NodeKind>> {
        let world = self.alive()?;
        let node = world
            .disk
            .find(path)
            .ok()
            .and_then(|node| world.disk.nodes.get(node));
        Ok(node.map(|node| if node.dir { NodeKind::Dir } else { NodeKind::File }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.simple(None)?.disk.make(path, true).map(|_| ())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(OsString, NodeKind)>> {
        let world = self.alive()?;
        world.disk.find(dir)?;
        let names = world
            .disk
            .names
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir));
        let entries = names.filter_map(|(path, node)| {
            let dir = world.disk.nodes.get(*node)?.dir;
            Some((
                path.file_name()?.to_owned(),
                if dir { NodeKind::Dir } else { NodeKind::File },
            ))
        });
        Ok(entries.collect())
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn FsFile>> {
        let node = match how {
            How::Create => self.simple(None)?.disk.make(path, false)?,
            How::Read | How::Update => self.alive()?.disk.find(path)?,
        };
        Ok(Arc::new(FaultyFile {
            fs: self.clone(),
            node,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.simple(Some(Step::SpareName))?.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.simple(Some(Step::Remove))?.disk.unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        self.simple(Some(step))?.sync(step, Deferred::Dir(dir.to_owned()));
        Ok(())
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locking> {
        let mut world = self.simple(None)?;
        if let Some(said) = world.locks.get(path) {
            return Ok(Locking::Taken(said.clone()));
        }
        world.locks.insert(path.to_owned(), holder.to_owned());
        drop(world);
        Ok(Locking::Held(Box::new(FaultyHold {
            fs: self.clone(),
            path: path.to_owned(),
        })))
    }

    fn identity(&self, _path: &Path) -> io::Result<Option<(u64, u64)>> {
        Ok(None)
    }
}

impl FsFile for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        let world = self.fs.alive()?;
        Ok(world
            .disk
            .nodes
            .get(self.node)
            .map_or(0, |node| node.now.len() as u64))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (world, fault) = self.fs.operate(None)?;
        let most = match fault {
            Some(Fault::Errno(code)) => return Err(io::Error::from_raw_os_error(code)),
            Some(Fault::Die) => return Err(dead()),
            Some(Fault::Short) => 1,
            _ => usize::MAX,
        };
        let now = world.disk.nodes.get(self.node).map_or(&[][..], |node| &node.now);
        let rest = now
            .get(usize::try_from(offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let n = rest.len().min(bytes.len()).min(most);
        bytes[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (mut world, fault) = self.fs.operate(Some(Step::Write))?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let size = world.disk.nodes.get(self.node).map_or(0, |node| node.now.len());
        world.check_room((at + bytes.len()).saturating_sub(size) as u64)?;
        let (n, done) = match fault {
            Some(Fault::Errno(code)) => (0, Err(io::Error::from_raw_os_error(code))),
            Some(Fault::Die) => (bytes.len() / 2, Err(dead())),
            Some(Fault::Short) => (1, Ok(1)),
            _ => (bytes.len(), Ok(bytes.len())),
        };
        world.disk.write(self.node, &bytes[..n], at);
        done
    }

    fn sync(&self, step: Step) -> io::Result<()> {
        let (mut world, fault) = self.fs.operate(Some(step))?;
        match fault {
            Some(Fault::Errno(code)) => {
                world.disk.forget_dirty(self.node);
                Err(io::Error::from_raw_os_error(code))
            }
            Some(Fault::Die) => Err(dead()),
            _ => {
                world.sync(step, Deferred::File(self.node));
                Ok(())
            }
        }
    }
}
