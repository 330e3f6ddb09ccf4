//! `weir bench journal`: the hop journal beside its peers, the bare write, and the journal that it replaces.
//!
//! One op is an append of record i, as durable as the cell asks, and the settle of record i - 32. Every cell runs
//! each arm for the same time on a fresh folder; arms are interleaved and their order turns from one repetition to
//! the next, so that what else happens on the machine meets all of them.

mod arm;
mod burner;
mod floor;
mod measure;
mod naive;
mod ours;
mod page;
#[cfg(feature = "peers")]
mod peers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;

use self::arm::Kind;
use self::burner::Burners;
use self::measure::{Cell, Row, measure};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Args {
    /// The journals to compare.
    #[arg(long, value_delimiter = ',', default_value = "weir,naive,estimate,floor")]
    arms: Vec<Kind>,
    /// Threads that append.
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    writers: Vec<usize>,
    /// Bytes of a record.
    #[arg(long, value_delimiter = ',', default_value = "256,16384")]
    size: Vec<usize>,
    /// What an acknowledgement promises.
    #[arg(long, value_delimiter = ',', default_value = "data")]
    durability: Vec<Level>,
    /// Empty files beside the records.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pad: Vec<usize>,
    /// Take the empty files away again and measure once more.
    #[arg(long)]
    unpad: bool,
    /// Folders to work in, such as one on a disk and one in memory.
    #[arg(long, value_delimiter = ',', default_value = ".")]
    root: Vec<PathBuf>,
    /// Keep every core busy beside it.
    #[arg(long)]
    burner: bool,
    /// Repetitions; medians are printed.
    #[arg(long, default_value_t = 3)]
    reps: u32,
    /// Seconds for each arm of a cell.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Write every row to this file as JSON lines.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a page with the curves to this file.
    #[arg(long)]
    html: Option<PathBuf>,
}

/// What an append promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Level {
    /// Survives the process.
    Buffered,
    /// Survives a loss of power.
    Data,
}

/// Runs the bench.
///
/// # Errors
/// When an arm cannot be opened or written to, or a report cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.seconds > 0.0 && args.reps > 0,
        "seconds and reps must be above zero"
    );
    let burners = args.burner.then(Burners::start).transpose()?;
    let mut rows = Vec::new();
    for cell in cells(args) {
        for rep in 0..args.reps {
            for kind in turned(&args.arms, rep) {
                rows.extend(one(args, &cell, kind, rep)?);
            }
        }
    }
    drop(burners);
    if let Some(file) = &args.json {
        let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
        fs::write(file, lines?.join("\n") + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    let told = page::medians(&rows);
    if let Some(file) = &args.html {
        fs::write(file, page::html(&told)).with_context(|| format!("writing {}", file.display()))?;
    }
    page::print(&told, &mut std::io::stdout().lock())
}

fn cells(args: &Args) -> Vec<Cell> {
    let mut cells = Vec::new();
    for root in &args.root {
        for durability in &args.durability {
            for size in &args.size {
                for writers in &args.writers {
                    for pad in &args.pad {
                        cells.push(Cell {
                            root: root.clone(),
                            durability: *durability,
                            size: *size,
                            writers: *writers,
                            pad: *pad,
                            time: Duration::from_secs_f64(args.seconds),
                        });
                    }
                }
            }
        }
    }
    cells
}

/// The arms, beginning with another one in each repetition.
fn turned(arms: &[Kind], rep: u32) -> Vec<Kind> {
    let mut arms = arms.to_vec();
    let by = usize::try_from(rep).unwrap_or(0) % arms.len().max(1);
    arms.rotate_left(by);
    arms
}

/// Measures one arm of one cell in a fresh folder.
fn one(args: &Args, cell: &Cell, kind: Kind, rep: u32) -> anyhow::Result<Vec<Row>> {
    let dir = tempfile::Builder::new()
        .prefix("weir-bench-journal-")
        .tempdir_in(&cell.root);
    let dir = dir.with_context(|| format!("making a folder in {}", cell.root.display()))?;
    let arm = kind
        .open(dir.path(), cell)
        .with_context(|| format!("opening {kind:?}"))?;
    let beside = arm.folder();
    pad(&beside, cell.pad)?;
    let mut rows = vec![measure(&*arm, kind, cell, rep, false)?];
    if args.unpad && cell.pad > 0 {
        unpad(&beside, cell.pad)?;
        rows.push(measure(&*arm, kind, cell, rep, true)?);
    }
    Ok(rows)
}

fn pad_name(n: usize) -> String {
    format!("pad-{n:06}")
}

fn pad(folder: &Path, files: usize) -> anyhow::Result<()> {
    for n in 0..files {
        fs::File::create(folder.join(pad_name(n)))?;
    }
    Ok(())
}

fn unpad(folder: &Path, files: usize) -> anyhow::Result<()> {
    for n in 0..files {
        fs::remove_file(folder.join(pad_name(n)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_runs_every_cell_and_the_page_holds_the_curve() {
        let dir = tempfile::tempdir().unwrap();
        let (json, html) = (dir.path().join("rows.json"), dir.path().join("page.html"));
        let args = Args::parse_from([
            "journal",
            "--pad=0,30",
            "--unpad",
            "--reps=2",
            "--seconds=0.02",
            "--writers=1,2",
            "--size=256",
            "--durability=buffered,data",
            &format!("--root={}", dir.path().display()),
            &format!("--json={}", json.display()),
            &format!("--html={}", html.display()),
        ]);
        run(&args).unwrap();
        let rows = fs::read_to_string(json).unwrap();
        // 4 arms, 2 levels, 2 writer counts, 2 repetitions; unpadded once more.
        assert_eq!(rows.lines().count(), 4 * 2 * 2 * 2 * 3);
        let first: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
        for field in [
            "arm",
            "root",
            "writers",
            "size",
            "durability",
            "pad",
            "rep",
            "ops_per_s",
            "p50_us",
            "p99_us",
            "max_us",
            "cpu_us_per_op",
            "disk_mib",
        ] {
            assert!(!first[field].is_null(), "{field}");
        }
        assert!(
            first["p50_us"].as_f64().unwrap() > 0.1 && first["max_us"].as_f64() >= first["p99_us"].as_f64()
        );
        assert!(fs::read_to_string(html).unwrap().contains("<svg"));
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "only the reports are left"
        );
    }
}
