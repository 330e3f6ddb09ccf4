//! `weir frontend` and what it makes of processes that die: real processes, real signals.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tempfile::TempDir;

use crate::running::{Running, until};

fn frontend(dir: &Path) -> Running {
    let dir = dir.to_str().expect("text");
    Running::start(&["frontend", "--listen", "127.0.0.1:0", "--run-dir", dir])
}

/// Sends a streamed completion of 20 scripted tokens, the last of them after `pause_ms`.
fn ask(server: &Running, pause_ms: u32, members: &str) -> TcpStream {
    let addr = server.ready.strip_prefix("http://").expect("a URL");
    let mut socket = TcpStream::connect(addr).expect("it listens");
    let step = |at| {
        let delay = if at == 19 { pause_ms } else { 0 };
        format!("{{\"delay_ms\":{delay},\"bytes_hex\":\"{:02x}\"}}", b'a' + at)
    };
    let script = (0..20).map(step).collect::<Vec<_>>().join(",");
    let body = format!(
        "{{\"model\":\"scripted\",\"prompt\":\"go\",\"stream\":true,\"weir_script\":[{script}]{members}}}"
    );
    let length = body.len();
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n");
    let request = format!("{head}connection: close\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).expect("it reads");
    socket
}

fn rest(mut socket: TcpStream) -> String {
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Number of tokens in a streamed answer.
fn tokens(answer: &str) -> usize {
    answer.matches("\"finish_reason\":null").count()
}

#[test]
fn a_worker_process_that_dies_breaks_an_answer_only_after_its_first_token() {
    let dir = TempDir::new().unwrap();
    let run_dir = dir.path().to_str().unwrap();
    let args = ["--engine", "scripted", "--processes", "2"];
    let up = Running::start(
        &[
            &["up", "--listen", "127.0.0.1:0", "--run-dir", run_dir],
            &args[..],
        ]
        .concat(),
    );
    let moved = rest(ask(&up, 0, ",\"weir_fault\":{\"at\":0,\"kind\":\"die\"}"));
    assert_eq!(tokens(&moved), 20, "{moved}");
    assert!(
        moved.contains("\"finish_reason\":\"stop\"") && moved.contains("[DONE]"),
        "{moved}"
    );
    let broken = rest(ask(&up, 0, ",\"weir_fault\":{\"at\":5,\"kind\":\"die\"}"));
    assert_eq!(tokens(&broken), 5, "{broken}");
    assert!(broken.contains("data: {\"error\":"), "{broken}");
    assert!(
        !broken.contains("\"finish_reason\":\"stop\"") && !broken.contains("[DONE]"),
        "{broken}"
    );
}

#[test]
fn a_signal_lets_an_answer_finish_and_a_second_one_does_not() {
    for (signals, pause_ms, code) in [(1, 500, 0), (2, 600_000, 1)] {
        let dir = TempDir::new().unwrap();
        let run_dir = dir.path().to_str().unwrap();
        let mut server = frontend(dir.path());
        let _worker = Running::start(&["worker", "--run-dir", run_dir, "--engine", "scripted"]);
        until("the worker is linked", || {
            serves(&server, "/health").then_some(())
        });
        let mut lines = BufReader::new(ask(&server, pause_ms, "")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("\"s\""))));
        for _ in 0..signals {
            server.signal(Signal::TERM);
            // Two signals of one kind that come at once are one.
            until("it drains", || (!serves(&server, "/health")).then_some(()));
        }
        assert_eq!(server.wait().code(), Some(code));
        let ended = lines.map_while(Result::ok).any(|line| line == "data: [DONE]");
        assert_eq!(ended, signals == 1);
    }
}

/// The answer to a GET of `path`, if there is one.
fn get(server: &Running, path: &str) -> Option<String> {
    let addr = server.ready.strip_prefix("http://").expect("a URL");
    let mut socket = TcpStream::connect(addr).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Whether `path` is answered with 200.
fn serves(server: &Running, path: &str) -> bool {
    get(server, path).is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The sum of a metric over its labels, from one answer of `/metrics`.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let values = values.filter(|rest| rest.starts_with([' ', '{']));
    values
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn metrics(server: &Running) -> String {
    get(server, "/metrics").expect("it answers")
}

#[test]
fn clients_that_go_leave_nothing_in_the_process() {
    const GAUGES: [&str; 4] = [
        "weir_engine_running",
        "weir_live_slots",
        "weir_runtime_tasks",
        "weir_process_open_fds",
    ];
    let dir = TempDir::new().unwrap();
    let run_dir = dir.path().to_str().unwrap();
    let args = ["--engine", "scripted", "--processes", "2", "--workers", "2"];
    let up = Running::start(
        &[
            &["up", "--listen", "127.0.0.1:0", "--run-dir", run_dir],
            &args[..],
        ]
        .concat(),
    );
    // Only the connection that asks is open: earlier ones may still be on their way out.
    let quiet = || Some(metrics(&up)).filter(|now| sum(now, "weir_connections_open") == 1);
    let base = until("it is quiet", quiet);
    for _ in 0..3 {
        let clients: Vec<_> = (0..100).map(|_| ask(&up, 600_000, "")).collect();
        until("all run", || {
            (sum(&metrics(&up), "weir_engine_running") == 100).then_some(())
        });
        drop(clients);
        until("nothing is left", || {
            let now = quiet()?;
            GAUGES
                .iter()
                .all(|name| sum(&now, name) <= sum(&base, name))
                .then_some(())
        });
    }
    assert_eq!(sum(&metrics(&up), "weir_client_disconnects_total"), 300);
}

/// The one line that a command line gets with exit code 2.
fn complaint(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let line = String::from_utf8(output.stderr).expect("text");
    assert_eq!(
        (output.status.code(), line.lines().count()),
        (Some(2), 1),
        "{line}"
    );
    line
}

#[test]
fn what_a_frontend_cannot_use_is_named_with_what_to_do() {
    let dir = TempDir::new().unwrap();
    let run_dir = dir.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let empty = dir.path().join("keys");
    std::fs::write(&empty, "# none\n").unwrap();
    let empty = empty.to_str().unwrap();
    for (more, named) in [
        (vec!["--listen", taken.as_str()], taken.as_str()),
        (vec!["--listen", "here"], "here"),
        (vec!["--listen", "0.0.0.0:0"], "--api-key-file"),
        (vec!["--stall-limit", "0s"], "--stall-limit"),
        (vec!["--api-key-file", "/no/such/file"], "/no/such/file"),
        (vec!["--api-key-file", empty], "no key"),
        (vec!["--cors-origin", "example.org"], "example.org"),
        (vec!["--max-connections", "0"], "max_connections"),
    ] {
        let any_port = if more[0] == "--listen" {
            &[][..]
        } else {
            &["--listen", "127.0.0.1:0"]
        };
        let line = complaint(&[&["frontend", "--run-dir", run_dir], any_port, more.as_slice()].concat());
        assert!(line.contains(named), "{more:?}: {line}");
    }
}

#[test]
fn a_frontend_without_descriptors_recovers_when_some_are_free_again() {
    let dir = TempDir::new().unwrap();
    let limit = Rlimit {
        current: Some(48),
        maximum: Some(48),
    };
    let server = frontend(dir.path());
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let addr = server.ready.strip_prefix("http://").unwrap();
    let clients: Vec<_> = (0..80).map(|_| TcpStream::connect(addr).unwrap()).collect();
    // The kernel has taken the last of them, the process cannot; the first it has answers.
    let mut first = &clients[0];
    let failed = until("accepting fails", || {
        first
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let text = until("an answer", || {
            let mut text = vec![0; 64 << 10];
            let read = first.read(&mut text).unwrap();
            String::from_utf8(text[..read].to_vec()).ok()
        });
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("weir_accept_errors_total "));
        line.and_then(|count| count.parse::<u64>().ok())
            .filter(|count| *count > 0)
    });
    assert!(failed > 0);
    drop(clients);
    until("it serves again", || serves(&server, "/live").then_some(()));
}
