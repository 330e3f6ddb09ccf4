//! The open batch, which callers fill, and the outgoing one, which a leader writes.

use std::io;
use std::sync::Arc;

use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::record::{Fields, Kind, push_data, push_seal, push_settles};
use crate::format::sectors;
use crate::format::seed::Seed;
use crate::fs::{FsFile, Step, sync, write_all};
use crate::options::Durability;

/// The batch that is being filled.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    /// The number it will have.
    pub(crate) number: u64,
    buffer: Vec<u8>,
    count: u32,
}

impl OpenBatch {
    /// An empty batch in `buffer`.
    pub(crate) fn new(number: u64, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(BATCH_HEADER, 0);
        Self {
            number,
            buffer,
            count: 0,
        }
    }

    /// Bytes so far, its header included.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether no record is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a data record; returns the bytes it takes.
    pub(crate) fn push(
        &mut self,
        seed: Seed,
        kind: Kind,
        fields: &Fields,
        payload: &[u8],
        crc: u32,
    ) -> usize {
        let before = self.buffer.len();
        push_data(&mut self.buffer, seed, kind, fields, payload, crc);
        self.count += 1;
        self.buffer.len() - before
    }

    /// Adds a list of settled seqs.
    pub(crate) fn push_settles(&mut self, seed: Seed, seqs: impl Iterator<Item = u64>) {
        push_settles(&mut self.buffer, seed, seqs);
        self.count += 1;
    }

    /// Adds the mark of a close.
    pub(crate) fn push_seal(&mut self, seed: Seed) {
        push_seal(&mut self.buffer, seed);
        self.count += 1;
    }
}

/// A batch on its way out.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) number: u64,
    /// Records in it, for the statistics.
    pub(crate) count: u32,
    file: Arc<dyn FsFile>,
    offset: u64,
    seed: Seed,
    header: BatchHeader,
    pub(crate) buffer: Vec<u8>,
}

/// Where an outgoing batch goes and what its header says beside its content.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) file: Arc<dyn FsFile>,
    pub(crate) offset: u64,
    pub(crate) seed: Seed,
    pub(crate) segment: u64,
    pub(crate) chain: u32,
    pub(crate) durable: u64,
    pub(crate) low_water: u64,
    pub(crate) next_seq: u64,
}

impl Outgoing {
    /// Closes `batch`.
    pub(crate) fn new(batch: OpenBatch, route: Route) -> Self {
        let body_len = batch.buffer.len() - BATCH_HEADER;
        let header = BatchHeader {
            body_crc: 0,
            chain: route.chain,
            segment: route.segment,
            number: batch.number,
            durable: route.durable,
            low_water: route.low_water,
            next_seq: route.next_seq,
            body_len: u32::try_from(body_len).unwrap_or(u32::MAX),
            count: batch.count,
        };
        Self {
            number: batch.number,
            count: batch.count,
            file: route.file,
            offset: route.offset,
            seed: route.seed,
            header,
            buffer: batch.buffer,
        }
    }

    /// The segment it goes to.
    pub(crate) fn segment(&self) -> u64 {
        self.header.segment
    }

    /// The low water its header tells.
    pub(crate) fn low_water(&self) -> u64 {
        self.header.low_water
    }

    /// Bytes it takes in the segment.
    pub(crate) fn space(&self) -> u64 {
        sectors(self.buffer.len()) as u64
    }

    /// Seals, writes, and with [`Durability::Data`] syncs it. Returns its header's checksum.
    pub(crate) fn send(&mut self, level: Durability) -> Result<u32, (Step, io::Error)> {
        let (head, body) = self.buffer.split_at_mut(BATCH_HEADER);
        self.header.body_crc = self.seed.at(self.offset, body);
        let (bytes, crc) = self.header.encode(self.seed, self.offset);
        head.copy_from_slice(&bytes);
        self.buffer.resize(sectors(self.buffer.len()), 0);
        write_all(&*self.file, &self.buffer, self.offset).map_err(|e| (Step::Write, e))?;
        if level == Durability::Data {
            sync(&*self.file, Step::Commit).map_err(|e| (Step::Commit, e))?;
        }
        Ok(crc)
    }
}
