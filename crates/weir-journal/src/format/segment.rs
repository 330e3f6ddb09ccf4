//! The header of a segment: which journal, which life, and where it stands in the order of use.
//!
//! It is written twice in the file (at 0 and at 4096), once per life; opening after an unclean end writes it again
//! with the low water and the batch number that were found. When the copies differ, the one with the higher segment
//! id, then the higher low water, is the truth: a write had got half way.

use super::{DATA_START, HEADER_COPY, SECTOR, VERSION, put, u32_at, u64_at, u128_at};
use crate::options::Durability;

const MAGIC: [u8; 8] = *b"WEIRJRNL";
const CRC_AT: usize = SECTOR - 4;

/// The header of one life of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The journal this segment belongs to.
    pub(crate) journal: u128,
    /// This life's id; grows, never used twice.
    pub(crate) id: u64,
    /// The id of the segment used before this one; 0 for the first.
    pub(crate) after: u64,
    /// Segments with a lower id held nothing open when this header was written.
    pub(crate) low_water: u64,
    /// The next unused seq when this header was written.
    pub(crate) next_seq: u64,
    /// No batch written from now on has a lower number.
    pub(crate) next_batch: u64,
    /// The size of the file.
    pub(crate) segment_bytes: u64,
    /// The cap of the journal when this header was written.
    pub(crate) capacity: u64,
    /// What an acknowledgement meant to the process that wrote this header.
    pub(crate) durability: Durability,
}

/// Why a header block is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// No magic: not a segment, or damaged there.
    NoMagic,
    /// A format newer than this crate's.
    Newer(u32),
    /// The checksum does not verify.
    Damaged,
}

impl SegmentHeader {
    /// The header block.
    pub(crate) fn encode(&self) -> [u8; SECTOR] {
        let mut block = [0; SECTOR];
        put(&mut block, 0, &MAGIC);
        put(&mut block, 8, &VERSION.to_le_bytes());
        put(&mut block, 12, &self.durability.code().to_le_bytes());
        put(&mut block, 16, &self.journal.to_le_bytes());
        for (at, value) in [
            (32, self.id),
            (40, self.after),
            (48, self.low_water),
            (56, self.next_seq),
            (64, self.segment_bytes),
            (72, self.capacity),
            (80, self.next_batch),
        ] {
            put(&mut block, at, &value.to_le_bytes());
        }
        let crc = block.get(..CRC_AT).map_or(0, crc32c::crc32c);
        put(&mut block, CRC_AT, &crc.to_le_bytes());
        block
    }

    /// Reads one header block.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, HeaderFault> {
        let magic = block.get(..8).ok_or(HeaderFault::NoMagic)?;
        if magic != MAGIC {
            return Err(HeaderFault::NoMagic);
        }
        let covered = block.get(..CRC_AT).ok_or(HeaderFault::Damaged)?;
        if u32_at(block, CRC_AT) != Some(crc32c::crc32c(covered)) {
            return Err(HeaderFault::Damaged);
        }
        match u32_at(block, 8) {
            Some(VERSION) => Self::fields(block).ok_or(HeaderFault::Damaged),
            Some(newer) => Err(HeaderFault::Newer(newer)),
            None => Err(HeaderFault::Damaged),
        }
    }

    fn fields(block: &[u8]) -> Option<Self> {
        Some(Self {
            durability: Durability::from_code(u32_at(block, 12)?)?,
            journal: u128_at(block, 16)?,
            id: u64_at(block, 32)?,
            after: u64_at(block, 40)?,
            low_water: u64_at(block, 48)?,
            next_seq: u64_at(block, 56)?,
            segment_bytes: u64_at(block, 64)?,
            capacity: u64_at(block, 72)?,
            next_batch: u64_at(block, 80)?,
        })
    }
}

/// What the head of a segment file says, from both copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The header in force.
    pub(crate) header: SegmentHeader,
    /// Whether both copies could be read.
    pub(crate) both: bool,
}

/// Reads both copies from the first [`DATA_START`] bytes of a file.
pub(crate) fn read_head(bytes: &[u8]) -> Result<Head, HeaderFault> {
    let at = |from: u64| {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        SegmentHeader::decode(bytes.get(from..from.saturating_add(SECTOR)).unwrap_or_default())
    };
    match (at(0), at(HEADER_COPY)) {
        (Ok(first), Ok(second)) => {
            let age = |h: &SegmentHeader| (h.id, h.low_water, h.next_batch);
            let header = if age(&second) > age(&first) { second } else { first };
            Ok(Head { header, both: true })
        }
        (Err(HeaderFault::Newer(version)), _) | (_, Err(HeaderFault::Newer(version))) => {
            Err(HeaderFault::Newer(version))
        }
        (Ok(header), Err(_)) | (Err(_), Ok(header)) => Ok(Head { header, both: false }),
        (Err(fault), Err(_)) => Err(fault),
    }
}

/// The first [`DATA_START`] bytes of a segment: both copies, zeros between.
pub(crate) fn write_head(header: &SegmentHeader) -> Vec<u8> {
    let mut head = vec![0; usize::try_from(DATA_START).unwrap_or_default()];
    let block = header.encode();
    put(&mut head, 0, &block);
    put(
        &mut head,
        usize::try_from(HEADER_COPY).unwrap_or_default(),
        &block,
    );
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(id: u64) -> SegmentHeader {
        SegmentHeader {
            journal: 7,
            id,
            after: id - 1,
            low_water: 1,
            next_seq: 40,
            next_batch: 12,
            segment_bytes: 1 << 16,
            capacity: 1 << 20,
            durability: Durability::Data,
        }
    }

    #[test]
    fn a_header_survives_the_loss_of_either_copy() {
        for lost in [0, 4096] {
            let mut head = write_head(&header(3));
            head[lost..lost + SECTOR].fill(0xA5);
            assert_eq!(
                read_head(&head),
                Ok(Head {
                    header: header(3),
                    both: false
                })
            );
        }
    }

    #[test]
    fn of_two_lives_the_later_counts() {
        let mut head = write_head(&header(3));
        head[4096..4096 + SECTOR].copy_from_slice(&header(9).encode());
        assert_eq!(read_head(&head).unwrap().header, header(9));
        head[0..SECTOR].copy_from_slice(&header(12).encode());
        assert_eq!(read_head(&head).unwrap().header, header(12));
    }

    #[test]
    fn every_flip_in_a_header_block_is_seen() {
        let block = header(5).encode();
        for bit in 0..block.len() * 8 {
            let mut bad = block;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut block = header(5).encode();
        put(&mut block, 8, &9u32.to_le_bytes());
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        put(&mut block, CRC_AT, &crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&block), Err(HeaderFault::Newer(9)));
    }
}
