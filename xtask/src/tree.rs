//! The files of this workspace.
//!
//! Walks the tree rather than asking git, so that it works in an unpacked archive too. Invariant: what a build or a
//! test leaves behind is never part of the tree.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

const LEFTOVERS: [&str; 4] = ["target", "out", "__pycache__", "node_modules"];
const HIDDEN_BUT_OURS: [&str; 3] = [".ci", ".cargo", ".gitignore"];

/// The workspace root.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map(Path::to_path_buf)
        .context("xtask is not inside a workspace")
}

/// One file: its path below the root, with `/` between parts, and its text if it is UTF-8.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: Option<String>,
}

/// Every file of the tree, by path.
pub(crate) fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_ours(&name) {
                continue;
            }
            match entry.file_type()? {
                kind if kind.is_dir() => open.push(entry.path()),
                kind if kind.is_file() => found.push(read(root, &entry.path())?),
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_ours(name: &str) -> bool {
    !LEFTOVERS.contains(&name) && (!name.starts_with('.') || HIDDEN_BUT_OURS.contains(&name))
}

fn read(root: &Path, path: &Path) -> Result<Source> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let below = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
    Ok(Source {
        path: below,
        text: String::from_utf8(bytes).ok(),
    })
}
