//! The binary `weir`.

mod generate;
mod model;
mod tokenize;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "weir", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch models and look into files.
    Model(model::ModelArgs),
    /// Run one prompt through a model in this process.
    Generate(generate::GenerateArgs),
    /// Turn bytes into token ids.
    Tokenize(tokenize::TokenizeArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Model(args) => model::run(args),
        Command::Generate(args) => generate::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
    }
}
