//! `cargo xtask conformance`: proofs that are too slow for every change.
//!
//! The seeded simulation with many seeds (a failure prints its seed, and that seed alone repeats it), the fuzz corpora
//! with many mutations, and the loom models.

use std::path::Path;

use anyhow::Result;
use clap::Args;

use crate::{loom, process};

/// Options of `cargo xtask conformance`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many seeds the simulation runs.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// How many times the usual number of mutated inputs each fuzz target gets.
    #[arg(long, default_value_t = 20)]
    fuzz_rounds: u64,
}

/// True if everything held.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let mut simulation = process::cargo(
        root,
        &["test", "--release", "--package", "weir-sim", "--", "--nocapture"],
    );
    simulation.env("WEIR_SIM_SEEDS", options.seeds.to_string());
    simulation.env("WEIR_FUZZ_ROUNDS", options.fuzz_rounds.to_string());
    let simulated = process::run(&mut simulation)?;
    Ok(loom::run(root)? && simulated)
}
