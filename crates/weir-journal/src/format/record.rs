//! Records inside a batch: a 16-byte head, a body, zeros up to eight bytes.
//!
//! Each record has its own checksum beside the batch's, so that a single one can be read and verified later.
//! The payload is summed first and the fields after it: a writer sums its payload before it takes any lock.

use super::seed::Seed;
use super::{put, u32_at, u64_at, u128_at};
use crate::record::Meta;

/// Bytes of a record's head.
pub(crate) const HEAD: usize = 16;
/// Bytes between a data record's head and its payload.
pub(crate) const DATA_FIELDS: usize = 32;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record that was appended.
    Append,
    /// The newest copy of a record whose old segment is given up.
    Carry,
    /// A list of seqs that are settled.
    Settle,
    /// The journal was closed here.
    Seal,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Append => 1,
            Self::Carry => 2,
            Self::Settle => 3,
            Self::Seal => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Append, Self::Carry, Self::Settle, Self::Seal]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// The fields of a data record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// The record's number in the journal.
    pub(crate) seq: u64,
    /// Whose work it is.
    pub(crate) meta: Meta,
    /// When it was appended, in milliseconds since 1970; told to people, never used for order.
    pub(crate) at_ms: u64,
}

/// One record as it lies in a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// Step of a data record, count of a settle list.
    arg: u32,
    /// Offset of its head in the body.
    pub(crate) at: usize,
    body: &'a [u8],
}

/// Bytes that a data record with a payload of `payload` bytes takes.
pub(crate) fn data_frame(payload: usize) -> usize {
    padded(payload.saturating_add(HEAD + DATA_FIELDS))
}

/// Bytes that a settle list of `count` seqs takes.
pub(crate) fn settle_frame(count: usize) -> usize {
    count.saturating_mul(8).saturating_add(HEAD)
}

fn padded(len: usize) -> usize {
    len.checked_next_multiple_of(8).unwrap_or(usize::MAX)
}

/// The checksum of a payload, to be handed to [`push_data`].
pub(crate) fn payload_crc(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}

/// Appends a data record to `out`. `crc` is [`payload_crc`] of `payload`.
pub(crate) fn push_data(
    out: &mut Vec<u8>,
    seed: Seed,
    kind: Kind,
    fields: &Fields,
    payload: &[u8],
    crc: u32,
) {
    let mut own = [0; DATA_FIELDS];
    put(&mut own, 0, &fields.seq.to_le_bytes());
    put(&mut own, 8, &fields.meta.request.to_le_bytes());
    put(&mut own, 24, &fields.at_ms.to_le_bytes());
    push(out, seed, kind, fields.meta.step, &own, payload, crc);
}

/// Appends a settle list to `out`.
pub(crate) fn push_settles(out: &mut Vec<u8>, seed: Seed, seqs: impl Iterator<Item = u64>) {
    let list: Vec<u8> = seqs.flat_map(u64::to_le_bytes).collect();
    let count = u32::try_from(list.len() / 8).unwrap_or(u32::MAX);
    push(out, seed, Kind::Settle, count, &[], &list, payload_crc(&list));
}

/// Appends the mark of a close to `out`.
pub(crate) fn push_seal(out: &mut Vec<u8>, seed: Seed) {
    push(out, seed, Kind::Seal, 0, &[], &[], payload_crc(&[]));
}

fn push(out: &mut Vec<u8>, seed: Seed, kind: Kind, arg: u32, own: &[u8], payload: &[u8], crc: u32) {
    let len = u32::try_from(own.len().saturating_add(payload.len())).unwrap_or(u32::MAX);
    let mut head = [0; HEAD];
    put(&mut head, 0, &[kind.code()]);
    put(&mut head, 4, &len.to_le_bytes());
    put(&mut head, 12, &arg.to_le_bytes());
    let crc = seed.bind(seed.bind(crc, own), &head);
    put(&mut head, 8, &crc.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(own);
    out.extend_from_slice(payload);
    out.resize(padded(out.len()), 0);
}

impl<'a> Frame<'a> {
    /// The record at `at` of `body`, verified, and the offset behind it.
    pub(crate) fn decode(body: &'a [u8], at: usize, seed: Seed) -> Option<(Self, usize)> {
        let mut head: [u8; HEAD] = body.get(at..at.checked_add(HEAD)?)?.try_into().ok()?;
        let kind = Kind::from_code(u32_at(&head, 0)?.try_into().ok()?)?;
        let len = usize::try_from(u32_at(&head, 4)?).ok()?;
        let crc = u32_at(&head, 8)?;
        let arg = u32_at(&head, 12)?;
        let from = at.checked_add(HEAD)?;
        let bytes = body.get(from..from.checked_add(len)?)?;
        let own = if matches!(kind, Kind::Append | Kind::Carry) {
            DATA_FIELDS
        } else {
            0
        };
        let (own, payload) = bytes.split_at_checked(own)?;
        put(&mut head, 8, &[0; 4]);
        if seed.bind(seed.bind(payload_crc(payload), own), &head) != crc {
            return None;
        }
        let next = padded(from.checked_add(len)?).min(body.len());
        Some((
            Self {
                kind,
                arg,
                at,
                body: bytes,
            },
            next,
        ))
    }

    /// The fields of a data record.
    pub(crate) fn fields(&self) -> Option<Fields> {
        let meta = Meta {
            request: u128_at(self.body, 8)?,
            step: self.arg,
        };
        Some(Fields {
            seq: u64_at(self.body, 0)?,
            meta,
            at_ms: u64_at(self.body, 24)?,
        })
    }

    /// The payload of a data record.
    pub(crate) fn payload(&self) -> &'a [u8] {
        self.body.get(DATA_FIELDS..).unwrap_or_default()
    }

    /// The seqs of a settle list.
    pub(crate) fn settles(&self) -> impl Iterator<Item = u64> + 'a {
        self.body.chunks_exact(8).filter_map(|word| u64_at(word, 0))
    }

    /// Bytes the record takes in the body.
    pub(crate) fn len(&self) -> usize {
        padded(self.body.len().saturating_add(HEAD))
    }
}

/// All records of a body, or None when one does not verify or there are not exactly `count`.
pub(crate) fn frames(body: &[u8], count: u32, seed: Seed) -> Option<Vec<Frame<'_>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let (frame, next) = Frame::decode(body, at, seed)?;
        found.push(frame);
        at = next;
    }
    (found.len() == usize::try_from(count).ok()?).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(seq: u64) -> Fields {
        Fields {
            seq,
            meta: Meta {
                request: 0xAB << 100,
                step: 17,
            },
            at_ms: 99,
        }
    }

    proptest! {
        #[test]
        fn records_read_back_as_written(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..8)) {
            let seed = Seed::new(3, 4);
            let mut body = Vec::new();
            for (seq, payload) in (0u64..).zip(&payloads) {
                let before = body.len();
                push_data(&mut body, seed, Kind::Append, &fields(seq), payload, payload_crc(payload));
                prop_assert_eq!(body.len() - before, data_frame(payload.len()));
            }
            push_settles(&mut body, seed, [4u64, 9].into_iter());
            push_seal(&mut body, seed);
            let read = frames(&body, u32::try_from(payloads.len() + 2).unwrap(), seed).unwrap();
            for (seq, (payload, frame)) in (0u64..).zip(payloads.iter().zip(&read)) {
                prop_assert_eq!(frame.fields(), Some(fields(seq)));
                prop_assert_eq!(frame.payload(), &payload[..]);
                prop_assert_eq!(frame.len(), data_frame(payload.len()));
            }
            prop_assert_eq!(read[payloads.len()].settles().collect::<Vec<_>>(), vec![4, 9]);
            prop_assert_eq!(read[payloads.len() + 1].kind, Kind::Seal);
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400), count in any::<u32>()) {
            let _ = frames(&body, count, Seed::new(1, 1));
        }
    }

    #[test]
    fn a_length_near_the_end_of_the_number_range_is_refused() {
        let seed = Seed::new(1, 1);
        let mut body = Vec::new();
        push_data(
            &mut body,
            seed,
            Kind::Append,
            &fields(1),
            b"hop",
            payload_crc(b"hop"),
        );
        for len in [u32::MAX, u32::MAX - 3, u32::MAX - 16, 36] {
            body[4..8].copy_from_slice(&len.to_le_bytes());
            assert!(Frame::decode(&body, 0, seed).is_none());
        }
    }
}
