//! Long lives: millions of records through a journal whose open work stays small.

use std::time::Instant;

use weir_journal::{Durability, Journal, Options, Upkeep};

use crate::kit::meta;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn records() -> u64 {
    std::env::var("WEIR_JOURNAL_RECORDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(300_000)
}

#[test]
fn after_many_settled_records_the_journal_is_as_small_and_opens_as_fast_as_its_open_work() {
    let dir = tempfile::tempdir().unwrap();
    // Without threads, so that how far the upkeep has come does not depend on time.
    let options = Options {
        durability: Durability::Buffered,
        upkeep: Upkeep::Caller,
        ..Options::default()
    };
    let journal = Journal::open(dir.path(), &options).unwrap();
    let old = journal.append_blocking(meta(9), b"open from the start").unwrap();
    let mut open = std::collections::VecDeque::new();
    let (mut resident, mut rate) = (0, 0.0);
    let total = records();
    let tenth = total / 10;
    let mut started = Instant::now();
    for n in 0..total {
        open.push_back(journal.append_blocking(meta(0), &[7; 256]).unwrap());
        if open.len() > 1000 {
            journal.settle(open.pop_front().unwrap());
        }
        if n == tenth {
            resident = resident_kib();
            rate = tenth as f64 / started.elapsed().as_secs_f64();
        }
        if n == total - tenth {
            started = Instant::now();
        }
    }
    let last_rate = tenth as f64 / started.elapsed().as_secs_f64();
    let grown = resident_kib().saturating_sub(resident);
    let stats = journal.stats();
    println!(
        "{total} records: first tenth {rate:.0}/s, last tenth {last_rate:.0}/s, RSS grew {grown} KiB, {stats:?}"
    );
    assert!(grown < 16 << 10, "{grown} KiB");
    assert!(
        stats.carried >= 1 && stats.segments <= 7 && stats.disk_bytes <= 10 * (4 << 20),
        "{stats:?}"
    );
    drop(journal);
    let started = Instant::now();
    let journal = Journal::open(dir.path(), &options).unwrap();
    println!("opened in {:?}: {:?}", started.elapsed(), journal.report());
    assert_eq!(journal.stats().open_records, 1001);
    assert_eq!(journal.read(old).unwrap().payload, b"open from the start");
}
