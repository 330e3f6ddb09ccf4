//! What a journal promises on a good day.

use std::path::Path;
use std::sync::Arc;

use weir_journal::fs::FaultyFs;
use weir_journal::{AppendError, Durability, Journal, OpenError, Options, Tail, Upkeep};

use crate::kit::{contents, meta, open, payload, small, twin};

#[test]
fn open_records_come_back_in_order_and_settled_ones_do_not() {
    for level in [Durability::Buffered, Durability::Data] {
        let fs = twin();
        let journal = open(&fs, &small(level)).unwrap();
        assert!(journal.report().made);
        let seqs: Vec<u64> = (0..20)
            .map(|n| {
                journal
                    .append_blocking(meta(n), &payload(u64::from(n), 100))
                    .unwrap()
            })
            .collect();
        for seq in seqs.iter().step_by(2) {
            assert!(journal.settle(*seq));
            assert!(!journal.settle(*seq), "a second settle finds nothing");
        }
        drop(journal);
        let journal = open(&fs, &small(level)).unwrap();
        assert_eq!(journal.report().tail, Tail::Sealed);
        let wanted: Vec<_> = (0..20)
            .filter(|n| n % 2 == 1)
            .map(|n| (seqs[n as usize], payload(n, 100)))
            .collect();
        assert_eq!(contents(&journal), wanted);
        let listed = journal.open_records();
        assert_eq!(listed[0].meta, meta(1));
        assert_eq!(listed[0].len, 108);
        let next = journal.append_blocking(meta(0), b"later").unwrap();
        assert!(next > seqs[19], "a seq is never used twice");
    }
}

#[test]
fn a_seq_is_not_used_again_after_everything_was_settled() {
    let fs = twin();
    let mut last = 0;
    for _ in 0..5 {
        let journal = open(&fs, &small(Durability::Data)).unwrap();
        for _ in 0..7 {
            let seq = journal.append_blocking(meta(0), &[7; 3000]).unwrap();
            assert!(seq > last);
            last = seq;
            journal.settle(seq);
        }
    }
}

#[test]
fn a_journal_used_for_long_stays_as_small_as_its_open_work() {
    let fs = twin();
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    for n in 0..5000 {
        let seq = journal.append_blocking(meta(0), &payload(n, 500)).unwrap();
        journal.settle(seq);
        assert!(fs.used() <= 5 * (16 << 10), "{} bytes", fs.used());
    }
    let stats = journal.stats();
    assert!(stats.rotations > 100 && stats.segments <= 2, "{stats:?}");
    assert_eq!(
        stats.disk_bytes,
        fs.used()
            - fs.content(Path::new("/host/root/LOCK"))
                .map_or(0, |c| c.len() as u64)
    );
}

#[test]
fn an_old_open_record_is_carried_and_holds_nothing_back() {
    let fs = twin();
    let options = Options {
        capacity: 12 * (16 << 10),
        ..small(Durability::Data)
    };
    let journal = open(&fs, &options).unwrap();
    let old = journal.append_blocking(meta(1), b"straggler").unwrap();
    for n in 0..3000 {
        let seq = journal.append_blocking(meta(0), &payload(n, 500)).unwrap();
        journal.settle(seq);
    }
    let stats = journal.stats();
    assert!(stats.carried > 0 && stats.segments <= 7, "{stats:?}");
    assert_eq!(journal.read(old).unwrap().payload, b"straggler");
    drop(journal);
    let journal = open(&fs, &options).unwrap();
    assert_eq!(contents(&journal), vec![(old, b"straggler".to_vec())]);
}

#[test]
fn what_does_not_fit_is_refused_with_numbers_and_room_comes_back() {
    let fs = twin();
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    let mut seqs = Vec::new();
    let full = loop {
        match journal.append_blocking(meta(0), &payload(seqs.len() as u64, 1500)) {
            Ok(seq) => seqs.push(seq),
            Err(e) => break e,
        }
    };
    let AppendError::Full {
        needed,
        free,
        capacity,
    } = full
    else {
        panic!("{full}")
    };
    assert!(needed > free && capacity == 5 * (16 << 10), "{full}");
    assert!(full.to_string().contains("settle records first"));
    assert_eq!(
        journal.append_blocking(meta(0), &[0; 1500]).unwrap_err(),
        AppendError::Full {
            needed: 2048,
            free,
            capacity
        }
    );
    assert_eq!(contents(&journal).len(), seqs.len());
    // Every other record goes: no segment is free of open work, so room can only come from moving the rest.
    for seq in seqs.iter().step_by(2) {
        journal.settle(*seq);
    }
    let more = seqs.len() / 3;
    for n in 0..more {
        journal
            .append_blocking(meta(0), &payload(1000 + n as u64, 1500))
            .unwrap();
    }
    let found = contents(&journal);
    assert_eq!(found.len(), seqs.len() - seqs.len().div_ceil(2) + more);
    assert!(fs.used() <= 5 * (16 << 10) + 64);
}

#[test]
fn a_record_too_long_is_refused_before_anything_is_written() {
    let fs = twin();
    let options = small(Durability::Data);
    let journal = open(&fs, &options).unwrap();
    let before = fs.operations();
    let refused = journal
        .append_blocking(meta(0), &vec![0; options.max_record + 1])
        .unwrap_err();
    assert_eq!(refused, AppendError::TooLarge { len: 3901, max: 3900 });
    assert_eq!(fs.operations(), before);
    journal
        .append_blocking(meta(0), &vec![0; options.max_record])
        .unwrap();
    let longest = Options {
        max_record: options.longest_record(),
        ..options
    };
    let other = FaultyFs::new(Path::new("/host"));
    let journal = open(&other, &longest).unwrap();
    for len in [longest.max_record, longest.max_record - 1, 0, 1, 7, 8] {
        let seq = journal.append_blocking(meta(0), &payload(1, len)[..len]).unwrap();
        assert_eq!(journal.read(seq).unwrap().payload, payload(1, len)[..len]);
    }
}

#[test]
fn a_full_disk_is_full_and_heals_by_itself() {
    let fs = twin();
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    fs.limit(Some(fs.used() + 1000));
    let mut kept = Vec::new();
    let refused = loop {
        match journal.append_blocking(meta(0), &payload(kept.len() as u64, 1500)) {
            Ok(seq) => kept.push((seq, payload(kept.len() as u64, 1500))),
            Err(e) => break e,
        }
    };
    assert!(
        matches!(refused, AppendError::Full { needed, free, .. } if needed > free),
        "{refused}"
    );
    assert!(journal.poisoned().is_none());
    assert_eq!(
        fs.names()
            .iter()
            .filter(|n| n.extension().is_some_and(|e| e == "new"))
            .count(),
        0
    );
    assert!(matches!(
        journal.append_blocking(meta(0), &[1; 1500]),
        Err(AppendError::Full { .. })
    ));
    fs.limit(None);
    kept.push((
        journal.append_blocking(meta(0), b"healed").unwrap(),
        b"healed".to_vec(),
    ));
    assert_eq!(contents(&journal), kept);
    drop(journal);
    assert_eq!(contents(&open(&fs, &small(Durability::Data)).unwrap()), kept);
}

#[test]
fn a_journal_on_a_full_disk_opens_and_works_where_it_has_segments() {
    let fs = twin();
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    let seq = journal.append_blocking(meta(0), b"kept").unwrap();
    let fs = fs.kill();
    drop(journal);
    fs.limit(Some(fs.used()));
    let journal = open(&fs, &small(Durability::Data)).unwrap();
    assert_eq!(contents(&journal), vec![(seq, b"kept".to_vec())]);
    journal.append_blocking(meta(0), b"more").unwrap();

    let none = twin();
    none.limit(Some(100));
    let refused = open(&none, &small(Durability::Data)).unwrap_err();
    assert!(matches!(refused, OpenError::NoSpace { .. }), "{refused}");
    assert!(
        !none.names().iter().any(|name| name.extension().is_some()),
        "nothing is left behind"
    );
}

#[test]
fn handles_of_one_root_share_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        upkeep: Upkeep::Threads,
        ..small(Durability::Buffered)
    };
    let one = Journal::open(dir.path(), &options).unwrap();
    let two = Journal::open(&dir.path().join("."), &options).unwrap();
    let seq = one.append_blocking(meta(3), b"shared").unwrap();
    assert_eq!(two.read(seq).unwrap().payload, b"shared");
    assert!(two.settle(seq));
    assert_eq!(one.stats().open_records, 0);
    let other = Options {
        durability: Durability::Data,
        ..options.clone()
    };
    assert!(matches!(
        Journal::open(dir.path(), &other),
        Err(OpenError::OptionsDiffer { .. })
    ));
    drop((one, two));
    Journal::open(dir.path(), &other).unwrap();
}

#[test]
fn threads_come_and_go_with_the_journal_and_awaited_appends_complete() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        upkeep: Upkeep::Threads,
        ..small(Durability::Data)
    };
    let journal = Journal::open(dir.path(), &options).unwrap();
    for n in 0..200 {
        let seq = wait(journal.append(meta(n), &[5; 900])).unwrap();
        journal.settle(seq);
    }
    assert!(matches!(
        wait(journal.append(meta(0), &[0; 9999])),
        Err(AppendError::TooLarge { .. })
    ));
    assert_eq!(journal.stats().open_records, 0);
    assert!(journal.stats().rotations > 5);
}

#[test]
fn an_append_given_up_leaves_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        upkeep: Upkeep::Threads,
        ..small(Durability::Data)
    };
    let journal = Journal::open(dir.path(), &options).unwrap();
    let mut append = Box::pin(journal.append(meta(0), b"never mind"));
    let polled = poll_once(append.as_mut());
    let seen = journal.stats().appended;
    drop(append);
    assert_eq!(seen, 1, "the first poll puts the record in");
    let open = u64::from(polled.is_some());
    assert_eq!(
        journal.stats().open_records,
        open,
        "a record that was not acknowledged is taken back"
    );
}

/// Waits for a future without a runtime.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => Some(done),
        std::task::Poll::Pending => None,
    }
}
