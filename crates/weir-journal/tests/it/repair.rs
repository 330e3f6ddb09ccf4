//! Damage that stops an open, and what repair saves of it.

use weir_journal::{DamageKind, Journal, OpenError, Options, inspect, repair, salvage};

use crate::kit::{contents, meta, payload};

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        capacity: 1 << 20,
        max_record: 4000,
        ..Options::default()
    }
}

#[test]
fn a_flipped_bit_in_acknowledged_work_is_named_and_healed_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), &options()).unwrap();
    let seqs: Vec<u64> = (0..40)
        .map(|n| journal.append_blocking(meta(0), &payload(n, 900)).unwrap())
        .collect();
    drop(journal);
    let file = dir.path().join("segments/00000001.seg");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[12_345] ^= 8;
    std::fs::write(&file, &bytes).unwrap();

    let Err(OpenError::Corrupt { damage, .. }) = Journal::open(dir.path(), &options()) else {
        panic!()
    };
    assert_eq!(damage.kind, DamageKind::OneBit { bit: 12_345 * 8 + 3 });
    assert!(inspect(dir.path()).is_err());
    let before = salvage(dir.path()).unwrap();
    assert_eq!(
        (before.open_records, before.healed, before.lost_batches),
        (40, 1, 0)
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "looking changes nothing");

    let told = repair(dir.path()).unwrap();
    assert_eq!(told.open_records, 40);
    let journal = Journal::open(dir.path(), &options()).unwrap();
    let wanted: Vec<_> = seqs
        .iter()
        .zip(0..)
        .map(|(seq, n)| (*seq, payload(n, 900)))
        .collect();
    assert!(contents(&journal) == wanted);
    let next = journal.append_blocking(meta(0), b"next").unwrap();
    assert!(next > seqs[39]);
}

#[test]
fn a_lost_segment_costs_what_was_in_it_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), &options()).unwrap();
    let all: Vec<_> = (0..200)
        .map(|n| {
            (
                journal.append_blocking(meta(0), &payload(n, 900)).unwrap(),
                payload(n, 900),
            )
        })
        .collect();
    assert!(journal.stats().segments >= 4);
    drop(journal);
    std::fs::remove_file(dir.path().join("segments/00000002.seg")).unwrap();
    assert!(matches!(
        Journal::open(dir.path(), &options()),
        Err(OpenError::Corrupt { .. })
    ));
    let told = repair(dir.path()).unwrap();
    assert!(told.lost_batches > 10 && told.open_records < 200, "{told:?}");
    let found = contents(&Journal::open(dir.path(), &options()).unwrap());
    assert_eq!(found.len() as u64, told.open_records);
    assert!(found.iter().all(|record| all.contains(record)));
}

#[test]
fn a_journal_in_use_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let _journal = Journal::open(
        dir.path(),
        &Options {
            holder: "the agent".to_owned(),
            ..options()
        },
    )
    .unwrap();
    let refused = repair(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("the agent (process "), "{refused}");
}
