//! `weir worker`: its registration and its ways to end.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::running::Running;

fn start(dir: &Path, more: &[&str]) -> Running {
    let dir = dir.to_str().expect("text");
    Running::start(&[&["worker", "--run-dir", dir, "--name", "w0"], more].concat())
}

fn file(dir: &Path) -> PathBuf {
    dir.join("workers/w0.json")
}

fn registered_pid(dir: &Path) -> u64 {
    let json = std::fs::read(file(dir)).expect("a registration");
    let registration: serde_json::Value = serde_json::from_slice(&json).expect("json");
    registration["pid"].as_u64().expect("a pid")
}

#[test]
fn a_signal_ends_it_cleanly_and_takes_its_registration_away() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = TempDir::new().unwrap();
        let mut worker = start(dir.path(), &["--workers", "3"]);
        assert_eq!(registered_pid(dir.path()), u64::from(worker.pid()));
        assert_eq!(worker.ready.len(), 12, "a node: {}", worker.ready);
        worker.signal(signal);
        assert_eq!(worker.wait().code(), Some(0));
        assert!(!file(dir.path()).exists());
    }
}

#[test]
fn the_name_of_a_killed_worker_is_free_again() {
    let dir = TempDir::new().unwrap();
    let mut first = start(dir.path(), &[]);
    first.signal(Signal::KILL);
    first.wait();
    assert_eq!(registered_pid(dir.path()), u64::from(first.pid()));
    let second = start(dir.path(), &[]);
    assert_eq!(registered_pid(dir.path()), u64::from(second.pid()));
}

#[test]
fn it_ends_when_the_process_that_started_it_lets_go() {
    let dir = TempDir::new().unwrap();
    let mut worker = start(dir.path(), &["--stop-with-stdin"]);
    drop(worker.stdin.take());
    assert_eq!(worker.wait().code(), Some(0));
    assert!(!file(dir.path()).exists());
}
