//! One measurement: writers in a closed loop on one arm, and what they saw.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::Level;
use super::arm::{Arm, Kind, Writer};

/// How many records stay open behind the newest.
const OPEN: u64 = 32;

/// One combination of what is varied.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) root: PathBuf,
    pub(crate) durability: Level,
    pub(crate) size: usize,
    pub(crate) writers: usize,
    pub(crate) pad: usize,
    pub(crate) time: Duration,
}

/// One measured run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) arm: String,
    pub(crate) root: String,
    pub(crate) writers: usize,
    pub(crate) size: usize,
    pub(crate) durability: &'static str,
    pub(crate) pad: usize,
    /// The padding had been there and was taken away.
    pub(crate) unpadded: bool,
    pub(crate) rep: u32,
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) cpu_us_per_op: f64,
    pub(crate) disk_mib: f64,
}

/// Runs one arm for the cell's time.
pub(crate) fn measure(
    arm: &dyn Arm,
    kind: Kind,
    cell: &Cell,
    rep: u32,
    unpadded: bool,
) -> anyhow::Result<Row> {
    let barrier = Barrier::new(cell.writers + 1);
    let start = &barrier;
    let (results, cpu, took) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cell.writers)
            .map(|index| scope.spawn(move || write(arm, index, unpadded, cell, start)))
            .collect();
        start.wait();
        let (begun, cpu) = (Instant::now(), cpu_time());
        let results: Vec<_> = threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        (results, cpu_time().saturating_sub(cpu), begun.elapsed())
    });
    let mut all = latencies()?;
    for result in results {
        let seen = result.map_err(|_| anyhow::anyhow!("a writer panicked"))?;
        all.add(seen.with_context(|| format!("writing to {}", kind.name()))?)?;
    }
    Ok(row(kind, cell, rep, unpadded, &all, cpu, took, arm))
}

#[expect(clippy::too_many_arguments, reason = "a row is the sum of what was measured")]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn row(
    kind: Kind,
    cell: &Cell,
    rep: u32,
    unpadded: bool,
    seen: &Histogram<u64>,
    cpu: Duration,
    took: Duration,
    arm: &dyn Arm,
) -> Row {
    let us = |nanos: u64| nanos as f64 / 1000.0;
    Row {
        arm: kind.name(),
        root: cell.root.display().to_string(),
        writers: cell.writers,
        size: cell.size,
        durability: if cell.durability == Level::Data {
            "data"
        } else {
            "buffered"
        },
        pad: if unpadded { 0 } else { cell.pad },
        unpadded,
        rep,
        ops_per_s: seen.len() as f64 / took.as_secs_f64(),
        p50_us: us(seen.value_at_quantile(0.5)),
        p99_us: us(seen.value_at_quantile(0.99)),
        p999_us: us(seen.value_at_quantile(0.999)),
        max_us: us(seen.max()),
        cpu_us_per_op: cpu.as_secs_f64() * 1e6 / (seen.len().max(1)) as f64,
        disk_mib: disk_bytes(&arm.folder()) as f64 / f64::from(1 << 20),
    }
}

/// One writer's closed loop. The record's latency is that of its append.
fn write(
    arm: &dyn Arm,
    index: usize,
    again: bool,
    cell: &Cell,
    start: &Barrier,
) -> anyhow::Result<Histogram<u64>> {
    let opened = arm.writer(index);
    let payload = noise(index as u64, cell.size);
    let mut seen = latencies()?;
    start.wait();
    let mut writer = opened?;
    let until = Instant::now() + cell.time;
    // A second run on the same arm goes on with other numbers.
    let mut n = if again { 1 << 40 } else { 0 };
    let first = n;
    loop {
        let begun = Instant::now();
        if begun >= until {
            return Ok(seen);
        }
        step(&mut *writer, n, first, &payload)?;
        seen.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        n += 1;
    }
}

/// Nanoseconds up to a minute.
fn latencies() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

fn step(writer: &mut dyn Writer, n: u64, first: u64, payload: &[u8]) -> anyhow::Result<()> {
    writer.append(n, payload)?;
    if n >= first + OPEN {
        writer.settle(n - OPEN)
    } else {
        Ok(())
    }
}

/// Bytes that no compressor makes smaller.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Bytes on the disk of the files in a folder, subfolders included.
fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
