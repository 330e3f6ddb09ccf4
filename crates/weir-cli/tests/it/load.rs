//! `weir load` from its command line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn load(args: &[&str]) -> Output {
    let fixed = [
        "load",
        "--model",
        "m",
        "--concurrency",
        "2",
        "--requests",
        "3",
        "--isl",
        "4",
    ];
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(fixed)
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn failed_requests_are_figures_and_not_a_failed_command() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let output = load(&["--osl", "4", "--url", &url, "--out", out, "--json", "-"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&summary["state"], &summary["requests"]["failures"]["connect"]),
        (&"complete".into(), &3.into())
    );
    for name in ["summary.json", "requests.jsonl", "config.json", "run.log"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
}

#[test]
fn bad_usage_ends_with_2_and_says_what() {
    let refused = |args: &[&str]| {
        let output = load(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--osl", "4", "--url", "https://h"]).contains("https://h"));
    assert!(refused(&["--osl", "0", "--url", "http://127.0.0.1:1"]).contains("--osl"));
    assert!(
        refused(&["--osl", "4", "--url", "http://127.0.0.1:1", "--out", "/proc/none"]).contains("/proc/none")
    );
    assert!(
        refused(&[
            "--osl",
            "4",
            "--url",
            "http://127.0.0.1:1",
            "--json",
            "/nowhere/s"
        ])
        .contains("/nowhere/s")
    );
    assert!(refused(&["--osl", "4", "--url", "http://h", "--request-timeout", "1h"]).contains("1h"));
}
