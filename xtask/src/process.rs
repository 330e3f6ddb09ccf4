//! Commands that tasks run.
//!
//! Output goes straight to the terminal; only a counted command's standard output passes through, line by line, so
//! that the closing line can say how many tests ran.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

/// Tests that ran inside one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// `program` with `args`, in the workspace root, without standard input.
pub(crate) fn command(root: &Path, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root).stdin(Stdio::null());
    command
}

/// The cargo that runs this task.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    command(
        root,
        std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        args,
    )
}

/// Runs to the end; true if it succeeded.
pub(crate) fn run(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| cannot_start(command))?;
    Ok(status.success())
}

/// Runs to the end and counts the tests that its output reports.
pub(crate) fn run_counted(command: &mut Command) -> Result<(bool, Count)> {
    let mut count = Count::default();
    let ok = run_read(command, |line| {
        if let Some(more) = reported(line) {
            count.passed += more.passed;
            count.failed += more.failed;
        }
    })?;
    Ok((ok, count))
}

/// Runs to the end and returns the last line of its output.
pub(crate) fn run_tailed(command: &mut Command) -> Result<(bool, String)> {
    let mut last = String::new();
    let ok = run_read(command, |line| line.clone_into(&mut last))?;
    Ok((ok, last))
}

/// Runs to the end, printing each line of its output and showing it to `read`.
fn run_read(command: &mut Command, mut read: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            read(&line);
        }
    }
    Ok(child.wait()?.success())
}

fn cannot_start(command: &Command) -> String {
    format!(
        "cannot start `{}`; is it installed and on PATH?",
        command.get_program().to_string_lossy()
    )
}

/// The count in a line of cargo's test runner (`test result: ok. 3 passed; 0 failed; ...`) or in the acceptance
/// suite's closing line (`3 passed, 0 failed`).
fn reported(line: &str) -> Option<Count> {
    if let Some(rest) = line.strip_prefix("test result: ") {
        let rest = rest.split_once(". ")?.1;
        return two_numbers(rest, "; ");
    }
    line.ends_with(" failed")
        .then(|| two_numbers(line, ", "))
        .flatten()
}

fn two_numbers(text: &str, between: &str) -> Option<Count> {
    let mut parts = text.split(between);
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Count { passed, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runners_are_counted_and_nothing_else_is() {
        let cargo = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out";
        assert_eq!(
            reported(cargo),
            Some(Count {
                passed: 12,
                failed: 3
            })
        );
        assert_eq!(
            reported("41 passed, 2 failed"),
            Some(Count {
                passed: 41,
                failed: 2
            })
        );
        assert_eq!(reported("===== 41 passed in 3 s ====="), None);
        assert_eq!(reported("the link failed"), None);
    }
}
