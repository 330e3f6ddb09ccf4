//! `cargo xtask show NAME`: one claim of the project, measured.
//!
//! A claim is measured on release builds, against real processes and sockets, by the acceptance suite's Python, or it
//! is a test whose counter is the figure. Invariant: the last line is `name figure bar ok`, or ends in `FAIL`, and a
//! claim that could not be measured has failed.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use crate::{process, setup, suite, test};

/// Options of `cargo xtask show`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The claim, or `all`.
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// List the claims.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone, Copy)]
enum By {
    /// `acceptance/show.py NAME`.
    Python,
    /// The same, with a binary that has the comparison peers in it.
    PythonWithPeers,
    /// A test of a package that prints `figure: N` and fails unless it is the bar.
    Counter {
        package: &'static str,
        test: &'static str,
        bar: &'static str,
    },
    /// `cargo xtask test`.
    Tests,
}

#[derive(Debug)]
struct Claim {
    name: &'static str,
    says: &'static str,
    by: By,
}

const CLAIMS: [Claim; 9] = [
    Claim {
        name: "sdk",
        says: "the OpenAI Python SDK gets the same text streamed and whole, right usage, one finish",
        by: By::Python,
    },
    Claim {
        name: "worker-killed",
        says: "a worker killed mid-stream is an error event within 1 s; before the first token another takes over",
        by: By::Python,
    },
    Claim {
        name: "client-gone",
        says: "1,000 clients that go: workers idle within 500 ms, gauges, tasks and descriptors back at base",
        by: By::Python,
    },
    Claim {
        name: "streams-2048",
        says: "2,048 streams over 4 processes of 16 workers: no error, at most 8 sockets, constant threads",
        by: By::Python,
    },
    Claim {
        name: "plane",
        says: "CPU per record, records per second and first token beside the published velo crate",
        by: By::PythonWithPeers,
    },
    Claim {
        name: "grants",
        says: "of 1,000 live slots with 11 drained, exactly 11 are visited for a grant",
        by: By::Counter {
            package: "weir-net",
            test: "eleven_drained_slots_of_a_thousand_are_eleven_visits",
            bar: "11",
        },
    },
    Claim {
        name: "slow-reader",
        says: "one reader of 100 stops: the others' gaps hold, memory is flat, it ends at its stall limit",
        by: By::Python,
    },
    Claim {
        name: "tests",
        says: "`cargo xtask test` passes",
        by: By::Tests,
    },
    Claim {
        name: "bad-input",
        says: "bad requests, frames and command lines get their status, code or line, and the next is served",
        by: By::Python,
    },
];

/// True if the claim holds.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    if options.list {
        for claim in &CLAIMS {
            println!("{:<14} {}", claim.name, claim.says);
        }
        return Ok(true);
    }
    let name = options.name.as_deref().unwrap_or_default();
    let wanted: Vec<&Claim> = CLAIMS
        .iter()
        .filter(|claim| name == "all" || name == claim.name)
        .collect();
    if wanted.is_empty() {
        bail!("there is no claim `{name}`; `cargo xtask show --list` lists them");
    }
    let mut verdicts = Vec::new();
    for claim in wanted {
        verdicts.push(measure(root, claim)?);
    }
    if verdicts.len() > 1 {
        verdicts.iter().for_each(|verdict| println!("{verdict}"));
    }
    Ok(verdicts.iter().all(|verdict| verdict.ends_with(" ok")))
}

/// Measures one claim and returns its closing line, which was printed.
fn measure(root: &Path, claim: &Claim) -> Result<String> {
    match claim.by {
        By::Python => python(root, claim, &suite::build(root)?),
        By::PythonWithPeers => python(root, claim, &suite::build_with_peers(root)?),
        By::Counter { package, test, bar } => counter(root, claim, package, test, bar),
        By::Tests => {
            let ok = test::run(root, &test::Options::default())?;
            Ok(close(claim, if ok { "0" } else { ">0" }, "0_failed", ok))
        }
    }
}

fn python(root: &Path, claim: &Claim, weir: &Path) -> Result<String> {
    let python = setup::run(root)?;
    let mut show = suite::python(root, &python, weir);
    show.args(["show.py", claim.name]);
    let (ok, last) = process::run_tailed(&mut show)?;
    if ok || last.ends_with(" FAIL") {
        return Ok(last);
    }
    Ok(close(claim, "none", "measured", false))
}

fn counter(root: &Path, claim: &Claim, package: &str, test: &str, bar: &str) -> Result<String> {
    let args = [
        "test",
        "--release",
        "--package",
        package,
        "--test",
        "it",
        test,
        "--",
        "--nocapture",
    ];
    let output = process::cargo(root, &args)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let figure = text
        .lines()
        .find_map(|line| line.trim().split("figure: ").nth(1))
        .unwrap_or("none");
    Ok(close(
        claim,
        figure,
        bar,
        output.status.success() && figure == bar,
    ))
}

fn close(claim: &Claim, figure: &str, bar: &str, ok: bool) -> String {
    let line = format!("{} {figure} {bar} {}", claim.name, if ok { "ok" } else { "FAIL" });
    println!("{line}");
    line
}
