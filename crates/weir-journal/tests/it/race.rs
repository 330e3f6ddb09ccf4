//! Threads against each other.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, Mutex};

use weir_journal::{AppendError, Durability, Journal, Options, Upkeep};

use crate::kit::{contents, meta, open, payload, small, twin};

#[test]
fn of_two_threads_that_race_for_the_last_bytes_one_wins() {
    for round in 0..10_000 {
        let fs = twin();
        let journal = open(
            &fs,
            &Options {
                capacity: 3 * (16 << 10),
                ..small(Durability::Buffered)
            },
        )
        .unwrap();
        // Two segments take records, two records of this length each.
        for _ in 0..3 {
            journal.append_blocking(meta(0), &[0; 3900]).unwrap();
        }
        let gate = Barrier::new(2);
        let race = || {
            gate.wait();
            journal.append_blocking(meta(0), &[1; 3900])
        };
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(race);
            (race(), one.join().unwrap())
        });
        let won = [&one, &two].iter().filter(|r| r.is_ok()).count();
        let full = [&one, &two]
            .iter()
            .filter(|r| matches!(r, Err(AppendError::Full { .. })))
            .count();
        assert_eq!((won, full), (1, 1), "round {round}: {one:?} {two:?}");
        assert_eq!(journal.stats().open_records, 4);
    }
}

#[test]
fn many_writers_and_settlers_lose_and_invent_nothing() {
    for level in [Durability::Buffered, Durability::Data] {
        let fs = twin();
        let options = Options {
            upkeep: Upkeep::Threads,
            capacity: 8 * (16 << 10),
            ..small(level)
        };
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
        assert!(contents(&journal) == kept);
        assert!(journal.stats().rotations > 20);
        journal.sync().unwrap();
        let fs = fs.lose_power(7);
        drop(journal);
        let found = contents(&open(&fs, &options).unwrap());
        let seqs = |records: &[(u64, Vec<u8>)]| records.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
        assert_eq!(seqs(&found), seqs(&kept));
        assert!(found == kept);
    }
}

#[test]
fn writers_that_wait_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        upkeep: Upkeep::Threads,
        ..Options::default()
    };
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
    assert!(
        stats.batch_records.count() < 700,
        "{} batches for 800 records",
        stats.batch_records.count()
    );
}
