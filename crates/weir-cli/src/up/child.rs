//! One child process: its start, its `ready` line, its log, its end.

use std::{
    ffi::OsString,
    fmt,
    io::Write,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{self, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

/// How long the last lines of a child's log may take after its end.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A running child. Dropping it kills it.
pub(super) struct Child {
    process: process::Child,
    stdout: Option<ChildStdout>,
    log: Option<JoinHandle<()>>,
    /// The child stops when this end is closed.
    _lifeline: Option<ChildStdin>,
}

/// How a child ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended(Option<ExitStatus>);

impl Ended {
    /// Its exit code, unless a signal ended it.
    pub(super) fn code(self) -> Option<u8> {
        self.0
            .and_then(|status| status.code())
            .and_then(|code| u8::try_from(code).ok())
    }

    pub(super) fn is_clean(self) -> bool {
        self.code() == Some(0)
    }

    /// It refused its command line or configuration.
    pub(super) fn is_usage(self) -> bool {
        self.code() == Some(2)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => status.fmt(f),
            None => f.write_str("status unknown"),
        }
    }
}

impl Child {
    /// Starts this program with `args`; its log lines appear on our stderr behind `name`.
    pub(super) fn start(name: &str, args: &[OsString]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut process = Command::new(program)
            .args(args)
            .arg("--stop-with-stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let log = process
            .stderr
            .take()
            .map(|stderr| tokio::spawn(copy_log(name.to_owned(), stderr)));
        Ok(Self {
            stdout: process.stdout.take(),
            log,
            _lifeline: process.stdin.take(),
            process,
        })
    }

    /// What its `ready` line names; or how it ended before.
    pub(super) async fn ready(&mut self) -> Result<String, Ended> {
        if let Some(stdout) = self.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(what) = line.strip_prefix("ready ") {
                    return Ok(what.to_owned());
                }
            }
        }
        Err(self.ended().await)
    }

    /// Waits for its end, and until its log has been copied. Cancel safe.
    pub(super) async fn ended(&mut self) -> Ended {
        let status = self.process.wait().await.ok();
        if let Some(log) = &mut self.log {
            // Bounded, since a descendant may hold the pipe open.
            let _ = tokio::time::timeout(LAST_LINES, log).await;
            self.log = None;
        }
        Ended(status)
    }

    /// Asks it to finish what it has and end.
    pub(super) fn terminate(&self) {
        let pid = self
            .process
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        // Without an id it has ended and been waited for; a failure says the same.
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

async fn copy_log(name: String, log: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(log).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = [name.as_bytes(), b" | ", &line, b"\n"].concat();
        // A closed stderr must not stop the reading: the child would block on a full pipe.
        let _ = std::io::stderr().write_all(&line);
    }
}
