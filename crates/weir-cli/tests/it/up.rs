//! `weir up`: its children begin, begin again, and end with it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::running::{Running, until};

fn up(dir: &Path, more: &[&str]) -> Running {
    let dir = dir.to_str().expect("text");
    Running::start(&[&["up", "--listen", "127.0.0.1:0", "--run-dir", dir], more].concat())
}

/// The body of an answer to `method path` with `body`.
fn ask(up: &Running, request: &str, body: &str) -> String {
    let addr = up.ready.strip_prefix("http://").expect("a URL");
    let mut socket = TcpStream::connect(addr).expect("it listens");
    let length = body.len();
    let head =
        format!("{request} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\ncontent-length: {length}\r\n");
    let request = format!("{head}content-type: application/json\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

fn workers(up: &Running) -> u64 {
    let health: Value = serde_json::from_str(&ask(up, "GET /health", "")).expect("json");
    health["workers"].as_u64().expect("a number")
}

/// Ids of the registered worker processes by name.
fn registered(dir: &Path) -> Vec<(String, i32)> {
    let files = fs::read_dir(dir.join("workers"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path());
    let json = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let registration = |path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok();
    let mut found: Vec<_> = json
        .filter_map(registration)
        .map(|worker| {
            let pid = worker["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            (
                worker["name"].as_str().expect("a name").to_owned(),
                pid.expect("a pid"),
            )
        })
        .collect();
    found.sort();
    found
}

/// Whether a process runs; one that has ended but was not waited for does not.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn it_is_ready_once_every_worker_is_and_a_signal_ends_all() {
    let dir = TempDir::new().unwrap();
    let mut up = up(
        dir.path(),
        &["--processes", "2", "--workers", "3", "--speedup", "inf"],
    );
    assert_eq!(workers(&up), 6);
    let prompt = r#"{"model": "mock", "prompt": "hello", "max_tokens": 5}"#;
    let answer: Value = serde_json::from_str(&ask(&up, "POST /v1/completions", prompt)).unwrap();
    assert_eq!(
        (
            &answer["usage"]["completion_tokens"],
            &answer["choices"][0]["finish_reason"]
        ),
        (&5.into(), &"length".into())
    );
    let children = registered(dir.path());
    assert_eq!(
        children.iter().map(|child| child.0.as_str()).collect::<Vec<_>>(),
        ["w0", "w1"]
    );
    up.signal(Signal::TERM);
    assert_eq!(up.wait().code(), Some(0));
    assert!(registered(dir.path()).is_empty());
    assert!(!children.iter().any(|child| is_alive(child.1)));
}

#[test]
fn a_worker_that_dies_is_started_again() {
    let dir = TempDir::new().unwrap();
    let mut up = up(dir.path(), &["--processes", "2"]);
    let before = registered(dir.path());
    kill_process(Pid::from_raw(before[0].1).unwrap(), Signal::KILL).unwrap();
    let after = until("another w0", || {
        let now = registered(dir.path());
        (now.len() == 2 && now[0].1 != before[0].1).then_some(now)
    });
    assert_eq!(after[1], before[1]);
    until("it is routed to", || (workers(&up) == 2).then_some(()));
    up.signal(Signal::INT);
    assert_eq!(up.wait().code(), Some(0));
}

#[test]
fn no_child_outlives_it() {
    let dir = TempDir::new().unwrap();
    let mut up = up(dir.path(), &["--processes", "2"]);
    let children = registered(dir.path());
    up.signal(Signal::KILL);
    up.wait();
    until("the workers end", || {
        (!children.iter().any(|child| is_alive(child.1))).then_some(())
    });
}
