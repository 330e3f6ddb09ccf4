//! A stream's undelivered records, and the extent in which a consumer takes them.
//!
//! Small records are copied one after the other into one buffer, so that taking them costs a swap; a record that is a
//! fair share of the buffer it came in is kept as a slice of it. Invariant: order is the order of arrival.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Records of at least this size are kept as slices of the frame they came in: a lane reads into buffers of at most
/// four times this size, so pinned memory stays within 4 x payload.
const SHARE_FROM: usize = 16 * 1024;
const SHARED: u32 = u32::MAX;

/// Records that arrived and were not taken.
#[derive(Debug, Default)]
pub struct Mail {
    buf: BytesMut,
    lens: Vec<u32>,
    shared: VecDeque<Bytes>,
    bytes: usize,
}

impl Mail {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a record that lies in `frame`.
    pub fn push(&mut self, item: &[u8], frame: &Bytes) {
        if item.len() >= SHARE_FROM {
            self.push_whole(frame.slice_ref(item));
            return;
        }
        self.buf.extend_from_slice(item);
        self.lens.push(u32::try_from(item.len()).unwrap_or(0));
        self.bytes += item.len();
    }

    /// Appends a record that has a buffer of its own.
    pub fn push_whole(&mut self, item: Bytes) {
        self.bytes += item.len();
        self.shared.push_back(item);
        self.lens.push(SHARED);
    }

    /// Moves everything into `extent`, which must have been walked to its end. Says how much it was.
    pub fn take(&mut self, extent: &mut Extent) -> (u64, usize) {
        extent.lens.clear();
        extent.at = 0;
        std::mem::swap(&mut self.lens, &mut extent.lens);
        extent.buf = if self.buf.is_empty() {
            Bytes::new()
        } else {
            self.buf.split().freeze()
        };
        std::mem::swap(&mut self.shared, &mut extent.shared);
        (extent.lens.len() as u64, std::mem::take(&mut self.bytes))
    }
}

/// Consecutive records of one stream in order. Iterating hands each out as `Bytes` without copying.
#[derive(Debug, Default)]
pub struct Extent {
    buf: Bytes,
    lens: Vec<u32>,
    at: usize,
    shared: VecDeque<Bytes>,
}

impl Extent {
    /// Records left.
    pub fn remaining(&self) -> usize {
        self.lens.len().saturating_sub(self.at)
    }
}

impl Iterator for Extent {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let len = *self.lens.get(self.at)?;
        self.at += 1;
        if len == SHARED {
            return self.shared.pop_front();
        }
        let len = len as usize;
        if len == self.buf.len() {
            return Some(std::mem::take(&mut self.buf));
        }
        Some(self.buf.split_to(len.min(self.buf.len())))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining(), Some(self.remaining()))
    }
}

impl ExactSizeIterator for Extent {}
