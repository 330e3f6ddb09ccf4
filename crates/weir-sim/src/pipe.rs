//! One direction of a connection: bytes that arrive late, in pieces of any size, in order, or not at all.

use std::{collections::VecDeque, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use weir_proto::Time;

use crate::rng::Rng;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    chunks: VecDeque<(Time, Bytes)>,
    in_flight: usize,
    /// Bytes that may be in flight; a writer that meets it waits.
    pub(crate) capacity: usize,
    /// The longest a chunk travels.
    pub(crate) delay: Duration,
    /// Nothing arrives before this moment.
    pub(crate) stalled_until: Time,
    /// No more bytes come after those in flight.
    pub(crate) closed: bool,
    /// The reading side is gone: writes fail.
    pub(crate) broken: bool,
    last_arrival: Time,
}

impl Pipe {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            capacity: 1 << rng.within(9, 18),
            delay: Duration::from_micros(1 << rng.within(0, 14)),
            ..Self::default()
        }
    }

    /// Takes bytes off the front of `from` as far as there is room.
    pub(crate) fn write(&mut self, from: &mut BytesMut, now: Time, rng: &mut Rng) {
        let room = self.capacity.saturating_sub(self.in_flight);
        let len = if rng.chance(80) {
            room
        } else {
            (rng.index(room) + 1).min(room)
        }
        .min(from.len());
        if len == 0 {
            return;
        }
        let arrival = (now + rng.upto(self.delay)).max(self.last_arrival);
        self.last_arrival = arrival;
        self.in_flight += len;
        self.chunks.push_back((arrival, from.split_to(len).freeze()));
    }

    /// When there is something to read next: bytes, or the end.
    pub(crate) fn readable_at(&self, now: Time) -> Option<Time> {
        let at = match self.chunks.front() {
            Some((arrival, _)) => *arrival,
            None if self.closed => now,
            None => return None,
        };
        Some(at.max(self.stalled_until))
    }

    /// One read into `to`: some of the bytes that arrived, 0 at the end of the stream. Call it when readable.
    pub(crate) fn read(&mut self, to: &mut BytesMut, now: Time, rng: &mut Rng) -> usize {
        let most = if rng.chance(60) {
            64 * 1024
        } else {
            rng.size(64 * 1024) + 1
        };
        let mut read = 0;
        while let Some((arrival, chunk)) = self.chunks.front_mut() {
            let len = chunk.len().min(most - read);
            if *arrival > now || len == 0 {
                break;
            }
            to.extend_from_slice(&chunk[..len]);
            chunk.advance(len);
            read += len;
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
        }
        self.in_flight -= read;
        read
    }

    /// The connection breaks: the last chunks never arrive.
    pub(crate) fn cut(&mut self, rng: &mut Rng) {
        let keep = rng.index(self.chunks.len() + 1);
        self.chunks.truncate(keep);
        if let Some((_, chunk)) = self.chunks.back_mut() {
            chunk.truncate(rng.index(chunk.len()) + 1);
        }
        self.in_flight = self.chunks.iter().map(|(_, chunk)| chunk.len()).sum();
        self.closed = true;
    }
}
