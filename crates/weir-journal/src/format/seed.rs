//! Checksum seeds: what a checksum knows beside the bytes it covers.
//!
//! A seed folds in the journal's id, the segment's id and, for batches, the offset. Stale or misplaced bytes were
//! sealed under another seed and fail.

use crc32c::crc32c_append;

/// The seed of one segment's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    /// The seed of segment `segment` in the journal `journal`.
    pub(crate) fn new(journal: u128, segment: u64) -> Self {
        let of_journal = crc32c_append(0x5745_4952, &journal.to_le_bytes());
        Self(crc32c_append(of_journal, &segment.to_le_bytes()))
    }

    /// The checksum of `bytes` at `offset` of the segment.
    pub(crate) fn at(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c_append(self.0, &offset.to_le_bytes()), bytes)
    }

    /// Goes on from `crc`, which covers what comes before, over `bytes`, and binds both to this segment.
    pub(crate) fn bind(self, crc: u32, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c_append(crc, &self.0.to_le_bytes()), bytes)
    }
}

/// The reflected Castagnoli polynomial, for [`flipped_bit`].
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Which single bit of `len` bytes, flipped, explains that a checksum came out as `found` and not `wanted`.
///
/// A checksum is linear: flipping the bit that lies `d` bits before the end changes it by one fixed value, so the
/// difference names the bit. Counted from the first bit of the first byte, lowest bit first. None when no single
/// bit does.
pub(crate) fn flipped_bit(found: u32, wanted: u32, len: usize) -> Option<usize> {
    let difference = found ^ wanted;
    let bits = len.checked_mul(8)?;
    let mut effect = POLYNOMIAL;
    for before_end in 1..=bits {
        if effect == difference {
            return bits.checked_sub(before_end);
        }
        effect = (effect >> 1) ^ (POLYNOMIAL & (effect & 1).wrapping_neg());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_found_from_its_checksum_alone() {
        let mut bytes = vec![0u8; 300];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(i * 7 % 251).unwrap();
        }
        let seed = Seed::new(9, 4);
        let wanted = seed.at(512, &bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(flipped_bit(seed.at(512, &bytes), wanted, bytes.len()), Some(bit));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn another_segment_offset_or_journal_gives_another_checksum() {
        let base = Seed::new(1, 2).at(3, b"x");
        assert_ne!(base, Seed::new(1, 3).at(3, b"x"));
        assert_ne!(base, Seed::new(2, 2).at(3, b"x"));
        assert_ne!(base, Seed::new(1, 2).at(4, b"x"));
    }
}
