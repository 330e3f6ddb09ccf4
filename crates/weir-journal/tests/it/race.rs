//! Threads against each other.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, Mutex};

use weir_journal::{AppendError, Durability, Journal, Options, Upkeep};

use crate::kit::{contents, meta, open, payload, small, twin};

#[test]
fn of_two_threads_that_race_for_the_last_bytes_one_wins() {
    let fs = twin();
    let journal = open(&fs, &small(Durability::Buffered)).unwrap();
    let mut seqs = Vec::new();
    while let Ok(seq) = journal.append_blocking(meta(0), &[0; 3900]) {
        seqs.push(seq);
    }
    // Both records fit what is left, but not together.
    let free = journal.stats().free_bytes as usize;
    assert!(free < 4096);
    let len = 3900.min(free.max(512) - 112);
    for _ in 0..10_000 {
        journal.settle(seqs.pop().unwrap());
        let refill = fill_all_but_one(&journal);
        let gate = Barrier::new(2);
        let race = || {
            gate.wait();
            journal.append_blocking(meta(0), &vec![1; len])
        };
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(race);
            (race(), one.join().unwrap())
        });
        let won = [&one, &two].iter().filter(|r| r.is_ok()).count();
        let full = [&one, &two].iter().filter(|r| matches!(r, Err(AppendError::Full { .. }))).count();
        assert_eq!((won, full), (1, 1), "{one:?} {two:?}");
        seqs.extend(refill);
        seqs.extend(one.ok().or(two.ok()));
    }
}

fn fill_all_but_one(_journal: &Journal) -> Option<u64> {
    None
}

#[test]
fn many_writers_and_settlers_lose_and_invent_nothing() {
    for level in [Durability::Buffered, Durability::Data] {
        let fs = twin();
        let options = Options { upkeep: Upkeep::Threads, capacity: 8 * (16 << 10), ..small(level) };
        let journal = open(&fs, &options).unwrap();
        let kept = Mutex::new(Vec::new());
        let seen = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for writer in 0..8u64 {
                let (journal, kept, seen) = (journal.clone(), &kept, &seen);
                scope.spawn(move || {
                    for n in 0..500 {
                        let body = payload(writer * 1000 + n, 200);
                        let seq = journal.append_blocking(meta(0), &body).unwrap();
                        assert!(seen.lock().unwrap().insert(seq), "seq {seq} was given twice");
                        if n % 97 == 0 {
                            kept.lock().unwrap().push((seq, body));
                        } else {
                            journal.settle(seq);
                        }
                    }
                });
            }
        });
        let mut kept = kept.into_inner().unwrap();
        kept.sort();
        assert_eq!(contents(&journal), kept);
        assert!(journal.stats().rotations > 20);
        journal.sync().unwrap();
        let fs = fs.lose_power(7);
        drop(journal);
        assert_eq!(contents(&open(&fs, &options).unwrap()), kept);
    }
}

#[test]
fn writers_that_wait_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { upkeep: Upkeep::Threads, ..Options::default() };
    let journal = Arc::new(Journal::open(dir.path(), &options).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let journal = Arc::clone(&journal);
            scope.spawn(move || {
                for _ in 0..50 {
                    let seq = journal.append_blocking(meta(0), &[1; 256]).unwrap();
                    journal.settle(seq);
                }
            });
        }
    });
    let stats = journal.stats();
    assert_eq!(stats.appended, 800);
    assert!(stats.batch_records.count() < 700, "{} batches for 800 records", stats.batch_records.count());
}
