//! `weir load`: drives an endpoint and reports what a client sees.

use std::{fs::File, io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use weir_bench::load::{self, Endpoint, InvalidConfig, LoadConfig, State, Summary};

use crate::{duration, exit::usage};

/// Arguments of `weir load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Base URL, like `http://127.0.0.1:8000`.
    #[arg(long)]
    url: String,
    /// Model to ask for.
    #[arg(long)]
    model: String,
    /// Requests in flight: each slot sends its next request when its last one has ended.
    #[arg(long)]
    concurrency: usize,
    /// Requests in all.
    #[arg(long)]
    requests: u64,
    /// Tokens of a prompt (words with `--endpoint chat`).
    #[arg(long)]
    isl: u32,
    /// Tokens to generate.
    #[arg(long)]
    osl: u32,
    /// API: completions (prompts are token ids, so exact) or chat.
    #[arg(long, default_value = "completions")]
    endpoint: Endpoint,
    /// Seed of the prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time from a request's intended start to its end.
    #[arg(long, default_value = "60s", value_parser = duration::parse)]
    request_timeout: Duration,
    /// Requests that start later than this after the phase's start are steady state.
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    steady_after: Duration,
    /// Directory for requests.jsonl, summary.json, config.json and run.log.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Writes the summary to this file too; `-` for standard output.
    #[arg(long)]
    json: Option<PathBuf>,
    /// File that holds the API key.
    #[arg(long)]
    api_key_file: Option<PathBuf>,
}

/// Runs `weir load`. Failed requests are figures, not an error of the command.
///
/// # Errors
/// The run cannot start, or did not end complete.
pub(crate) fn run(args: LoadArgs) -> Result<()> {
    let json = args.json.clone().map(Json::create).transpose()?;
    let config = config(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let summary = runtime.block_on(load::run(&config, async {
        // Without a handler for the signal the run cannot be interrupted cleanly; it still ends by itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }));
    let summary = summary.map_err(|error| {
        if error.is::<InvalidConfig>() {
            usage(error)
        } else {
            error
        }
    })?;
    print(&summary, json)?;
    match summary.state {
        State::Complete => Ok(()),
        State::Degraded(why) => bail!("the run is degraded: {why}"),
        State::Aborted(why) => bail!("the run was aborted: {why}"),
    }
}

fn config(args: LoadArgs) -> Result<LoadConfig> {
    let read = |path: PathBuf| {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::Ok(text.trim().to_owned())
    };
    Ok(LoadConfig {
        url: args.url,
        model: args.model,
        endpoint: args.endpoint,
        concurrency: args.concurrency,
        requests: args.requests,
        isl: args.isl,
        osl: args.osl,
        seed: args.seed,
        request_timeout: args.request_timeout,
        steady_after: args.steady_after,
        out: args.out,
        api_key: args.api_key_file.map(read).transpose()?,
    })
}

/// Where `--json` goes; opened before the run, so that a run is not lost to a bad path.
#[derive(Debug)]
enum Json {
    Stdout,
    File(PathBuf, File),
}

impl Json {
    fn create(path: PathBuf) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let file = File::create(&path);
        let file = file.map_err(|error| usage(format!("cannot write --json {}: {error}", path.display())))?;
        Ok(Self::File(path, file))
    }
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a command"
)]
fn print(summary: &Summary, json: Option<Json>) -> Result<()> {
    let table = load::render(summary);
    let text = serde_json::to_string_pretty(summary)? + "\n";
    match json {
        None => print!("{table}"),
        Some(Json::Stdout) => {
            print!("{text}");
            eprint!("{table}");
        }
        Some(Json::File(path, mut file)) => {
            print!("{table}");
            file.write_all(text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
