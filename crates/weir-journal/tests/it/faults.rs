//! Faults at every operation: the first failure stops the journal, interruptions and short counts do not.

use weir_journal::fs::{Fault, Step};
use weir_journal::{AppendError, Durability, Journal, Options, Upkeep};

use crate::kit::{contents, meta, open, payload, small, twin};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Appends and settles; returns what was acknowledged and not settled, and the first refusal.
fn work(journal: &Journal, records: u64) -> (Vec<(u64, Vec<u8>)>, Option<AppendError>) {
    let mut open_work = Vec::new();
    for n in 0..records {
        match journal.append_blocking(meta(0), &payload(n, 700)) {
            Ok(seq) => open_work.push((seq, payload(n, 700))),
            Err(e) => return (open_work, Some(e)),
        }
        if n % 2 == 1 {
            journal.settle(open_work.remove(0).0);
        }
    }
    (open_work, None)
}

fn operations(level: Durability) -> u64 {
    let fs = twin();
    let journal = open(&fs, &small(level)).unwrap();
    let before = fs.operations();
    work(&journal, 30);
    fs.operations() - before
}

#[test]
fn after_any_failed_write_sync_or_rename_nothing_is_acknowledged_and_nothing_was_lost() {
    for level in [Durability::Buffered, Durability::Data] {
        for code in [EIO, ENOSPC] {
            for nth in 1..=operations(level) {
                let fs = twin();
                let journal = open(&fs, &small(level)).unwrap();
                fs.fail_at(nth, Fault::Errno(code));
                let (kept, refused) = work(&journal, 30);
                if let Some(AppendError::Poisoned(_)) = refused {
                    for _ in 0..3 {
                        let again = journal.append_blocking(meta(0), b"no").unwrap_err();
                        assert!(matches!(again, AppendError::Poisoned(_)), "{again}");
                    }
                    assert!(journal.sync().is_err());
                    assert!(journal.stats().poisoned.is_some());
                }
                let fs = fs.kill();
                drop(journal);
                let journal = open(&fs, &small(level)).unwrap();
                let found = contents(&journal);
                for record in &kept {
                    assert!(
                        found.contains(record),
                        "{level:?} {code} operation {nth} lost {}",
                        record.0
                    );
                }
            }
        }
    }
}

#[test]
fn a_failure_at_any_step_that_must_not_fail_stops_the_journal() {
    let steps = [
        (Durability::Data, Step::Write),
        (Durability::Data, Step::Commit),
        (Durability::Data, Step::SpareFile),
        (Durability::Data, Step::SpareName),
        (Durability::Data, Step::SpareDir),
        (Durability::Data, Step::Stamp),
        (Durability::Buffered, Step::Flush),
    ];
    for (level, step) in steps {
        let fs = twin();
        let journal = open(&fs, &small(level)).unwrap();
        fs.fail_step(step, 1, Fault::Errno(EIO));
        for n in 0..400 {
            if let Ok(seq) = journal.append_blocking(meta(0), &payload(n, 700)) {
                // Ten stay open, so that new segments are made and old ones used again.
                journal.settle(seq.saturating_sub(10));
            }
        }
        let poison = journal
            .poisoned()
            .unwrap_or_else(|| panic!("{step} failed and nothing stopped"));
        assert_eq!(poison.step, step);
        assert!(
            matches!(journal.append_blocking(meta(0), b"no"), Err(AppendError::Poisoned(p)) if p == poison)
        );
    }
}

#[test]
fn an_interruption_or_a_short_count_at_any_operation_changes_nothing() {
    for fault in [Fault::Interrupted, Fault::Short] {
        for nth in 1..=operations(Durability::Data) {
            let fs = twin();
            let journal = open(&fs, &small(Durability::Data)).unwrap();
            fs.fail_at(nth, fault);
            let (kept, refused) = work(&journal, 30);
            if fault == Fault::Short {
                assert_eq!(refused, None, "operation {nth}");
            }
            let fs = fs.lose_power(nth);
            drop(journal);
            let found = contents(&open(&fs, &small(Durability::Data)).unwrap());
            for record in &kept {
                assert!(found.contains(record), "operation {nth} lost {}", record.0);
            }
        }
    }
}

#[test]
fn a_failed_sync_is_told_and_does_not_come_true_later() {
    let fs = twin();
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    fs.fail_step(Step::Commit, 1, Fault::Errno(EIO));
    let told = journal
        .append_blocking(meta(0), b"unknown")
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("syncing a batch") && told.contains("restart"),
        "{told}"
    );
    // The kernel forgot the page was dirty. Whatever the next process shows must from then on be durable.
    let fs = fs.kill();
    drop(journal);
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    let shown = contents(&journal);
    let next = journal.append_blocking(meta(0), b"next").unwrap();
    let fs = fs.lose_power(0);
    drop(journal);
    let mut wanted = shown;
    wanted.push((next, b"next".to_vec()));
    assert_eq!(contents(&open(&fs, &small(Durability::Data)).unwrap()), wanted);
}

#[test]
fn followers_never_hang_when_their_leader_fails() {
    for code in [EIO, ENOSPC] {
        for nth in 1..12 {
            let fs = twin();
            let options = Options {
                upkeep: Upkeep::Threads,
                ..small(Durability::Data)
            };
            let journal = open(&fs, &options).unwrap();
            fs.fail_step(Step::Commit, nth, Fault::Errno(code));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    let journal = journal.clone();
                    scope.spawn(move || {
                        while let Ok(seq) = journal.append_blocking(meta(0), &[3; 300]) {
                            journal.settle(seq);
                        }
                        assert!(journal.poisoned().is_some());
                        let awaited = crate::promises::wait(journal.append(meta(0), b"no"));
                        assert!(matches!(awaited, Err(AppendError::Poisoned(_))));
                    });
                }
            });
        }
    }
}
