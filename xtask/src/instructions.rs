//! `cargo xtask instructions`: how many instructions weir-proto takes, counted by callgrind and held to a file.
//!
//! A scenario runs twice under valgrind, once with its rounds and once with its preparation only; the difference,
//! divided by the rounds, is its count. Wall clock and load do not matter; another compiler or C library may, and then
//! `--update` writes the file anew. Invariant: a count over the file's by more than 3% fails.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{process, setup};

const FILE: &str = "crates/weir-sim/instructions.txt";
const HEADER: &str =
    "# scenario, instructions a round, records a round; written by `cargo xtask instructions --update`\n";
/// Rounds whose cost is averaged; the program prepares as many worlds.
const ROUNDS: u64 = 4;
/// A count may be over its line by this much, in thousandths.
const ALLOWED: u64 = 30;

/// Options of `cargo xtask instructions`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Write the counts into the file instead of comparing.
    #[arg(long)]
    update: bool,
}

/// One scenario's cost.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cost {
    name: String,
    instructions: u64,
    records: u64,
}

/// True if no scenario costs more than its line allows.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    setup::valgrind(root)?;
    let program = build(root)?;
    let names = output(&mut process::command(root, &program, &[]))?;
    let costs: Vec<Cost> = names
        .lines()
        .map(|name| cost(root, &program, name))
        .collect::<Result<_>>()?;
    if options.update {
        let mut text = HEADER.to_owned();
        for cost in &costs {
            writeln!(text, "{} {} {}", cost.name, cost.instructions, cost.records)?;
        }
        fs::write(root.join(FILE), text).with_context(|| format!("cannot write {FILE}"))?;
    }
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let known = parse(&text)?;
    let verdicts: Vec<bool> = costs.iter().map(|cost| judge(cost, &known)).collect();
    let gone = known
        .iter()
        .filter(|line| costs.iter().all(|cost| cost.name != line.name));
    let gone = gone
        .inspect(|line| println!("{}: in {FILE}, but no longer counted", line.name))
        .count();
    Ok(gone == 0 && verdicts.iter().all(|ok| *ok))
}

fn build(root: &Path) -> Result<PathBuf> {
    let build = [
        "build",
        "--release",
        "--quiet",
        "--package",
        "weir-sim",
        "--example",
        "instructions",
    ];
    ensure!(
        process::run(&mut process::cargo(root, &build))?,
        "the scenarios do not build"
    );
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(root.join(target).join("release/examples/instructions"))
}

fn cost(root: &Path, program: &Path, name: &str) -> Result<Cost> {
    let (with, records) = counted(root, program, name, ROUNDS)?;
    let (without, _) = counted(root, program, name, 0)?;
    ensure!(with > without && records > 0, "scenario {name} did nothing");
    Ok(Cost {
        name: name.to_owned(),
        instructions: (with - without) / ROUNDS,
        records,
    })
}

/// The instructions of a run and the records of its rounds. The environment is empty: its size moves the stack.
fn counted(root: &Path, program: &Path, name: &str, rounds: u64) -> Result<(u64, u64)> {
    let out = program.with_file_name(format!("callgrind.{name}"));
    let mut valgrind = process::command(root, "valgrind", &["--quiet", "--tool=callgrind"]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    valgrind.env_clear().env("PATH", path);
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(program).arg(name).arg(rounds.to_string());
    let records = output(&mut valgrind)?
        .trim()
        .parse()
        .context("the scenario printed no count")?;
    let profile = fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    Ok((total(&profile).context("callgrind wrote no totals")?, records))
}

/// The instructions that a callgrind profile sums up.
fn total(profile: &str) -> Option<u64> {
    let line = profile.lines().find_map(|line| line.strip_prefix("totals: "))?;
    line.trim().parse().ok()
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot start the scenarios")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, errors.trim());
    String::from_utf8(output.stdout).context("the scenarios printed no text")
}

fn parse(text: &str) -> Result<Vec<Cost>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            line_of(line).with_context(|| format!("{FILE}: {line:?} is no `name instructions records`"))
        })
        .collect()
}

fn line_of(line: &str) -> Option<Cost> {
    let mut words = line.split(' ');
    Some(Cost {
        name: words.next()?.to_owned(),
        instructions: words.next()?.parse().ok()?,
        records: words.next()?.parse().ok()?,
    })
}

/// Prints a scenario's line; true if it costs no more than allowed.
fn judge(cost: &Cost, known: &[Cost]) -> bool {
    let Cost {
        name,
        instructions,
        records,
    } = cost;
    let each = instructions / records;
    let Some(line) = known.iter().find(|line| line.name == *name) else {
        println!(
            "{name:<10} {instructions:>9} instructions, {each:>6} a record  not in {FILE}: run with --update"
        );
        return false;
    };
    let permille = instructions.saturating_mul(1000) / line.instructions.max(1);
    let verdict = match permille {
        _ if *records != line.records => "FAIL: other records",
        over if over > 1000 + ALLOWED => "FAIL",
        under if under < 1000 - ALLOWED => "ok, and less: keep it with --update",
        _ => "ok",
    };
    let percent = f64::from(u32::try_from(permille).unwrap_or(u32::MAX)) / 10.0;
    println!(
        "{name:<10} {instructions:>9} instructions, {each:>6} a record  {percent:>6.1}% of {}  {verdict}",
        line.instructions
    );
    !verdict.starts_with("FAIL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(instructions: u64, records: u64) -> Cost {
        Cost {
            name: "stage".to_owned(),
            instructions,
            records,
        }
    }

    #[test]
    fn three_percent_more_pass_and_four_fail() {
        let known = [cost(100_000, 10)];
        assert!(judge(&cost(103_000, 10), &known));
        assert!(!judge(&cost(104_000, 10), &known));
        assert!(judge(&cost(50_000, 10), &known));
        assert!(!judge(&cost(100_000, 9), &known), "it did something else");
        assert!(!judge(&cost(100_000, 10), &[]), "it is not known");
    }

    #[test]
    fn a_profile_and_the_file_are_read_and_anything_else_is_refused() {
        assert_eq!(total("events: Ir\ntotals: 1234\n"), Some(1234));
        assert_eq!(total("events: Ir\n"), None);
        assert_eq!(parse("# words\nstage 5 2\n").unwrap(), [cost(5, 2)]);
        assert!(parse("stage five 2\n").is_err());
    }
}
