//! The binary `weir`.

mod journal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at and resolve what a hop journal holds.
    Journal(journal::Args),
    /// Measure.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The hop journal against its peers, the bare write, and the journal it replaces.
    Journal(weir_bench::journal::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Journal(args) => journal::run(&args),
        Command::Bench(Bench::Journal(args)) => weir_bench::journal::run(&args).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|e| {
        eprintln!("weir: {e:#}");
        ExitCode::FAILURE
    })
}
