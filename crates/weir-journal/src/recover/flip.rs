//! The one-bit test: is a batch that does not verify whole but for one flipped bit?
//!
//! A torn write loses whole sectors and is, but for one chance in four thousand million, never explained by a
//! single bit. So the very last batch, which no later one can vouch for, is still told apart from rot.

use super::scan::{Expect, Place, batch_at};
use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::seed::flipped_bit;

/// The bit of the file (lowest bit of a byte first) that, flipped back, makes the batch at `offset` whole and the
/// one that `expect` asks for.
pub(crate) fn one_bit(bytes: &[u8], place: Place, offset: u64, expect: Option<Expect>) -> Option<u64> {
    let (bit, healed) = heal(bytes, place, offset)?;
    let batch = batch_at(&healed, place, offset)?.header;
    let fits = expect.is_none_or(|e| e.number == batch.number && e.chain == batch.chain);
    fits.then_some(u64::try_from(bit).ok()?)
}

/// The segment up to the end of the batch at `offset`, that batch made whole by flipping one bit back.
pub(crate) fn healed_batch(bytes: &[u8], place: Place, offset: u64) -> Option<Vec<u8>> {
    heal(bytes, place, offset).map(|(_, healed)| healed)
}

fn heal(bytes: &[u8], place: Place, offset: u64) -> Option<(usize, Vec<u8>)> {
    let from = usize::try_from(offset).ok()?;
    let in_batch = in_header(bytes, place, offset).or_else(|| in_body(bytes, place, offset))?;
    let bit = from.checked_mul(8)?.checked_add(in_batch)?;
    let mut head = bytes.get(from..from.checked_add(BATCH_HEADER)?)?.to_vec();
    flip(&mut head, in_batch);
    let body = usize::try_from(crate::format::u32_at(&head, 56)?).ok()?;
    let end = from.checked_add(BATCH_HEADER)?.checked_add(body)?;
    let mut healed = bytes.get(..end)?.to_vec();
    flip(&mut healed, bit);
    Some((bit, healed))
}

fn flip(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

fn in_header(bytes: &[u8], place: Place, offset: u64) -> Option<usize> {
    let from = usize::try_from(offset).ok()?;
    let mut header = bytes.get(from..from.checked_add(BATCH_HEADER)?)?.to_vec();
    (0..BATCH_HEADER.saturating_mul(8)).find(|bit| {
        flip(&mut header, *bit);
        let whole = BatchHeader::decode(&header, place.seed, offset).is_some();
        flip(&mut header, *bit);
        whole
    })
}

fn in_body(bytes: &[u8], place: Place, offset: u64) -> Option<usize> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    let (header, _) = BatchHeader::decode(rest, place.seed, offset)?;
    let len = usize::try_from(header.body_len).ok()?;
    let body = rest.get(BATCH_HEADER..BATCH_HEADER.checked_add(len)?)?;
    let bit = flipped_bit(place.seed.at(offset, body), header.body_crc, len)?;
    bit.checked_add(BATCH_HEADER.saturating_mul(8))
}
