//! A model behind frontend and plane: real processes, a tiny file with fixed weights.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_model::{arch::Family, gguf::TensorType, tiny::TinyModel};

use crate::running::{Running, until};

/// A model of three layers and 512 tokens of context, in a directory that goes with it.
struct Served {
    up: Running,
    dir: TempDir,
}

fn write_model(dir: &Path, change: impl FnOnce(&mut TinyModel)) -> PathBuf {
    let mut tiny = TinyModel::new(Family::Qwen3, TensorType::named("Q8_0").unwrap());
    change(&mut tiny);
    let file = dir.join("tiny.v1.gguf");
    std::fs::write(&file, tiny.to_bytes().unwrap()).unwrap();
    file
}

fn serve(more: &[&str], change: impl FnOnce(&mut TinyModel)) -> Served {
    let dir = TempDir::new().unwrap();
    let model = write_model(dir.path(), change);
    let run_dir = dir.path().join("run");
    let common = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "2",
        "--run-dir",
        run_dir.to_str().unwrap(),
        "--model",
        model.to_str().unwrap(),
    ];
    let up = Running::start(&[&common[..], more].concat());
    Served { up, dir }
}

impl Served {
    fn addr(&self) -> &str {
        self.up.ready.strip_prefix("http://").unwrap()
    }

    /// Sends a request whose answer is still to be read.
    fn send(&self, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let (addr, length) = (self.addr(), body.len());
        let mut socket = TcpStream::connect(addr).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket
    }

    /// Status and body of an answer.
    fn ask(&self, path: &str, body: &Value) -> (u16, String) {
        split(self.send(path, body))
    }

    fn completion(&self, body: &Value) -> Value {
        let (status, answer) = self.ask("/v1/completions", body);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The gauge of requests that the worker runs.
    fn running(&self) -> u64 {
        let mut socket = TcpStream::connect(self.addr()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).unwrap();
        let (_, page) = split(socket);
        let gauges = page
            .lines()
            .filter(|line| line.starts_with("weir_engine_running{"));
        let values = gauges.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        values.sum()
    }
}

fn split(mut socket: TcpStream) -> (u16, String) {
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (status, if chunked { unchunked(body) } else { body.to_owned() })
}

fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        out.push_str(&rest[..size]);
        body = &rest[size + 2..];
        if size == 0 {
            break;
        }
    }
    out
}

/// The text of a streamed answer, after checking that it ended.
fn streamed(answer: &str) -> String {
    let events: Vec<&str> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    assert_eq!(events.last(), Some(&"[DONE]"), "{answer}");
    let text = |event: &&str| {
        let event: Value = serde_json::from_str(event).unwrap();
        event["choices"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    events[..events.len() - 1].iter().map(text).collect()
}

fn request(prompt: &str, seed: u64, tokens: u32) -> Value {
    json!({"model": "tiny.v1", "prompt": prompt, "max_tokens": tokens, "seed": seed, "temperature": 1.0, "ignore_eos": true})
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

#[test]
fn streamed_text_equals_unstreamed_and_repeats_beside_others() {
    let served = serve(&[], |_| {});
    let asked: Vec<Value> = (0..8)
        .map(|index| request(&"the and in ".repeat(index + 1), 7 + index as u64, 48))
        .collect();
    let alone: Vec<Value> = asked.iter().map(|body| served.completion(body)).collect();
    assert!(
        alone
            .iter()
            .all(|answer| answer["usage"]["completion_tokens"] == 48)
    );
    assert_ne!(text(&alone[0]), text(&alone[1]));
    let beside: Vec<(u16, String)> = thread::scope(|scope| {
        let ask = |body: &Value| {
            let mut body = body.clone();
            body["stream"] = true.into();
            served.ask("/v1/completions", &body)
        };
        let threads: Vec<_> = asked.iter().map(|body| scope.spawn(move || ask(body))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (alone, (status, beside)) in alone.iter().zip(beside) {
        assert_eq!(
            (status, streamed(&beside).as_str()),
            (200, text(alone)),
            "{beside}"
        );
    }
    assert_eq!(served.running(), 0);
}

#[test]
fn a_client_that_leaves_frees_its_place_at_once() {
    let served = serve(&[], |tiny| tiny.context = 1 << 17);
    let mut body = request("go on", 1, 100_000);
    body["stream"] = true.into();
    let mut socket = served.send("/v1/completions", &body);
    let mut first = [0; 64];
    socket.read_exact(&mut first).unwrap();
    until("it runs", || (served.running() == 1).then_some(()));
    drop(socket);
    until("nothing runs", || (served.running() == 0).then_some(()));
}

#[test]
fn what_does_not_fit_the_context_is_refused_before_anything_runs() {
    let mut served = serve(&[], |_| {});
    let (status, answer) = served.ask("/v1/completions", &request("go", 1, 600));
    assert!(
        status == 400 && answer.contains("context_length_exceeded"),
        "{answer}"
    );
    let (status, answer) = served.ask("/v1/completions", &request(&"x!".repeat(100_000), 1, 1));
    assert!(
        status == 400 && answer.contains("context_length_exceeded"),
        "{answer}"
    );
    let chat = json!({"model": "tiny.v1", "messages": [{"role": "user", "content": "ab".repeat(600)}]});
    let (status, answer) = served.ask("/v1/chat/completions", &chat);
    assert!(
        status == 400 && answer.contains("context_length_exceeded"),
        "{answer}"
    );
    let unknown = json!({"model": "tiny.v1", "prompt": [5, 999_999], "max_tokens": 1});
    let (status, answer) = served.ask("/v1/completions", &unknown);
    assert!(status == 400 && answer.contains("999999"), "{answer}");
    served.up.signal(Signal::TERM);
    assert_eq!(served.up.wait().code(), Some(0));
}

#[test]
fn a_template_that_raises_or_loops_makes_its_request_fail_and_no_other() {
    let template = "{% if messages[0].content == 'loop' %}{% for a in range(90000) %}{% for b in range(90000) %}\
                    {% endfor %}{% endfor %}{% elif messages[0].content == 'raise' %}\
                    {{ raise_exception('roles must alternate') }}{% endif %}{{ messages[0].content }}";
    let served = serve(&[], |tiny| tiny.template = Some(template.to_owned()));
    let chat = |content: &str| {
        let messages = json!([{"role": "user", "content": content}]);
        let body = json!({"model": "tiny.v1", "messages": messages, "max_tokens": 3, "ignore_eos": true});
        served.ask("/v1/chat/completions", &body)
    };
    let (status, answer) = chat("raise");
    assert!(
        status == 400 && answer.contains("roles must alternate"),
        "{answer}"
    );
    let (status, answer) = chat("loop");
    assert!(status == 400 && answer.contains("template failed"), "{answer}");
    let (status, answer) = chat("the");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    // The template gives the text alone, and this family has no token at the beginning.
    assert_eq!(
        (status, &answer["usage"]["prompt_tokens"]),
        (200, &1.into()),
        "{answer}"
    );
}

#[test]
fn the_operators_name_and_template_come_first() {
    let dir = TempDir::new().unwrap();
    let template = dir.path().join("template");
    std::fs::write(&template, "in").unwrap();
    let more = [
        "--model-name",
        "small",
        "--kv-memory",
        "64M",
        "--chat-template",
        template.to_str().unwrap(),
    ];
    let served = serve(&more, |tiny| tiny.template = Some("the and".to_owned()));
    let messages = json!([{"role": "user", "content": "a long text that is not in the template"}]);
    let body = json!({"model": "small", "messages": messages, "max_tokens": 1, "ignore_eos": true});
    let (status, answer) = served.ask("/v1/chat/completions", &body);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (status, &answer["usage"]["prompt_tokens"]),
        (200, &1.into()),
        "{answer}"
    );
    assert_eq!(served.ask("/v1/completions", &request("x", 1, 1)).0, 404);
}

#[test]
fn a_frontend_uses_no_worker_with_another_tokenizer() {
    let served = serve(&[], |_| {});
    let run_dir = served.dir.path().join("run");
    let other = Running::start(&[
        "frontend",
        "--listen",
        "127.0.0.1:0",
        "--run-dir",
        run_dir.to_str().unwrap(),
    ]);
    let addr = other.ready.strip_prefix("http://").unwrap();
    until("it sees the worker", || {
        let mut socket = TcpStream::connect(addr).unwrap();
        socket
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .unwrap();
        let (_, page) = split(socket);
        page.lines()
            .any(|line| line.starts_with("weir_workers_rejected") && line.ends_with(" 1"))
            .then_some(())
    });
}

/// The line of a command that cannot work, after checking its exit code.
fn complaint(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
    line
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let model = write_model(dir.path(), |tiny| tiny.context = 1 << 20);
    let (model, run_dir) = (model.to_str().unwrap(), dir.path().to_str().unwrap());
    let junk = dir.path().join("junk.gguf");
    std::fs::write(&junk, "GGUF no").unwrap();
    let junk = junk.to_str().unwrap();
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "{% for %}").unwrap();
    let broken = broken.to_str().unwrap();
    let worker: [(&[&str], &str); 9] = [
        (&["--model", model, "--kv-memory", "999999G"], "MiB are free"),
        (&["--model", model, "--kv-memory", "1K"], "at least 256 tokens"),
        (&["--model", model, "--workers", "2"], "--workers must be 1"),
        (&["--model", model, "--engine", "mock"], "--engine model"),
        (&["--engine", "model"], "needs a --model"),
        (&["--model", junk], "junk.gguf"),
        (&["--model", "no-such-model"], "gemma3-270m"),
        (&["--kv-memory", "1G"], "--model"),
        (&["--model", model, "--kv-memory", "lots"], "lots"),
    ];
    for (more, named) in worker {
        let line = complaint(&[&["worker", "--run-dir", run_dir][..], more].concat());
        assert!(line.contains(named), "{more:?}: {line}");
    }
    let frontend: [(&[&str], &str); 4] = [
        (&["--model", junk], "junk.gguf"),
        (&["--model", model, "--chat-template", broken], "template"),
        (&["--model", model, "--chat-template", run_dir], "cannot read"),
        (&["--chat-template", junk], "--model"),
    ];
    for (more, named) in frontend {
        let common = ["frontend", "--run-dir", run_dir, "--listen", "127.0.0.1:0"];
        let line = complaint(&[&common[..], more].concat());
        assert!(line.contains(named), "{more:?}: {line}");
    }
    let line = complaint(&["up", "--listen", "127.0.0.1:0", "--model", junk]);
    assert!(line.contains("junk.gguf"), "{line}");
}
