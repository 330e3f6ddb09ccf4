//! Damage to the bytes themselves: every length, every bit.

use std::path::{Path, PathBuf};

use weir_journal::fs::FaultyFs;
use weir_journal::{DamageKind, Durability, Journal, OpenError, Options, Tail};

use crate::kit::{contents, meta, open, payload, small, twin};

const DATA_START: usize = 8192;

fn options() -> Options {
    small(Durability::Data)
}

/// A journal of a few records as a killed process leaves it, with what is open in it.
fn killed(records: u64, len: usize) -> (FaultyFs, Vec<(u64, Vec<u8>)>) {
    let fs = twin();
    let journal = open(&fs, &options()).unwrap();
    let mut open_work = Vec::new();
    for n in 0..records {
        let seq = journal.append_blocking(meta(0), &payload(n, len)).unwrap();
        open_work.push((seq, payload(n, len)));
        if n % 3 == 2 {
            let (seq, _) = open_work.remove(0);
            journal.settle(seq);
        }
    }
    journal.sync().unwrap();
    let after = fs.kill();
    drop(journal);
    (after, open_work)
}

fn segment(slot: u64) -> PathBuf {
    PathBuf::from(format!("/host/root/segments/{slot:08}.seg"))
}

/// A new disk with the content of `fs`, and `bytes` in the first segment.
fn copy_with(fs: &FaultyFs, slot: u64, bytes: &[u8]) -> FaultyFs {
    let copy = twin();
    for dir in ["/host/root", "/host/root/segments"] {
        weir_journal::fs::Fs::create_dir(&copy, Path::new(dir)).unwrap();
    }
    for path in fs.names() {
        if path.extension().is_some_and(|e| e == "seg") {
            copy.put(&path, &fs.content(&path).unwrap());
        }
    }
    copy.put(&segment(slot), bytes);
    copy
}

/// The end of the last batch: the last byte that is not zero.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b != 0).unwrap() + 1
}

fn seqs(journal: &Journal) -> Vec<u64> {
    contents(journal).into_iter().map(|(seq, _)| seq).collect()
}

#[test]
fn a_log_cut_at_any_length_opens_with_a_prefix_or_names_the_damage() {
    let (fs, all) = killed(7, 60);
    let whole = fs.content(&segment(1)).unwrap();
    let end = used(&whole);
    let mut prefixes = std::collections::BTreeSet::new();
    for len in DATA_START..=end {
        // What a torn write leaves in a file of fixed size: zeros from the cut on.
        let mut bytes = whole.clone();
        bytes[len..].fill(0);
        let copy = copy_with(&fs, 1, &bytes);
        let journal = open(&copy, &options()).unwrap_or_else(|e| panic!("cut at {len}: {e}"));
        let one_bit = whole[len..len.next_multiple_of(512)]
            .iter()
            .map(|b| b.count_ones())
            .sum::<u32>()
            == 1;
        assert_eq!(journal.report().healed.is_some(), one_bit, "cut at {len}");
        let found = contents(&journal);
        for (seq, payload) in &found {
            let original = crate::kit::payload(seq - 1, 60);
            assert_eq!(payload, &original, "cut at {len}");
        }
        prefixes.insert(found.len());
        // The log goes on behind the cut, and twice over: what was cut never comes back.
        let next = journal.append_blocking(meta(0), b"after the cut").unwrap();
        drop(journal);
        let again = open(&copy, &options()).unwrap();
        assert_eq!(seqs(&again).last(), Some(&next), "cut at {len}");
        assert_eq!(contents(&again).len(), found.len() + 1);
        if len == end {
            assert_eq!(found, all);
        }
    }
    assert!(prefixes.len() > 2, "the cuts gave several prefixes: {prefixes:?}");
}

#[test]
fn a_file_of_any_other_length_is_named() {
    let (fs, _) = killed(3, 60);
    let whole = fs.content(&segment(1)).unwrap();
    for len in (0..whole.len()).step_by(37) {
        let copy = copy_with(&fs, 1, &whole[..len]);
        let refused = open(&copy, &options()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, OpenError::Corrupt { .. }), "{len}: {refused}");
        assert!(refused.to_string().contains("00000001.seg"), "{refused}");
    }
}

#[test]
fn every_flipped_bit_is_harmless_or_named_and_no_record_is_lost_or_wrong() {
    let (fs, all) = killed(5, 40);
    let whole = fs.content(&segment(1)).unwrap();
    let end = used(&whole);
    let (mut named, mut harmless, mut healed) = (0, 0, 0);
    for bit in (0..end.div_ceil(512) * 512 * 8).filter(|bit| !(600 * 8..4096 * 8).contains(bit)) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let copy = copy_with(&fs, 1, &bytes);
        match open(&copy, &options()) {
            Ok(journal) => {
                assert_eq!(contents(&journal), all, "bit {bit}");
                healed += u64::from(journal.report().healed.is_some());
                harmless += 1;
            }
            Err(OpenError::Corrupt { damage, .. }) => {
                assert!(bit / 8 >= DATA_START, "a header has a second copy: {damage}");
                assert_eq!(damage.file, "00000001.seg");
                assert_eq!(damage.kind, DamageKind::OneBit { bit: bit as u64 }, "{damage}");
                named += 1;
            }
            Err(other) => panic!("bit {bit}: {other}"),
        }
        assert_eq!(copy.content(&segment(1)).map(|c| c.len()), Some(whole.len()));
    }
    assert!(
        named > 5 * 8 * 100 && healed > 8 * 80,
        "{named} named, {harmless} harmless, {healed} healed"
    );
}

#[test]
fn two_flipped_bits_are_rot_where_a_later_batch_vouches_and_a_torn_tail_at_the_end() {
    let (fs, _) = killed(6, 40);
    let whole = fs.content(&segment(1)).unwrap();
    let batches: Vec<usize> = (DATA_START..used(&whole))
        .step_by(512)
        .filter(|at| whole[*at..].starts_with(b"WJB1"))
        .collect();
    assert!(batches.len() >= 6);
    for (i, at) in batches.iter().enumerate() {
        for damaged in [5, 70, 100] {
            let mut bytes = whole.clone();
            bytes[at + damaged] ^= 0x41;
            let copy = copy_with(&fs, 1, &bytes);
            let before = copy.content(&segment(1));
            match open(&copy, &options()) {
                Err(OpenError::Corrupt { damage, .. }) => {
                    assert!(i + 1 < batches.len());
                    assert_eq!((damage.offset, damage.segment), (*at as u64, 1));
                    assert!(matches!(damage.kind, DamageKind::Batch { .. }), "{damage}");
                    assert_eq!(copy.content(&segment(1)), before, "nothing was touched");
                }
                Ok(journal) => {
                    assert_eq!(i + 1, batches.len(), "only the last batch can be a torn write");
                    assert!(matches!(journal.report().tail, Tail::Torn { .. } | Tail::Open));
                    for (seq, found) in contents(&journal) {
                        assert_eq!(found, payload(seq - 1, 40));
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_reused_segment_shows_nothing_of_its_earlier_life() {
    let fs = twin();
    let journal = open(&fs, &options()).unwrap();
    for n in 0..400 {
        let seq = journal.append_blocking(meta(0), &payload(n, 400)).unwrap();
        journal.settle(seq);
    }
    assert!(journal.stats().rotations > 10);
    let last = journal.append_blocking(meta(0), b"the only one").unwrap();
    let fs = fs.kill();
    drop(journal);
    let journal = open(&fs, &options()).unwrap();
    let found = contents(&journal);
    assert_eq!(found.last(), Some(&(last, b"the only one".to_vec())));
    assert!(found.len() <= 2, "at most the last mark was lost: {found:?}");
}

#[test]
fn a_missing_segment_is_named() {
    let fs = twin();
    let journal = open(&fs, &options()).unwrap();
    for n in 0..12 {
        journal.append_blocking(meta(0), &payload(n, 1500)).unwrap();
    }
    assert!(journal.stats().segments >= 3);
    let fs = fs.kill();
    drop(journal);
    let second = segment(2);
    weir_journal::fs::Fs::remove(&fs, &second).unwrap();
    let refused = open(&fs, &options()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("segment 2"), "{refused}");
    assert!(refused.to_string().contains("missing"), "{refused}");
}
