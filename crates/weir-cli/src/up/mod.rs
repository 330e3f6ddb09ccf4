//! `weir up`: one frontend and worker processes as children of this process.
//!
//! Children are in process groups of their own, so that Ctrl-C reaches this process alone and it can stop them in
//! order; each holds a pipe from this process and stops when that ends. Invariant: no child outlives this process.

mod child;
mod health;
mod workers;

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{
    engines::EngineArgs,
    exit::AlreadySaid,
    process::{ProcessArgs, Stop, Stops, print_ready, run_on},
};
use child::{Child, Ended};
use workers::Workers;

/// Arguments of `weir up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Address of the frontend.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    listen: String,
    /// Worker processes. Default: 2, and 1 for a model.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: Option<u16>,
    #[command(flatten)]
    engines: EngineArgs,
    /// Directory where workers and frontends find each other. Default: one of its own, removed at the end.
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    #[command(flatten)]
    frontend: FrontendOptions,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Options that go to the frontend as they are; it checks them and has the defaults.
#[derive(Debug, Args)]
struct FrontendOptions {
    /// From a request to its first token; then 504. Default 30s.
    #[arg(long, value_name = "TIME")]
    first_token_timeout: Option<OsString>,
    /// Between two tokens of a request; then an error event. Default 30s.
    #[arg(long, value_name = "TIME")]
    progress_timeout: Option<OsString>,
    /// How long a client may leave unread what waits for it. Default 30s.
    #[arg(long, value_name = "TIME")]
    stall_limit: Option<OsString>,
    /// File with API keys, one a line, of which each request must carry one.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<OsString>,
    /// Allow to listen beyond loopback without API keys.
    #[arg(long)]
    insecure: bool,
    /// Chat template to use instead of the model's.
    #[arg(long, value_name = "FILE", requires = "model")]
    chat_template: Option<OsString>,
}

impl FrontendOptions {
    fn append_to(&self, args: &mut Vec<OsString>) {
        for (flag, value) in [
            ("--first-token-timeout", &self.first_token_timeout),
            ("--progress-timeout", &self.progress_timeout),
            ("--stall-limit", &self.stall_limit),
            ("--api-key-file", &self.api_key_file),
            ("--chat-template", &self.chat_template),
        ] {
            args.extend(value.iter().map(|value| flag_with(flag, value)));
        }
        args.extend(self.insecure.then(|| "--insecure".into()));
    }
}

/// `--flag=value`: also for values that look like flags.
pub(crate) fn flag_with(flag: &str, value: &(impl AsRef<std::ffi::OsStr> + ?Sized)) -> OsString {
    let mut arg = OsString::from(flag);
    arg.push("=");
    arg.push(value);
    arg
}

impl UpArgs {
    fn frontend_command(&self, run_dir: &PathBuf) -> Vec<OsString> {
        let mut args = vec![
            "frontend".into(),
            flag_with("--listen", &self.listen),
            flag_with("--run-dir", run_dir),
        ];
        args.extend(self.engines.model().map(|model| flag_with("--model", model)));
        self.frontend.append_to(&mut args);
        self.append_threads(&mut args);
        args
    }

    fn worker_command(&self, run_dir: &PathBuf, name: &str) -> Vec<OsString> {
        let mut args = vec![
            "worker".into(),
            flag_with("--run-dir", run_dir),
            flag_with("--name", name),
        ];
        self.engines.append_to(&mut args);
        match (self.process.threads, self.engines.model()) {
            // Processes that compute share the cores.
            (None, Some(_)) if self.processes() > 1 => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let share = (cores / usize::from(self.processes())).max(1);
                args.push(flag_with("--threads", &share.to_string()));
            }
            _ => self.append_threads(&mut args),
        }
        args
    }

    fn processes(&self) -> u16 {
        let usual = if self.engines.model().is_some() { 1 } else { 2 };
        self.processes.unwrap_or(usual)
    }

    fn append_threads(&self, args: &mut Vec<OsString>) {
        args.extend(
            self.process
                .threads
                .map(|threads| flag_with("--threads", &threads.to_string())),
        );
    }
}

/// Runs `weir up`.
///
/// # Errors
/// A child cannot be started, the frontend ended by itself, or a second signal cut requests in progress.
pub(crate) fn run(args: UpArgs) -> Result<()> {
    args.engines.chosen()?;
    // Before anything starts: it may take minutes, and a signal ends it.
    args.engines.fetch()?;
    let process = args.process.clone();
    run_on(&process, start(args))
}

async fn start(args: UpArgs) -> Result<()> {
    let mut stops = Stops::new(&args.process)?;
    let own_dir = match args.run_dir {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new()
                .prefix("weir-")
                .tempdir()
                .context("cannot make a run directory")?,
        ),
    };
    let run_dir = args
        .run_dir
        .clone()
        .or_else(|| own_dir.as_ref().map(|dir| dir.path().to_owned()))
        .unwrap_or_default();
    let mut frontend = Child::start("frontend", &args.frontend_command(&run_dir))?;
    let url = tokio::select! {
        ready = frontend.ready() => ready.map_err(give_up)?,
        stop = stops.next() => return stop_all(stop, stops, frontend, Workers::default()).await,
    };
    let commands = (0..args.processes()).map(|index| {
        let name = format!("w{index}");
        let command = args.worker_command(&run_dir, &name);
        (name, command)
    });
    let mut workers = Workers::start(commands);
    let engines = u64::from(args.processes()) * u64::from(args.engines.workers);
    let serving = async {
        health::until_workers(&url, engines).await;
        print_ready(&url);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => Ok(()),
        ended = frontend.ended() => bail!("the frontend ended by itself ({ended})"),
        ended = workers.failed() => Err(give_up(ended)),
        stop = stops.next() => stop_all(stop, stops, frontend, workers).await,
    }
}

/// A child could not begin its work; it has said why.
fn give_up(ended: Ended) -> anyhow::Error {
    AlreadySaid(ended.code().unwrap_or(1)).into()
}

/// The frontend first, so that requests in progress still have their workers.
async fn stop_all(stop: Stop, mut stops: Stops, mut frontend: Child, mut workers: Workers) -> Result<()> {
    if stop == Stop::Now {
        return Ok(());
    }
    let code = stops.unless_again(async {
        frontend.terminate();
        let ended = frontend.ended().await;
        workers.stop().await;
        ended
    });
    match code.await? {
        ended if ended.is_clean() => Ok(()),
        ended => bail!("the frontend did not stop cleanly ({ended})"),
    }
}
