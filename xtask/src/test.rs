//! `cargo xtask test`: everything that must hold before a change goes in.
//!
//! Cheap checks come first, the release binary is built once and shared by all that run it. Invariant: nothing is
//! skipped in silence; a step that cannot run has failed.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{instructions, process, setup, steps::Steps, suite, tidy};

/// Options of `cargo xtask test`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Only the acceptance suite; with a word, only its tests whose name contains it.
    #[arg(long, value_name = "WORD", num_args = 0..=1, default_missing_value = "")]
    acceptance: Option<String>,
}

/// True if everything passed.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let mut steps = Steps::default();
    let mut python = None;
    steps.check("setup", || {
        python = Some(setup::run(root)?);
        Ok(true)
    });
    if options.acceptance.is_none() {
        source_checks(root, &mut steps);
    }
    let mut weir = None;
    steps.check("release builds, with and without feature peers", || {
        weir = Some(suite::build(root)?);
        Ok(true)
    });
    if options.acceptance.is_none() {
        steps.tests("unit and integration tests", || {
            process::run_counted(&mut process::cargo(
                root,
                &["test", "--workspace", "--no-fail-fast"],
            ))
        });
        steps.check("instruction counts", || {
            instructions::run(root, &instructions::Options::default())
        });
    }
    steps.tests("acceptance suite", || {
        let python = python.as_deref().context("not run: setup failed")?;
        let weir = weir.as_ref().context("not run: there is no release binary")?;
        let mut pytest = suite::python(root, python, weir);
        pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]);
        if let Some(word) = options.acceptance.as_deref().filter(|word| !word.is_empty()) {
            pytest.args(["-k", word]);
        }
        let (ok, count) = process::run_counted(&mut pytest)?;
        ensure!(count.passed + count.failed > 0, "no acceptance test ran");
        Ok((ok, count))
    });
    Ok(steps.close())
}

fn source_checks(root: &Path, steps: &mut Steps) {
    let cargo = |args: &[&str]| process::run(&mut process::cargo(root, args));
    steps.check("formatting", || cargo(&["fmt", "--all", "--check"]));
    steps.check("house rules", || tidy::run(root));
    steps.check("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
    steps.check("clippy with feature peers", || {
        let package = [
            "clippy",
            "--package",
            "weir-cli",
            "--package",
            "weir-bench",
            "--all-targets",
        ];
        cargo(&[&package[..], &["--features", "peers", "--", "-D", "warnings"]].concat())
    });
}
