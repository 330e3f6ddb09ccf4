//! The header of a batch: what goes out in one write and is made durable by one sync.
//!
//! The header's checksum is its own, so damage to a body leaves the batch's boundary readable. `chain` is the
//! checksum of the batch before: a batch of another history never continues this one.

use super::seed::Seed;
use super::{put, u32_at, u64_at};

/// Bytes of a batch header.
pub(crate) const BATCH_HEADER: usize = 64;
const MAGIC: [u8; 4] = *b"WJB1";
const COVERED_FROM: usize = 8;

/// The header of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// The checksum of the body.
    pub(crate) body_crc: u32,
    /// The header checksum of the batch before.
    pub(crate) chain: u32,
    /// The segment's id.
    pub(crate) segment: u64,
    /// The batch's number: one more than the batch before, over the journal's whole life.
    pub(crate) number: u64,
    /// Every batch up to this number was durable when this one was written.
    pub(crate) durable: u64,
    /// Segments with a lower id hold nothing open.
    pub(crate) low_water: u64,
    /// The first seq that no record up to and in this batch has.
    pub(crate) next_seq: u64,
    /// Bytes of the body.
    pub(crate) body_len: u32,
    /// Records in the body.
    pub(crate) count: u32,
}

impl BatchHeader {
    /// The header bytes and their checksum, which the next batch chains to.
    pub(crate) fn encode(&self, seed: Seed, offset: u64) -> ([u8; BATCH_HEADER], u32) {
        let mut bytes = [0; BATCH_HEADER];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &self.body_crc.to_le_bytes());
        put(&mut bytes, 12, &self.chain.to_le_bytes());
        for (at, value) in [
            (16, self.segment),
            (24, self.number),
            (32, self.durable),
            (40, self.low_water),
            (48, self.next_seq),
        ] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        put(&mut bytes, 56, &self.body_len.to_le_bytes());
        put(&mut bytes, 60, &self.count.to_le_bytes());
        let crc = seed.at(offset, bytes.get(COVERED_FROM..).unwrap_or_default());
        put(&mut bytes, 4, &crc.to_le_bytes());
        (bytes, crc)
    }

    /// The header at the start of `bytes` and its checksum; None when none verifies there.
    pub(crate) fn decode(bytes: &[u8], seed: Seed, offset: u64) -> Option<(Self, u32)> {
        let bytes = bytes.get(..BATCH_HEADER)?;
        if bytes.get(..4)? != MAGIC {
            return None;
        }
        let crc = u32_at(bytes, 4)?;
        if seed.at(offset, bytes.get(COVERED_FROM..)?) != crc {
            return None;
        }
        let header = Self {
            body_crc: u32_at(bytes, 8)?,
            chain: u32_at(bytes, 12)?,
            segment: u64_at(bytes, 16)?,
            number: u64_at(bytes, 24)?,
            durable: u64_at(bytes, 32)?,
            low_water: u64_at(bytes, 40)?,
            next_seq: u64_at(bytes, 48)?,
            body_len: u32_at(bytes, 56)?,
            count: u32_at(bytes, 60)?,
        };
        Some((header, crc))
    }

    /// Whether `bytes` start like a batch header, whatever its checksum says.
    pub(crate) fn looks_like(bytes: &[u8], segment: u64) -> bool {
        bytes.get(..4) == Some(&MAGIC[..]) && u64_at(bytes, 16) == Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_only_in_its_place_and_life() {
        let header = BatchHeader {
            body_crc: 1,
            chain: 2,
            segment: 3,
            number: 4,
            durable: 3,
            low_water: 2,
            next_seq: 9,
            body_len: 48,
            count: 1,
        };
        let seed = Seed::new(1, 3);
        let (bytes, crc) = header.encode(seed, 8192);
        assert_eq!(BatchHeader::decode(&bytes, seed, 8192), Some((header, crc)));
        assert_eq!(BatchHeader::decode(&bytes, seed, 8704), None);
        assert_eq!(BatchHeader::decode(&bytes, Seed::new(1, 4), 8192), None);
        assert_eq!(BatchHeader::decode(&bytes[..63], seed, 8192), None);
    }
}
