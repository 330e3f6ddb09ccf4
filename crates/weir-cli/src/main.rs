//! The binary `weir`.
//!
//! Each command is a module with its arguments and a `run`; this file only parses, starts logs and ends with the
//! right exit code: 0 after a clean stop, 1 on failure, 2 on bad usage or configuration.

mod address;
mod bench;
mod bench_model;
mod duration;
mod engines;
mod exit;
mod frontend;
mod generate;
mod interrupt;
mod journal;
mod load;
mod logs;
mod model;
mod process;
mod tokenize;
mod up;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Carries generated tokens from the machines that make them to the people who wait for them.
#[derive(Debug, Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// One variant per command, in the order of `weir --help`; `run` has its arm.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run a frontend and worker processes, all on this machine.
    Up(up::UpArgs),
    /// Serve the OpenAI API over HTTP and hand requests to workers.
    Frontend(frontend::FrontendArgs),
    /// Run one worker process.
    Worker(worker::WorkerArgs),
    /// Drive an OpenAI-compatible endpoint in a closed loop and report what a client sees.
    Load(load::LoadArgs),
    /// Measure parts of weir against each other.
    Bench(bench::BenchArgs),
    /// Fetch models and look into model files.
    Model(model::ModelArgs),
    /// Run one prompt through a model in this process.
    Generate(generate::GenerateArgs),
    /// Turn bytes into the token ids of a model.
    Tokenize(tokenize::TokenizeArgs),
    /// Look at and resolve what a hop journal holds.
    Journal(journal::Args),
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Up(args) => up::run(args),
            Self::Frontend(args) => frontend::run(args),
            Self::Worker(args) => worker::run(args),
            Self::Load(args) => load::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Model(args) => model::run(args),
            Self::Generate(args) => generate::run(args),
            Self::Tokenize(args) => tokenize::run(args),
            Self::Journal(args) => journal::run(&args),
        }
    }
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => {
            logs::start();
            exit::code_of(cli.command.run())
        }
        Err(error) => exit::code_of_usage(&error, &command_asked_for()),
    }
}

/// The command that was meant, as far as it is one: `weir bench plane`.
fn command_asked_for() -> String {
    let mut named = "weir".to_owned();
    let mut command = Cli::command();
    for word in std::env::args_os().skip(1) {
        let Some(next) = command.find_subcommand(&word) else {
            break;
        };
        named = format!("{named} {}", next.get_name());
        command = next.clone();
    }
    named
}
