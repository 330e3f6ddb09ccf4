//! Project tasks, run as `cargo xtask NAME`.
//!
//! Everything a person or a machine does to this workspace beyond `cargo` itself: install what the tests need, run
//! all of them, check the house rules, measure one claim. It is no part of the product and depends on none of its
//! crates. Invariant: a task that fails exits with 1 and its last lines say what failed.

#![expect(clippy::print_stdout, reason = "what a task finds is its output")]

mod conformance;
mod instructions;
mod loom;
mod process;
mod setup;
mod show;
mod steps;
mod suite;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the weir workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what the tests need: a Python environment in `.venv` with pinned packages, and valgrind. Fast when they
    /// are there.
    Setup,
    /// Everything that must hold: setup, formatting, house rules, clippy, unit and integration tests, acceptance.
    Test(test::Options),
    /// Check the house rules that neither rustfmt nor clippy knows.
    Tidy,
    /// Measure one claim on a release build and print `name figure bar ok` (or `FAIL`).
    Show(show::Options),
    /// Count the instructions of weir-proto's scenarios and compare them with the file.
    Instructions(instructions::Options),
    /// Run the loom models: every order of the mailbox, the dirty map and the writer's sleep.
    Loom,
    /// The slow proofs: 10,000 seeded simulations, many mutated fuzz inputs, the loom models.
    Conformance(conformance::Options),
}

fn main() -> ExitCode {
    let outcome = tree::root().and_then(|root| match Args::parse().task {
        Task::Setup => setup::run(&root)
            .and_then(|_| setup::valgrind(&root))
            .map(|()| true),
        Task::Test(options) => test::run(&root, &options),
        Task::Tidy => tidy::run(&root),
        Task::Show(options) => show::run(&root, &options),
        Task::Instructions(options) => instructions::run(&root, &options),
        Task::Loom => loom::run(&root),
        Task::Conformance(options) => conformance::run(&root, &options),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
