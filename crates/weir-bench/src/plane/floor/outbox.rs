//! One connection's outgoing side: callers stage under a lock, one task swaps the buffer out and writes it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::BytesMut;
use tokio::{io::AsyncWriteExt as _, net::tcp::OwnedWriteHalf, sync::Notify};

use super::{
    super::arm::Written,
    frame::{self, Kind},
};

const CAPACITY: usize = 64 * 1024;

/// What is staged and not yet taken by the writer. Bounded by the credit of all streams.
#[derive(Debug)]
struct Staged {
    buffer: BytesMut,
    records: u64,
}

/// The outgoing side of one connection.
#[derive(Debug)]
pub(super) struct Outbox {
    staged: Mutex<Staged>,
    queued: AtomicBool,
    wake: Notify,
    writes: AtomicU64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            staged: Mutex::new(Staged {
                buffer: BytesMut::with_capacity(CAPACITY),
                records: 0,
            }),
            queued: AtomicBool::new(false),
            wake: Notify::new(),
            writes: AtomicU64::new(0),
        }
    }

    pub(super) fn push(&self, kind: Kind, slot: u32, body: &[u8]) {
        {
            let mut staged = lock(&self.staged);
            frame::put(&mut staged.buffer, kind, slot, body);
            staged.records += u64::from(kind == Kind::Record);
        }
        self.wake_writer();
    }

    pub(super) fn grant(&self, slot: u32, limit: u32) {
        frame::put_grant(&mut lock(&self.staged).buffer, slot, limit);
        self.wake_writer();
    }

    fn wake_writer(&self) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    pub(super) fn written(&self) -> Written {
        Written {
            records: lock(&self.staged).records,
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Writes what is staged until the connection breaks. The yield lets the tasks of one pass stage their records
    /// before the write takes them.
    pub(super) async fn write(&self, mut connection: OwnedWriteHalf) {
        let mut spare = BytesMut::with_capacity(CAPACITY);
        loop {
            self.wake.notified().await;
            tokio::task::yield_now().await;
            self.queued.store(false, Ordering::Release);
            std::mem::swap(&mut lock(&self.staged).buffer, &mut spare);
            if spare.is_empty() {
                continue;
            }
            if connection.write_all(&spare).await.is_err() {
                return;
            }
            self.writes.fetch_add(1, Ordering::Relaxed);
            spare.clear();
        }
    }
}
