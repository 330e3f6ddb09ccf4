//! The acceptance suite: the binary `weir` and the Python that drives it.
//!
//! The suite never builds anything; it is told where the binary is. Invariant: what is tested is a release build of
//! this tree.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::process;

/// Builds the release binary and returns its path.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    ensure!(
        process::run(&mut process::cargo(
            root,
            &["build", "--release", "--package", "weir-cli"]
        ))?,
        "the release build failed"
    );
    Ok(binary(root))
}

/// Builds the release binary with the comparison peers and returns the path of a copy of it, which the next plain
/// build leaves alone.
pub(crate) fn build_with_peers(root: &Path) -> Result<PathBuf> {
    let args = [
        "build",
        "--release",
        "--package",
        "weir-cli",
        "--features",
        "peers",
    ];
    ensure!(
        process::run(&mut process::cargo(root, &args))?,
        "the release build with feature `peers` failed"
    );
    let copy = binary(root).with_file_name("weir-peers");
    std::fs::copy(binary(root), &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}

/// Python with the suite's folder as its place and the binary to test in its environment.
pub(crate) fn python(root: &Path, python: &Path, weir: &Path) -> Command {
    let mut command = process::command(&root.join("acceptance"), python, &[]);
    command
        .env("WEIR_BIN", weir)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

fn binary(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    target.join("release").join("weir")
}
