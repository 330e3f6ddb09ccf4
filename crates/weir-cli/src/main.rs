//! The binary `weir`.

mod bench;
mod duration;
mod exit;
mod load;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "weir", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure parts of weir against each other.
    Bench(bench::BenchArgs),
    /// Drive an OpenAI-compatible endpoint in a closed loop and report what a client sees.
    Load(load::LoadArgs),
}

fn main() -> std::process::ExitCode {
    exit::code_of(match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Load(args) => load::run(args),
    })
}
