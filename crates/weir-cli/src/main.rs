//! The binary `weir`.

mod bench;
mod duration;
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
    let outcome = match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Load(args) => load::run(args),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        #[expect(clippy::print_stderr, reason = "the last line of a command that failed")]
        Err(error) => {
            eprintln!("weir: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
