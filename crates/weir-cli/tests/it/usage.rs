//! Command lines that cannot work: one line that names what is wrong, nothing on stdout, exit code 2.

use std::process::{Command, Output, Stdio};

fn weir(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .env_remove("WEIR_LOG");
    command.output().expect("the binary runs")
}

/// The line that a command line gets, after checking that it is the only one.
fn complaint(args: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = weir(args);
    let stderr = String::from_utf8(stderr).expect("text");
    assert_eq!(
        (status.code(), stdout.as_slice(), stderr.lines().count()),
        (Some(2), &b""[..], 1),
        "{args:?}: {stderr}"
    );
    stderr
}

#[test]
fn a_bad_command_line_is_one_line_that_names_it() {
    for (args, named) in [
        (vec![], "command"),
        (vec!["serve-me"], "serve-me"),
        (vec!["up", "--no-such-flag"], "--no-such-flag"),
        (vec!["up", "--processes", "many"], "many"),
        (vec!["up", "--processes", "0"], "--processes"),
        (vec!["up", "--workers", "0"], "--workers"),
        (vec!["worker"], "--run-dir"),
        (vec!["worker", "--run-dir", "x", "--engine", "steam"], "steam"),
        (vec!["worker", "--run-dir", "x", "--speedup", "-1"], "-1"),
        (vec!["worker", "--run-dir", "x", "--speedup", "0"], "over 0"),
        (
            vec!["worker", "--run-dir", "x", "--metrics-listen", "here"],
            "write it like 127.0.0.1:8000",
        ),
        (vec!["up", "--threads", "0"], "not in 1..=65535"),
        (vec!["worker"], "`weir worker --help`"),
        (vec!["up", "--no-such-flag"], "`weir up --help`"),
        (vec!["bench", "plane", "--reps", "0"], "`weir bench plane --help`"),
        (vec!["bench"], "`weir bench --help`"),
        (vec!["serve-me"], "`weir --help`"),
    ] {
        let line = complaint(&args);
        assert!(line.contains(named), "{args:?}: {line}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [["--help"], ["--version"]] {
        let output = weir(&args);
        assert!(
            output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(),
            "{output:?}"
        );
    }
}

#[test]
fn what_only_a_child_of_up_can_tell_is_still_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let dir = tempfile::TempDir::new().expect("a directory");
    let dir = dir.path().to_str().expect("text");
    for (args, named) in [
        (vec!["up", "--run-dir", dir, "--listen", &taken], taken.as_str()),
        (vec!["up", "--run-dir", dir, "--listen", "here"], "here"),
        (
            vec!["up", "--run-dir", "/proc/weir", "--listen", "127.0.0.1:0"],
            "/proc/weir",
        ),
        (
            vec![
                "up",
                "--run-dir",
                dir,
                "--listen",
                "127.0.0.1:0",
                "--stall-limit",
                "soon",
            ],
            "soon",
        ),
    ] {
        let line = complaint(&args);
        assert!(line.contains(named), "{args:?}: {line}");
    }
}
