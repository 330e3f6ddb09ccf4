//! Small programs of two or three threads that loom runs in every order the memory model allows.
//!
//! They use the driver's own parts: the slot set, the dirty map, the staging of the outbox, the slot table. A wake that
//! is lost is a thread that waits for ever, which loom reports. They say nothing about sockets and timers.

use std::{future::poll_fn, sync::Arc, task::Poll};

use bytes::Bytes;
use loom::{future::block_on, thread};
use weir_proto::{
    Accept, Claim, Deliver, Ending, Extent, LaneKey, Mark, Outbox, Time, Turn, Window,
    wire::{ClaimToken, EndCode, NodeId, RefusedCode, SlotRef},
};

use crate::{
    dirty::Dirty,
    slot_set::SlotSet,
    slot_table::SlotTable,
    staging::{self, Due},
    sync::{AtomicBool, AtomicWaker, Mutex},
};

const LANE: LaneKey = LaneKey(1);

fn drained(set: &SlotSet) -> Vec<u32> {
    let mut seen = Vec::new();
    set.drain(|index| seen.push(index));
    seen
}

/// Two indexes, added by two threads while a third drains.
fn added_beside_a_drain(other: u32) {
    loom::model(move || {
        let shared = Arc::new((SlotSet::default(), AtomicBool::new(false)));
        shared.0.insert(1);
        assert_eq!(drained(&shared.0), [1], "its page is there");
        let (first, second) = (shared.clone(), shared.clone());
        let first = thread::spawn(move || first.0.insert(0));
        let second = thread::spawn(move || {
            second.0.insert(other);
            second.1.store(true, std::sync::atomic::Ordering::Release);
        });
        let returned = shared.1.load(std::sync::atomic::Ordering::Acquire);
        let mut seen = drained(&shared.0);
        assert!(!returned || seen.contains(&other), "added before the drain began");
        first.join().unwrap();
        second.join().unwrap();
        seen.extend(drained(&shared.0));
        seen.sort_unstable();
        assert_eq!(seen, [0, other], "each once");
    });
}

#[test]
fn a_drain_sees_what_was_added_before_it_in_one_word() {
    added_beside_a_drain(2);
}

#[test]
fn a_drain_sees_what_was_added_before_it_in_one_page() {
    added_beside_a_drain(64);
}

#[test]
fn a_drain_sees_what_was_added_before_it_in_two_pages() {
    added_beside_a_drain(4096);
}

#[test]
fn an_index_that_two_add_is_seen_once_both_returned() {
    loom::model(|| {
        let set = Arc::new(SlotSet::default());
        let adders = [(); 2].map(|()| {
            let set = set.clone();
            thread::spawn(move || set.insert(0))
        });
        let early = drained(&set).len();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        assert!(early + drained(&set).len() >= 1);
    });
}

/// What a writer has: an outbox, the dirty map, its waker, and what each of two slots owes.
struct Lane {
    outbox: Mutex<Outbox<std::task::Waker>>,
    dirty: Dirty,
    writer: AtomicWaker,
    owed: [Mutex<u32>; 2],
}

impl Lane {
    fn shared() -> Arc<Self> {
        Arc::new(Self {
            outbox: Mutex::new(Outbox::new(LANE)),
            dirty: Dirty::new(),
            writer: AtomicWaker::new(),
            owed: [Mutex::new(0), Mutex::new(0)],
        })
    }

    /// A slot owes one more; marked under its lock, as the driver does.
    fn owe(&self, index: u32) {
        let mut owed = self.owed[index as usize].lock();
        *owed += 1;
        if self.dirty.mark(index, Mark::Soon) {
            self.writer.wake();
        }
    }

    fn stage(&self, index: u32) {
        let slot = SlotRef { index, generation: 1 };
        staging::stage(&self.outbox, &self.writer, |outbox| {
            outbox.refuse(slot, RefusedCode::Gone).unwrap();
        });
    }

    /// Writes until `records` have left, sleeping between.
    fn write(&self, records: u64) {
        let mut left = 0;
        block_on(poll_fn(|cx| {
            loop {
                if staging::look(&self.outbox, &self.dirty, &self.writer, cx.waker()) == Due::Nothing {
                    return Poll::Pending;
                }
                self.dirty
                    .drain(|index| left += u64::from(std::mem::take(&mut *self.owed[index as usize].lock())));
                let mut turn = Turn::default();
                self.outbox.lock().take(&mut turn);
                left += turn.urgent.records() + turn.bulk.records();
                if left == records {
                    return Poll::Ready(());
                }
            }
        }));
        assert!(self.dirty.marked().is_none() || self.owed.iter().all(|owed| *owed.lock() == 0));
    }
}

/// Runs the writer beside `sides`, of which each makes as many records leave as it says.
fn written_beside(sides: &'static [(u64, fn(&Lane))]) {
    loom::model(move || {
        let lane = Lane::shared();
        let threads: Vec<_> = sides
            .iter()
            .map(|(_, side)| {
                let lane = lane.clone();
                thread::spawn(move || side(&lane))
            })
            .collect();
        lane.write(sides.iter().map(|(records, _)| records).sum());
        threads.into_iter().for_each(|side| side.join().unwrap());
    });
}

#[test]
fn no_mark_is_lost_beside_a_drain() {
    written_beside(&[(1, |lane| lane.owe(0)), (1, |lane| lane.owe(1))]);
}

#[test]
fn no_second_mark_of_a_slot_is_lost() {
    written_beside(&[(2, |lane| {
        lane.owe(0);
        lane.owe(0);
    })]);
}

#[test]
fn a_sleeping_writer_is_woken_by_whoever_stages() {
    written_beside(&[(1, |lane| lane.stage(0)), (1, |lane| lane.stage(1))]);
}

#[test]
fn a_writer_hears_stagers_and_marks_alike() {
    written_beside(&[(1, |lane| lane.stage(0)), (1, |lane| lane.owe(0))]);
}

/// A table whose first slot has been claimed over [`LANE`].
fn claimed() -> (Arc<SlotTable>, SlotRef) {
    let table = SlotTable::new(1);
    let slot = {
        let (index, cell) = table.allocate().unwrap();
        let (token, node) = (ClaimToken([1; 16]), NodeId([2; 16]));
        let window = Window {
            records: 8,
            bytes: 1024,
        };
        let mut cell = cell.lock();
        let generation = cell.slot.mint(token, node, LANE, window, Time::ZERO);
        assert_eq!(
            cell.slot.claim(generation, token, node, LANE, Time::ZERO),
            Claim::Claimed
        );
        SlotRef { index, generation }
    };
    (Arc::new(table), slot)
}

/// Pushes under the slot's lock and wakes after it, as the reader does at the end of a pass.
fn push(table: &SlotTable, slot: SlotRef, item: Option<u8>) {
    let mut cell = table.get(slot.index).unwrap().lock();
    let accept = if let Some(byte) = item {
        let frame = Bytes::copy_from_slice(&[byte]);
        let item = cell
            .slot
            .item(slot.generation, LANE, &frame, &frame, true, Time::ZERO);
        item.unwrap()
    } else {
        let (accept, event) = cell.slot.end(slot.generation, LANE, EndCode::Finished, 0, "");
        table.settle(slot.index, &mut cell, event);
        accept
    };
    drop(cell);
    if let Accept::Taken(Some(waker)) = accept {
        waker.wake();
    }
}

#[test]
fn a_consumer_gets_every_record_in_order_and_the_end() {
    loom::model(|| {
        let (table, slot) = claimed();
        let reader = table.clone();
        let reader = thread::spawn(move || {
            for item in [Some(1), Some(2), None] {
                push(&reader, slot, item);
            }
        });
        let (mut seen, mut extent) = (Vec::new(), Extent::default());
        let ended = block_on(poll_fn(|cx| {
            loop {
                let mut cell = table.get(slot.index).unwrap().lock();
                let (deliver, event) = cell
                    .slot
                    .take(slot.generation, &mut extent, || cx.waker().clone());
                table.settle(slot.index, &mut cell, event);
                drop(cell);
                match deliver {
                    Deliver::Records => seen.extend(extent.by_ref().map(|item| item[0])),
                    Deliver::Pending => return Poll::Pending,
                    Deliver::Ended(ending, delivered) => return Poll::Ready((ending, delivered)),
                }
            }
        }));
        assert_eq!((seen, ended), (vec![1, 2], (Ending::Finished, 2)));
        reader.join().unwrap();
    });
}
