//! `weir bench`: measurements that need two processes and no HTTP.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use weir_bench::{
    plane::{self, Arm, BenchConfig, Row, Shape, SideCommand},
    process::allowed_cores,
};

use crate::{duration, exit::usage, interrupt::interrupted};

/// Arguments of `weir bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Compare response planes: the same streams over each, frontend and workers as two pinned processes.
    Plane(PlaneArgs),
    /// Time the hop journal beside its peers, the bare write, and the journal it replaces.
    Journal(weir_bench::journal::Args),
    /// Time the model engine, beside llama.cpp where a Python that has it is given.
    Model(crate::bench_model::BenchModelArgs),
    /// One process of a rep; started by `weir bench plane`.
    #[command(hide = true)]
    PlaneSide {
        /// What it is to do, as JSON.
        spec: String,
    },
}

#[derive(Debug, Args)]
struct PlaneArgs {
    /// Planes: weir (or weir/tcp), floor, velo (needs the cargo feature `peers`). Ratios are taken to the last one.
    #[arg(
        long,
        value_name = "ARM,...",
        value_delimiter = ',',
        default_value = "weir,floor"
    )]
    arms: Vec<Arm>,
    /// Shapes: paced-512, paced-1024, flat-2048, single.
    #[arg(
        long,
        value_name = "SHAPE,...",
        value_delimiter = ',',
        default_value = "paced-512,paced-1024,flat-2048,single"
    )]
    shapes: Vec<Shape>,
    /// Reps of each arm and shape, each with fresh processes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Writes the rows to this file after every rep; `-` for standard output at the end.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of the order in which the arms of a rep run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Core of the frontend's process.
    #[arg(long, value_name = "N", default_value_t = 0)]
    frontend_core: usize,
    /// Core of the workers' process.
    #[arg(long, value_name = "N", default_value_t = 1)]
    worker_core: usize,
    /// Pin neither process.
    #[arg(long)]
    no_pin: bool,
    /// Runtime threads of each process.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Longest time a rep's streams may take; streams that are still open then are errors.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration::parse)]
    rep_timeout: Duration,
}

/// Runs `weir bench`.
///
/// # Errors
/// A core is absent, the rows cannot be written, or a stream of some rep was not delivered as sent.
pub(crate) fn run(args: BenchArgs) -> Result<()> {
    match args.bench {
        Bench::Journal(args) => weir_bench::journal::run(&args),
        Bench::Model(args) => crate::bench_model::run(&args),
        Bench::PlaneSide { spec } => plane::run_side(&spec),
        Bench::Plane(args) => run_plane(&args),
    }
}

fn run_plane(args: &PlaneArgs) -> Result<()> {
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let config = config(args, to_stdout)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(plane::run(&config, interrupted()))?;
    print(&rows, &config, to_stdout)?;
    let (done, planned) = (
        rows.len(),
        config.arms.len() * config.shapes.len() * config.reps as usize,
    );
    if done < planned {
        bail!("interrupted after {done} of {planned} reps");
    }
    let errors = rows.iter().filter(|row| row.errors > 0).count();
    if errors > 0 {
        bail!("{errors} of {done} reps had errors");
    }
    Ok(())
}

fn config(args: &PlaneArgs, to_stdout: bool) -> Result<BenchConfig> {
    let pinned = |core| (!args.no_pin).then_some(core);
    // A line for every link of every rep would bury the table.
    let logged = ["WEIR_LOG", "RUST_LOG"]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some());
    let config = BenchConfig {
        arms: args.arms.clone(),
        shapes: args.shapes.clone(),
        reps: args.reps,
        seed: args.seed,
        frontend_core: pinned(args.frontend_core),
        worker_core: pinned(args.worker_core),
        threads: usize::from(args.threads),
        patience: args.rep_timeout,
        json: args.json.clone().filter(|_| !to_stdout),
        side: SideCommand {
            program: std::env::current_exe().context("cannot find this program's own file")?,
            args: vec!["bench".into(), "plane-side".into()],
            env: if logged {
                vec![]
            } else {
                vec![("WEIR_LOG".into(), "warn".into())]
            },
        },
    };
    let cores = allowed_cores()?;
    for core in [config.frontend_core, config.worker_core].into_iter().flatten() {
        if !cores.contains(&core) {
            return Err(usage(format!(
                "core {core} is not available (cores {cores:?} are): choose with --frontend-core and --worker-core, \
                 or use --no-pin"
            )));
        }
    }
    if let Some(path) = &config.json {
        std::fs::write(path, "[]\n")
            .map_err(|error| usage(format!("cannot write --json {}: {error}", path.display())))?;
    }
    Ok(config)
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a command"
)]
fn print(rows: &[Row], config: &BenchConfig, to_stdout: bool) -> Result<()> {
    let table = plane::render_table(rows, &config.shapes, &config.arms);
    if to_stdout {
        println!("{}", serde_json::to_string_pretty(rows)?);
        eprint!("{table}");
    } else {
        print!("{table}");
    }
    Ok(())
}
