//! `cargo xtask conformance`: proofs that are too slow for every change.
//!
//! Today that is the seeded simulation with many seeds; a failure prints its seed, and that seed alone repeats it.

use std::path::Path;

use anyhow::Result;
use clap::Args;

use crate::process;

/// Options of `cargo xtask conformance`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many seeds the simulation runs.
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
}

/// True if everything held.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let mut simulation = process::cargo(
        root,
        &["test", "--release", "--package", "weir-sim", "--", "--nocapture"],
    );
    simulation.env("WEIR_SIM_SEEDS", options.seeds.to_string());
    process::run(&mut simulation)
}
