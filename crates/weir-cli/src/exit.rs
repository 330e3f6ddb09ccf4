//! How a command ends: its exit code and at most one line on stderr.

use std::process::ExitCode;

/// The command line or the configuration is wrong: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the caller: names what is wrong and what to do.
pub(crate) fn usage(what: impl std::fmt::Display) -> anyhow::Error {
    Usage(what.to_string()).into()
}

/// The exit code of a command that has run.
#[expect(clippy::print_stderr, reason = "the last line of a command that failed")]
pub(crate) fn code_of(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("weir: {error:#}");
    if error.is::<Usage>() {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}
