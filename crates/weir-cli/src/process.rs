//! What every long-running command needs of its process: one runtime, enough descriptors, an orderly stop.

use std::{future::Future, io::Write, os::fd::AsFd};

use anyhow::Context as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    signal::unix::{Signal, SignalKind, signal},
};

/// Options of every long-running command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Runtime threads and, in a worker with a model, threads that compute. Default: one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Stop at once when standard input ends. Commands that start this one hold the other end.
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,
}

/// Runs a command on the process's one runtime.
///
/// # Errors
/// Those of the command, or the runtime cannot be built.
pub(crate) fn run_on<F>(args: &ProcessArgs, command: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    raise_descriptor_limit();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        builder.worker_threads(threads.into());
    }
    builder
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(command)
}

/// Raises the soft limit of open files to the hard limit: every client and peer is a descriptor.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Prints the one line on stdout that says the command serves now.
pub(crate) fn print_ready(what: &str) {
    // A closed stdout is the reader's choice and no reason to stop.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "ready {what}").and_then(|()| out.flush());
}

/// Why a command was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A signal: finish what is in progress first.
    Drain,
    /// The process that started this one is gone: end at once.
    Now,
}

/// Waits for the signals and the end of standard input that stop a command.
pub(crate) struct Stops {
    terminate: Signal,
    interrupt: Signal,
    parent: Option<pipe::Receiver>,
}

impl Stops {
    /// Takes the signals over from now on.
    ///
    /// # Errors
    /// The system refuses a handler, or standard input is to be watched and is no pipe.
    pub(crate) fn new(args: &ProcessArgs) -> anyhow::Result<Self> {
        let parent = if args.stop_with_stdin {
            let stdin = std::io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .context("cannot duplicate standard input")?;
            Some(
                pipe::Receiver::from_owned_fd(stdin)
                    .context("--stop-with-stdin needs a pipe as standard input")?,
            )
        } else {
            None
        };
        let handler = |kind| signal(kind).context("cannot handle signals");
        Ok(Self {
            terminate: handler(SignalKind::terminate())?,
            interrupt: handler(SignalKind::interrupt())?,
            parent,
        })
    }

    /// Resolves at the next reason to stop.
    pub(crate) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Drain,
            _ = self.interrupt.recv() => Stop::Drain,
            () = end_of(self.parent.as_mut()) => Stop::Now,
        }
    }

    /// Runs `drain`; another reason to stop cuts it.
    ///
    /// # Errors
    /// It was cut.
    pub(crate) async fn unless_again<T>(&mut self, drain: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            done = drain => Ok(done),
            _ = self.next() => anyhow::bail!("stopped at once: what was in progress is cut"),
        }
    }
}

/// Resolves when the pipe is closed at its other end, never without a pipe.
async fn end_of(parent: Option<&mut pipe::Receiver>) {
    let Some(parent) = parent else {
        return std::future::pending().await;
    };
    let mut unused = [0; 64];
    while parent.read(&mut unused).await.is_ok_and(|count| count > 0) {}
}
