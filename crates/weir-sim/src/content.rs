//! What records hold: bytes that follow from a number, so that a receiver can tell any two records apart.

use bytes::Bytes;

use crate::rng::Rng;

/// The `len` bytes of `id`.
pub(crate) fn content(id: u64, len: usize) -> Bytes {
    let mut rng = Rng::new(id.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let word = rng.next().to_le_bytes();
    let mut bytes = Vec::with_capacity(len + 8);
    // A run of one word, marked every KiB with its place, is as telling as noise and much cheaper to make.
    while bytes.len() < len {
        bytes.extend_from_slice(&(bytes.len() as u64 ^ u64::from_le_bytes(word)).to_le_bytes());
        for _ in 0..127 {
            if bytes.len() >= len {
                break;
            }
            bytes.extend_from_slice(&word);
        }
    }
    bytes.truncate(len);
    bytes.into()
}
