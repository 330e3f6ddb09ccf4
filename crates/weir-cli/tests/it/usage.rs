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
            "here",
        ),
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
