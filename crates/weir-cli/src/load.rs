//! `weir load`: drives an endpoint and reports what a client sees.

use std::{fs::File, io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use weir_bench::load::{self, Endpoint, InvalidConfig, LoadConfig, State, Summary};

use crate::{
    duration,
    exit::usage,
    interrupt::interrupted,
    process::{ProcessArgs, run_on},
};

/// Arguments of `weir load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Base URL, like `http://127.0.0.1:8000`, with or without /v1; plain HTTP only.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Model to ask for.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Requests in flight: each of N slots sends its next request when its last one has ended.
    #[arg(long, value_name = "N")]
    concurrency: usize,
    /// Requests in all.
    #[arg(long, value_name = "N")]
    requests: u64,
    /// Input sequence length: tokens of a prompt (words with `--endpoint chat`).
    #[arg(long, value_name = "N")]
    isl: u32,
    /// Output sequence length: tokens to generate; another number is a failure.
    #[arg(long, value_name = "N")]
    osl: u32,
    /// API: completions (prompts are token ids, so exact) or chat.
    #[arg(long, value_name = "API", default_value = "completions")]
    endpoint: Endpoint,
    /// Seed of the prompts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Longest time from a request's intended start to its end.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    request_timeout: Duration,
    /// Requests that start later than this after the first one are also reported apart, as steady state.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    steady_after: Duration,
    /// Directory for requests.jsonl, summary.json, config.json and run.log; what an earlier run wrote is replaced.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Writes the summary to this file too; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File that holds the API key.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
}

/// Runs `weir load`. Failed requests are figures, not an error of the command.
///
/// # Errors
/// The run cannot start, or did not end complete.
pub(crate) fn run(args: LoadArgs) -> Result<()> {
    let json = args.json.clone().map(Json::create).transpose()?;
    let process = ProcessArgs {
        threads: None,
        stop_with_stdin: false,
    };
    let config = config(args)?;
    let mut ended = None;
    run_on(&process, async {
        ended = Some(load::run(&config, interrupted()).await);
        Ok(())
    })?;
    let summary = ended.context("the run did not start")?;
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
