//! The disk behind the faulty twin: what the kernel shows, and what would be there after a loss of power.
//!
//! Files are kept by 512-byte block, names by folder. What was not synced survives a loss of power block by block
//! and name by name, as the dice fall.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::plan::Dice;

const BLOCK: usize = 512;

/// One file or folder.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) dir: bool,
    pub(super) now: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum Change {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Move(PathBuf, PathBuf, usize),
}

impl Change {
    fn within(&self) -> Option<&Path> {
        match self {
            Self::Link(path, _) | Self::Unlink(path) | Self::Move(_, path, _) => path.parent(),
        }
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Link(path, node) => {
                names.insert(path, node);
            }
            Self::Unlink(path) => {
                names.remove(&path);
            }
            Self::Move(from, to, node) => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

/// All files and names.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) nodes: Vec<Node>,
    pub(super) names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    changes: Vec<Change>,
}

impl Disk {
    /// A disk with one durable folder.
    pub(super) fn with_dir(path: &Path) -> Self {
        let mut disk = Self::default();
        disk.nodes.push(Node {
            dir: true,
            ..Node::default()
        });
        disk.names.insert(path.to_owned(), 0);
        disk.durable_names.insert(path.to_owned(), 0);
        disk
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn make(&mut self, path: &Path, dir: bool) -> io::Result<usize> {
        let parent = path.parent().ok_or(io::ErrorKind::NotFound)?;
        self.find(parent)?;
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(Node {
            dir,
            ..Node::default()
        });
        let node = self.nodes.len() - 1;
        self.names.insert(path.to_owned(), node);
        self.changes.push(Change::Link(path.to_owned(), node));
        Ok(node)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let change = Change::Move(from.to_owned(), to.to_owned(), node);
        change.clone().apply(&mut self.names);
        self.changes.push(change);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.find(path)?;
        self.names.remove(path);
        self.changes.push(Change::Unlink(path.to_owned()));
        Ok(())
    }

    pub(super) fn write(&mut self, node: usize, bytes: &[u8], offset: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            let end = offset + bytes.len();
            if node.now.len() < end {
                node.now.resize(end, 0);
            }
            node.now[offset..end].copy_from_slice(bytes);
            node.dirty.extend(offset / BLOCK..end.div_ceil(BLOCK));
        }
    }

    pub(super) fn sync_file(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            for block in std::mem::take(&mut node.dirty) {
                node.settle_block(block);
            }
        }
    }

    /// The sync failed: the kernel forgets that the pages were dirty and goes on showing them.
    pub(super) fn forget_dirty(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.dirty.clear();
        }
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        for change in std::mem::take(&mut self.changes) {
            if change.within() == Some(dir) {
                change.apply(&mut self.durable_names);
            } else {
                self.changes.push(change);
            }
        }
    }

    /// Bytes that all named files take.
    pub(super) fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|node| self.nodes.get(*node))
            .map(|node| node.now.len() as u64)
            .sum()
    }

    /// Power is lost: of what was not synced, what the dice keep stays.
    pub(super) fn lose_power(&mut self, dice: &mut Dice) {
        for change in std::mem::take(&mut self.changes) {
            if dice.heads() {
                change.apply(&mut self.durable_names);
            }
        }
        // What is in a folder that is not there is not there either; parents sort before their children.
        for (path, node) in std::mem::take(&mut self.durable_names) {
            let parent = path.parent().filter(|_| node != 0);
            if parent.is_none_or(|parent| self.durable_names.contains_key(parent)) {
                self.durable_names.insert(path, node);
            }
        }
        self.names = self.durable_names.clone();
        for node in &mut self.nodes {
            for block in std::mem::take(&mut node.dirty) {
                if dice.heads() {
                    node.settle_block(block);
                }
            }
            node.now.clone_from(&node.durable);
        }
    }
}

impl Node {
    fn settle_block(&mut self, block: usize) {
        let from = block * BLOCK;
        let to = (from + BLOCK).min(self.now.len());
        if from < to {
            if self.durable.len() < to {
                self.durable.resize(to, 0);
            }
            self.durable[from..to].copy_from_slice(&self.now[from..to]);
        }
    }
}
