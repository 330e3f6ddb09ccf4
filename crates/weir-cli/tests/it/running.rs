//! A running command: its `ready` line, its signals, its end. It is killed when it is dropped.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Longest a test waits for a process.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Running {
    child: Child,
    /// What the `ready` line named.
    pub(crate) ready: String,
    pub(crate) stdin: Option<ChildStdin>,
}

impl Running {
    /// Starts `weir` with `args` and waits for its `ready` line.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let (sender, receiver) = mpsc::channel();
        let stdout = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || sender.send(BufReader::new(stdout).lines().next()));
        let stdin = child.stdin.take();
        let mut running = Self {
            child,
            ready: String::new(),
            stdin,
        };
        let line = receiver
            .recv_timeout(PATIENCE)
            .expect("a line in time")
            .expect("a line")
            .expect("text");
        running.ready = line.strip_prefix("ready ").expect("it is ready").to_owned();
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a pid");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("it ends", || self.child.try_wait().expect("a child"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks again and again until there is something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::yield_now();
    }
}
