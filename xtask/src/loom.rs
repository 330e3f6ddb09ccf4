//! `cargo xtask loom`: the loom models of weir-net.
//!
//! They are a build of their own, with `cfg(weir_loom)`, in a target folder of their own, so that the usual one keeps
//! what it has.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::process;

const MODELS: [&str; 5] = ["test", "--package", "weir-net", "--lib", "loom"];

/// True if every model held in every order.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut models = process::cargo(root, &MODELS);
    models.env("RUSTFLAGS", "--cfg weir_loom");
    models.env("CARGO_TARGET_DIR", root.join("target/loom"));
    let (ok, count) = process::run_counted(&mut models)?;
    ensure!(count.passed + count.failed > 0, "no loom model ran");
    Ok(ok)
}
