//! `weir journal`: the census of a hop journal and its resolution, its health, its repair.
//!
//! `ls`, `stats`, `check` and `dump` only read and work beside the agent that holds the journal; `repair`,
//! `settle` and `drop` need it for themselves and are told who holds it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::AlreadySaid;
use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use weir_journal::{Inspection, Journal, OpenError, OpenRecord, Salvage, Tail, inspect, repair, salvage};

/// Look at and resolve what a hop journal holds.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON value.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the open records, each with the command that settles it.
    Ls {
        /// The journal's folder.
        root: PathBuf,
    },
    /// Sizes, segments and counts.
    Stats {
        /// The journal's folder.
        root: PathBuf,
    },
    /// Verify every byte; exit 1 and tell what could be saved when something is damaged.
    Check {
        /// The journal's folder.
        root: PathBuf,
    },
    /// Keep what verifies in fresh segments and put the damaged ones aside.
    Repair {
        /// The journal's folder.
        root: PathBuf,
        /// Do it; without this, only what would be saved is told.
        #[arg(long)]
        yes: bool,
    },
    /// Settle records: their work is done.
    Settle {
        /// The journal's folder.
        root: PathBuf,
        /// The records.
        #[arg(required = true)]
        seq: Vec<u64>,
    },
    /// Give up open work: all records of a request, or all.
    Drop {
        /// The journal's folder.
        root: PathBuf,
        /// The request, as `ls` prints it.
        #[arg(long, value_parser = request, required_unless_present = "all", conflicts_with = "all")]
        request: Option<u128>,
        /// Everything that is open.
        #[arg(long)]
        all: bool,
    },
    /// Write the payload of a record to the standard output.
    Dump {
        /// The journal's folder.
        root: PathBuf,
        /// The record.
        seq: u64,
    },
}

fn request(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|e| format!("{text} is no request id in hexadecimal: {e}"))
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    match &args.command {
        Command::Ls { root } => ls(out, root, args.json)?,
        Command::Stats { root } => stats(out, root, args.json)?,
        Command::Check { root } => check(out, root, args.json)?,
        Command::Repair { root, yes } => repair_root(out, root, *yes, args.json)?,
        Command::Settle { root, seq } => settle(out, root, args.json, |record| seq.contains(&record.seq))?,
        Command::Drop { root, request, all } => {
            settle(out, root, args.json, |record| {
                *all || Some(record.meta.request) == *request
            })?;
        }
        Command::Dump { root, seq } => dump(out, root, *seq, args.json)?,
    }
    Ok(())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An age in the largest unit that leaves it above one.
fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn resolve(root: &Path, seq: u64) -> String {
    format!("weir journal settle {} {seq}", root.display())
}

fn record_json(root: &Path, record: &OpenRecord) -> Value {
    json!({
        "seq": record.seq,
        "request": format!("{:032x}", record.meta.request),
        "step": record.meta.step,
        "age_ms": now_ms().saturating_sub(record.at_ms),
        "bytes": record.len,
        "resolve": resolve(root, record.seq),
    })
}

fn ls(out: &mut dyn Write, root: &Path, as_json: bool) -> anyhow::Result<()> {
    let seen = inspect(root)?;
    let open = seen.open_records();
    if as_json {
        let rows: Vec<Value> = open.iter().map(|record| record_json(root, record)).collect();
        return Ok(writeln!(out, "{}", Value::from(rows))?);
    }
    if open.is_empty() {
        return Ok(writeln!(out, "no open work in {}", root.display())?);
    }
    writeln!(
        out,
        "{:>10}  {:<32}  {:>8}  {:>8}  {:>10}  settle with",
        "seq", "request", "step", "age", "bytes"
    )?;
    for record in &open {
        let (seq, meta) = (record.seq, record.meta);
        let age = age(now_ms().saturating_sub(record.at_ms));
        let command = resolve(root, seq);
        writeln!(
            out,
            "{seq:>10}  {:032x}  {:>8}  {age:>8}  {:>10}  {command}",
            meta.request, meta.step, record.len
        )?;
    }
    Ok(())
}

fn tail_text(tail: Tail) -> String {
    match tail {
        Tail::Sealed => "closed".to_owned(),
        Tail::Open => "not closed: in use, or ended by a crash".to_owned(),
        Tail::OneBit { segment, offset, bit } => {
            format!(
                "one bit (bit {bit} of segment {segment}, batch at {offset}) is flipped; opening heals it"
            )
        }
        Tail::Torn {
            segment,
            offset,
            later_batches,
        } => format!(
            "a write that was never acknowledged as durable at {offset} of segment {segment}, {later_batches} later batches with it"
        ),
    }
}

fn stats_json(seen: &Inspection) -> Value {
    let segments: Vec<Value> = seen
        .segments
        .iter()
        .map(|s| {
            let used_as = format!("{:?}", s.used_as).to_lowercase();
            json!({ "file": s.file, "id": s.id, "used_as": used_as, "end": s.end, "open": s.open_records })
        })
        .collect();
    json!({
        "journal": format!("{:032x}", seen.journal),
        "durability": seen.durability,
        "capacity": seen.capacity,
        "disk_bytes": seen.segments.len() as u64 * seen.segment_bytes,
        "segment_bytes": seen.segment_bytes,
        "open_records": seen.open_records().len(),
        "open_bytes": seen.open_bytes(),
        "batches": seen.batches,
        "end": tail_text(seen.tail),
        "segments": segments,
    })
}

fn stats(out: &mut dyn Write, root: &Path, as_json: bool) -> anyhow::Result<()> {
    let seen = inspect(root)?;
    if as_json {
        return Ok(writeln!(out, "{}", stats_json(&seen))?);
    }
    let disk = seen.segments.len() as u64 * seen.segment_bytes;
    writeln!(out, "journal    {:032x}", seen.journal)?;
    writeln!(out, "promises   {:?}", seen.durability)?;
    writeln!(
        out,
        "open       {} records, {} bytes",
        seen.open_records().len(),
        seen.open_bytes()
    )?;
    writeln!(
        out,
        "on disk    {disk} bytes of {} allowed, {} a segment",
        seen.capacity, seen.segment_bytes
    )?;
    writeln!(out, "log ends   {}", tail_text(seen.tail))?;
    for s in &seen.segments {
        let used_as = format!("{:?}", s.used_as).to_lowercase();
        writeln!(
            out,
            "  {}  id {:>6}  {used_as:<5}  {:>9} bytes  {:>6} open",
            s.file, s.id, s.end, s.open_records
        )?;
    }
    if let (n, Some(one)) = &seen.foreign {
        writeln!(
            out,
            "{n} names are not the journal's and are left alone, such as {}",
            one.display()
        )?;
    }
    Ok(())
}

fn salvage_json(told: &Salvage) -> Value {
    json!({
        "open_records": told.open_records,
        "batches": told.batches,
        "healed_batches": told.healed,
        "lost_batches": told.lost_batches,
        "lost_files": told.lost_files,
        "kept": told.kept,
    })
}

fn salvage_text(told: &Salvage) -> String {
    format!(
        "{} open records in {} whole batches ({} healed); {} batches and {} files are lost",
        told.open_records, told.batches, told.healed, told.lost_batches, told.lost_files
    )
}

fn check(out: &mut dyn Write, root: &Path, as_json: bool) -> anyhow::Result<()> {
    let damage = match inspect(root) {
        Ok(seen) if as_json => {
            writeln!(
                out,
                "{}",
                json!({ "sound": true, "end": tail_text(seen.tail), "batches": seen.batches })
            )?;
            return Ok(());
        }
        Ok(seen) => {
            let (batches, open) = (seen.batches, seen.open_records().len());
            writeln!(
                out,
                "sound: {batches} batches, {open} open records; {}",
                tail_text(seen.tail)
            )?;
            return Ok(());
        }
        Err(OpenError::Corrupt { damage, .. }) => damage,
        Err(other) => return Err(other.into()),
    };
    let told = salvage(root)?;
    if as_json {
        let value =
            json!({ "sound": false, "damage": damage.to_string(), "can_be_saved": salvage_json(&told) });
        writeln!(out, "{value}")?;
    } else {
        writeln!(out, "damaged: {damage}")?;
        writeln!(out, "can be saved: {}", salvage_text(&told))?;
        writeln!(out, "do so with: weir journal repair {} --yes", root.display())?;
    }
    Err(AlreadySaid(1).into())
}

fn repair_root(out: &mut dyn Write, root: &Path, yes: bool, as_json: bool) -> anyhow::Result<()> {
    if inspect(root).is_ok() {
        bail!("{} is sound; there is nothing to repair", root.display());
    }
    let told = if yes { repair(root)? } else { salvage(root)? };
    if as_json {
        return Ok(writeln!(out, "{}", salvage_json(&told))?);
    }
    match &told.kept {
        Some(kept) => writeln!(
            out,
            "saved: {}; the damaged segments are in {}",
            salvage_text(&told),
            kept.display()
        )?,
        None => writeln!(out, "would save: {}; do so with --yes", salvage_text(&told))?,
    }
    Ok(())
}

fn settle(
    out: &mut dyn Write,
    root: &Path,
    as_json: bool,
    chosen: impl Fn(&OpenRecord) -> bool,
) -> anyhow::Result<()> {
    let options = inspect(root)?.options();
    let journal = Journal::open(root, &options)?;
    let open = journal.open_records();
    let mut settled = Vec::new();
    for record in open.iter().filter(|record| chosen(record)) {
        if journal.settle(record.seq) {
            settled.push(record.seq);
        }
    }
    journal.sync().context("the settle marks are not durable")?;
    if settled.is_empty() {
        bail!(
            "no open record of {} was named; `weir journal ls {}` lists them",
            root.display(),
            root.display()
        );
    }
    let left = open.len() - settled.len();
    if as_json {
        return Ok(writeln!(out, "{}", json!({ "settled": settled, "left": left }))?);
    }
    Ok(writeln!(out, "settled {}, {left} left open", settled.len())?)
}

fn dump(out: &mut dyn Write, root: &Path, seq: u64, as_json: bool) -> anyhow::Result<()> {
    let record = inspect(root)?.read(seq)?;
    if !as_json {
        return Ok(out.write_all(&record.payload)?);
    }
    let hex: String = record.payload.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut value = record_json(root, &record.entry);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("payload_hex".to_owned(), hex.into());
    }
    Ok(writeln!(out, "{value}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(run: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> String {
        let mut out = Vec::new();
        run(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn journal() -> (tempfile::TempDir, Vec<u64>) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), &weir_journal::Options::default()).unwrap();
        let append = |step| {
            let meta = weir_journal::Meta { request: 0xABC, step };
            journal
                .append_blocking(meta, format!("hop {step}").as_bytes())
                .unwrap()
        };
        let seqs = (0..3).map(append).collect();
        drop(journal);
        (dir, seqs)
    }

    #[test]
    fn the_census_names_each_record_and_its_command_until_it_is_settled() {
        let (dir, seqs) = journal();
        let root = dir.path();
        let listed = text(|out| ls(out, root, false));
        for seq in &seqs {
            assert!(
                listed.contains(&format!("weir journal settle {} {seq}", root.display())),
                "{listed}"
            );
        }
        assert!(listed.contains(&format!("{:032x}", 0xABC)));
        let rows: Value = serde_json::from_str(&text(|out| ls(out, root, true))).unwrap();
        assert_eq!(rows[2]["step"], 2);
        let told = text(|out| settle(out, root, false, |record| record.seq == seqs[0]));
        assert_eq!(told, "settled 1, 2 left open\n");
        let told = text(|out| settle(out, root, true, |record| record.meta.request == 0xABC));
        assert!(told.contains("\"left\":0"), "{told}");
        assert!(text(|out| ls(out, root, false)).starts_with("no open work"));
        assert!(settle(&mut Vec::new(), root, false, |_| true).is_err());
    }

    #[test]
    fn a_payload_comes_out_as_it_went_in() {
        let (dir, seqs) = journal();
        assert_eq!(text(|out| dump(out, dir.path(), seqs[1], false)), "hop 1");
        assert!(text(|out| dump(out, dir.path(), seqs[1], true)).contains("686f702031"));
        assert!(dump(&mut Vec::new(), dir.path(), 99, false).is_err());
    }

    #[test]
    fn damage_is_told_with_what_can_be_saved_and_repaired_without_deleting_anything() {
        let (dir, _) = journal();
        let root = dir.path();
        assert!(text(|out| check(out, root, false)).starts_with("sound"));
        assert!(repair_root(&mut Vec::new(), root, true, false).is_err());
        let file = root.join("segments/00000001.seg");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[8192 + 512 + 90] ^= 0xFF;
        std::fs::write(&file, &bytes).unwrap();
        let told = text(|out| {
            let damaged = check(out, root, false).unwrap_err();
            assert_eq!(damaged.downcast_ref::<AlreadySaid>().unwrap().0, 1);
            Ok(())
        });
        assert!(
            told.contains("offset 8704") && told.contains("can be saved: 2 open records"),
            "{told}"
        );
        assert!(text(|out| repair_root(out, root, false, false)).starts_with("would save: 2"));
        assert!(text(|out| repair_root(out, root, true, false)).starts_with("saved: 2"));
        assert_eq!(
            std::fs::read(root.join("segments.damaged-1/00000001.seg")).unwrap(),
            bytes
        );
        assert_eq!(inspect(root).unwrap().open_records().len(), 2);
        assert!(text(|out| stats(out, root, false)).contains("open       2 records"));
    }

    #[test]
    fn ages_read_like_ages() {
        assert_eq!(age(500), "500 ms");
        assert_eq!(age(61_000), "61 s");
        assert_eq!(age(7_100_000), "118 min");
        assert_eq!(age(86_400_000 * 3), "3 d");
    }
}
