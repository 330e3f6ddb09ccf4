//! The bytes of a segment: headers, batches, records, and their checksums.
//!
//! Pure: bytes in, values out. No file, no clock, no lock. `docs/journal.md` has the same layout with offsets.
//!
//! Invariant: every checksum is seeded with the journal's id and the id of the segment's present life, which is
//! never used twice, so bytes of an earlier life or of another place never verify.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub(crate) mod batch;
pub(crate) mod record;
pub(crate) mod seed;
pub(crate) mod segment;

/// The unit a device writes whole; batches start on it, so that one batch never rewrites another's sector.
pub(crate) const SECTOR: usize = 512;
/// Where the first batch of a segment starts.
pub(crate) const DATA_START: u64 = 8192;
/// Where the second copy of the segment header lies.
pub(crate) const HEADER_COPY: u64 = 4096;
/// The format that this crate reads and writes.
pub(crate) const VERSION: u32 = 1;

/// `len` rounded up to whole sectors.
pub(crate) fn sectors(len: usize) -> usize {
    len.checked_next_multiple_of(SECTOR).unwrap_or(usize::MAX)
}

/// The four bytes at `at`, little endian.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// The eight bytes at `at`, little endian.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

/// The sixteen bytes at `at`, little endian.
pub(crate) fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    let word = bytes.get(at..at.checked_add(16)?)?;
    Some(u128::from_le_bytes(word.try_into().ok()?))
}

/// Writes `value` at `at`; a place outside the block is a fault of the caller and leaves the block as it is.
pub(crate) fn put(block: &mut [u8], at: usize, value: &[u8]) {
    let place = at.checked_add(value.len()).and_then(|end| block.get_mut(at..end));
    debug_assert!(place.is_some(), "a field outside its block");
    if let Some(place) = place {
        place.copy_from_slice(value);
    }
}
