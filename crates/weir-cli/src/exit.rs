//! How a command ends: its exit code and at most one line on stderr.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// The command line or the configuration is wrong: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

/// What is wrong has been said already, by a child process or as the command's answer: no further line.
#[derive(Debug, thiserror::Error)]
#[error("ended with code {0}")]
pub(crate) struct AlreadySaid(pub(crate) u8);

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
    if let Some(AlreadySaid(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    eprintln!("weir: {}", one_line(&format!("{error:#}")));
    if error.is::<Usage>() {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// The exit code of a command line that was not understood by `command`; help and version are no errors.
#[expect(
    clippy::print_stderr,
    reason = "the only line of a command that did not start"
)]
pub(crate) fn code_of_usage(error: &clap::Error, command: &str) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Standard output may be closed; there is nobody to tell.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprintln!("weir: a command is missing; see `{command} --help`");
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    let paragraphs = text
        .split("\n\n")
        .take_while(|paragraph| !paragraph.starts_with("Usage:"));
    let what: Vec<String> = paragraphs
        .map(one_line)
        .filter(|line| !line.starts_with("For more"))
        .collect();
    let what = what.join("; ");
    let what = what.trim_start_matches("error: ");
    eprintln!("weir: {what}; see `{command} --help`");
    ExitCode::from(2)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
