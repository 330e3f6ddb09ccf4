//! Records encoded into frames, ready to be written.
//!
//! A record goes straight into the frame it will leave in; only the frame's length and number are filled in when its
//! piece is written. Large bodies are kept as they are and written from where they lie. Invariant: every frame is at
//! most [`MAX_FRAME`] and holds whole records.

use bytes::Bytes;

use crate::wire::{
    FRAME_HEADER, FrameHeader, FrameKind, MAX_BODY, MAX_FRAME, RECORD_HEADER, RecordHeader, RecordKind,
    SlotRef,
};

/// A cleared batch keeps buffers of up to twice its bound, and of at most twice this.
const KEEP: usize = 256 * 1024;

#[derive(Debug, Clone, Copy)]
struct Frame {
    start: usize,
    shared: usize,
    payload: usize,
}

/// An open batch with a bound in bytes.
#[derive(Debug)]
pub struct Batch {
    buf: Vec<u8>,
    frames: Vec<Frame>,
    shared: Vec<(usize, Bytes)>,
    used: usize,
    records: u64,
    limit: usize,
    written: usize,
}

/// Consecutive frames of a batch that are written together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    buf: std::ops::Range<usize>,
    shared: std::ops::Range<usize>,
    /// Bytes in all.
    pub bytes: usize,
    /// The number of the last frame.
    pub last: u64,
}

impl Batch {
    /// An empty batch that takes records up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buf: Vec::new(),
            frames: Vec::new(),
            shared: Vec::new(),
            used: 0,
            records: 0,
            limit,
            written: 0,
        }
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Records in it.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes in it.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Whether a record with this body still fits under the bound.
    #[inline]
    pub fn fits(&self, body: usize) -> bool {
        self.used + body + RECORD_HEADER + FRAME_HEADER <= self.limit
    }

    /// Appends a record whose body is `parts` one after the other. The bound is the caller's business ([`fits`]);
    /// the body must be at most [`MAX_BODY`].
    ///
    /// [`fits`]: Self::fits
    #[inline]
    pub fn push(&mut self, slot: SlotRef, kind: RecordKind, parts: &[&[u8]]) {
        let body = parts.iter().map(|part| part.len()).sum();
        self.begin(slot, kind, body);
        for part in parts {
            self.buf.extend_from_slice(part);
        }
    }

    /// Appends a record whose body is `head` and then `tail`, which is not copied.
    pub fn push_shared(&mut self, slot: SlotRef, kind: RecordKind, head: &[u8], tail: Bytes) {
        self.begin(slot, kind, head.len() + tail.len());
        self.buf.extend_from_slice(head);
        self.shared.push((self.buf.len(), tail));
    }

    #[inline]
    fn begin(&mut self, slot: SlotRef, kind: RecordKind, body: usize) {
        debug_assert!(body <= MAX_BODY, "body of {body} bytes");
        let record = RECORD_HEADER + body;
        match self.frames.last_mut() {
            Some(frame) if FRAME_HEADER + frame.payload + record <= MAX_FRAME => frame.payload += record,
            _ => {
                let frame = Frame {
                    start: self.buf.len(),
                    shared: self.shared.len(),
                    payload: record,
                };
                self.frames.push(frame);
                self.buf.extend_from_slice(&[0; FRAME_HEADER]);
                self.used += FRAME_HEADER;
            }
        }
        let header = RecordHeader {
            slot,
            kind,
            body: u16::try_from(body).unwrap_or(0),
        };
        self.buf.extend_from_slice(&header.encode());
        self.used += record;
        self.records += 1;
    }

    /// Seals the next frames, at most `most` bytes of them but one at least, numbering them from `next` on.
    pub fn piece(&mut self, most: usize, next: &mut u64) -> Option<Piece> {
        let first = *self.frames.get(self.written)?;
        let (mut bytes, mut end) = (0, self.written);
        while let Some(frame) = self.frames.get(end) {
            let size = FRAME_HEADER + frame.payload;
            if end > self.written && bytes + size > most {
                break;
            }
            let header = FrameHeader {
                payload: u32::try_from(frame.payload).unwrap_or(0),
                kind: FrameKind::Batch,
                number: *next,
            };
            if let Some(place) = self.buf.get_mut(frame.start..frame.start + FRAME_HEADER) {
                place.copy_from_slice(&header.encode());
            }
            *next += 1;
            bytes += size;
            end += 1;
        }
        self.written = end;
        let (buf_end, shared_end) = self
            .frames
            .get(end)
            .map_or((self.buf.len(), self.shared.len()), |frame| {
                (frame.start, frame.shared)
            });
        Some(Piece {
            buf: first.start..buf_end,
            shared: first.shared..shared_end,
            bytes,
            last: *next - 1,
        })
    }

    /// Whether frames are left that no piece holds.
    pub fn has_more(&self) -> bool {
        self.written < self.frames.len()
    }

    /// The bytes of a sealed piece, in order.
    pub fn slices<'a>(&'a self, piece: &Piece) -> impl Iterator<Item = &'a [u8]> {
        let shared = self.shared.get(piece.shared.clone()).unwrap_or_default();
        let mut at = piece.buf.start;
        let inner = shared.iter().flat_map(move |(offset, bytes)| {
            let before = self.buf.get(at..*offset).unwrap_or_default();
            at = *offset;
            [before, bytes.as_ref()]
        });
        let tail_from = shared.last().map_or(piece.buf.start, |(offset, _)| *offset);
        let tail = self.buf.get(tail_from..piece.buf.end).unwrap_or_default();
        inner.chain([tail]).filter(|slice| !slice.is_empty())
    }

    /// Empties the batch and keeps its buffers, unless a burst made them much larger than the bound.
    pub fn clear(&mut self) {
        self.buf.clear();
        if self.buf.capacity() > self.limit.clamp(MAX_FRAME, KEEP).saturating_mul(2) {
            self.buf = Vec::new();
        }
        self.frames.clear();
        self.shared.clear();
        self.used = 0;
        self.records = 0;
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bodies_keep_their_place_among_copied_ones() {
        let slot = SlotRef {
            index: 1,
            generation: 2,
        };
        let mut batch = Batch::new(1 << 20);
        batch.push(slot, RecordKind::Item, &[b"a"]);
        batch.push_shared(slot, RecordKind::Item, b"", Bytes::from(vec![b'b'; 20_000]));
        batch.push_shared(slot, RecordKind::Item, b"", Bytes::from(vec![b'c'; 20_000]));
        batch.push(slot, RecordKind::Item, &[b"d"]);
        let mut next = 1;
        let mut seen = Vec::new();
        while let Some(piece) = batch.piece(1, &mut next) {
            let bytes: Vec<u8> = batch.slices(&piece).flatten().copied().collect();
            assert_eq!(bytes.len(), piece.bytes);
            let payload = &bytes[FRAME_HEADER..];
            for record in crate::wire::Records::new(payload) {
                if let crate::wire::Record::Item(_, body) = record.unwrap() {
                    seen.push((body[0], body.len()));
                }
            }
        }
        assert_eq!(seen, [(b'a', 1), (b'b', 20_000), (b'c', 20_000), (b'd', 1)]);
        assert_eq!(next, 3);
    }
}
