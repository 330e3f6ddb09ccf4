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

/// The two release binaries.
#[derive(Debug)]
pub(crate) struct Binaries {
    /// As a user builds it.
    pub(crate) plain: PathBuf,
    /// With the comparison peers.
    pub(crate) peers: PathBuf,
}

/// Builds both. The one with peers is kept as a copy, so that the plain one is what `cargo run --release` runs.
pub(crate) fn build(root: &Path) -> Result<Binaries> {
    let plain = binary(root);
    let peers = plain.with_file_name("weir-peers");
    cargo_build(root, &["--features", "peers"])?;
    std::fs::copy(&plain, &peers).with_context(|| format!("cannot write {}", peers.display()))?;
    cargo_build(root, &[])?;
    Ok(Binaries { plain, peers })
}

fn cargo_build(root: &Path, features: &[&str]) -> Result<()> {
    let args = [&["build", "--release", "--package", "weir-cli"], features].concat();
    ensure!(
        process::run(&mut process::cargo(root, &args))?,
        "the release build failed: cargo {}",
        args.join(" ")
    );
    Ok(())
}

/// Python with the suite's folder as its place and the binaries to test in its environment.
pub(crate) fn python(root: &Path, python: &Path, weir: &Binaries) -> Command {
    let mut command = process::command(&root.join("acceptance"), python, &[]);
    command
        .env("WEIR_BIN", &weir.plain)
        .env("WEIR_PEERS_BIN", &weir.peers);
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

fn binary(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    target.join("release").join("weir")
}
