//! Eight bytes of header, then the body: `u32` kind and slot, `u32` length, both little-endian.

use anyhow::{Result, bail};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

const SLOT_BITS: u32 = 28;
const MAX_BODY: usize = 64 * 1024;

/// What a frame says about its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One record, to the consumer.
    Record,
    /// The clean end, to the consumer.
    End,
    /// A start request, to the producer.
    Start,
    /// The number of records that may be sent in all, to the producer; in place of the length, without a body.
    Grant,
}

/// A frame as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) slot: u32,
    /// The granted limit in a grant, else the body's length.
    pub(super) number: u32,
    pub(super) body: Bytes,
}

pub(super) fn put(buffer: &mut BytesMut, kind: Kind, slot: u32, body: &[u8]) {
    put_header(buffer, kind, slot, u32::try_from(body.len()).unwrap_or(u32::MAX));
    buffer.put_slice(body);
}

pub(super) fn put_grant(buffer: &mut BytesMut, slot: u32, limit: u32) {
    put_header(buffer, Kind::Grant, slot, limit);
}

fn put_header(buffer: &mut BytesMut, kind: Kind, slot: u32, number: u32) {
    buffer.put_u32_le(slot | ((kind as u32) << SLOT_BITS));
    buffer.put_u32_le(number);
}

/// Takes the first frame off `buffer`, if it is there whole.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Frame>> {
    let Some((header, rest)) = buffer.split_first_chunk::<8>() else {
        return Ok(None);
    };
    let [a, b, c, d, e, f, g, h] = *header;
    let (tag, number) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let kind = match tag >> SLOT_BITS {
        0 => Kind::Record,
        1 => Kind::End,
        2 => Kind::Start,
        3 => Kind::Grant,
        other => bail!("a frame of unknown kind {other}"),
    };
    let length = if kind == Kind::Grant { 0 } else { number as usize };
    if length > MAX_BODY {
        bail!("a frame of {length} bytes is over {MAX_BODY}");
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let body = Bytes::copy_from_slice(body);
    buffer.advance(8 + length);
    Ok(Some(Frame {
        kind,
        slot: tag & ((1 << SLOT_BITS) - 1),
        number,
        body,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_and_in_order_however_they_are_cut() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, Kind::Start, 9, b"start");
        put_grant(&mut bytes, 9, 48);
        put(&mut bytes, Kind::Record, 9, b"");
        put(&mut bytes, Kind::End, 9, b"");
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        for byte in bytes {
            buffer.put_u8(byte);
            frames.extend(take(&mut buffer).unwrap());
        }
        let frame = |kind, number, body: &'static [u8]| Frame {
            kind,
            slot: 9,
            number,
            body: body.into(),
        };
        let expected = [
            frame(Kind::Start, 5, b"start"),
            frame(Kind::Grant, 48, b""),
            frame(Kind::Record, 0, b""),
            frame(Kind::End, 0, b""),
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn an_unknown_kind_or_an_oversized_body_is_an_error() {
        let mut unknown = BytesMut::from(&[0, 0, 0, 0xf0, 0, 0, 0, 0][..]);
        assert!(take(&mut unknown).is_err());
        let mut huge = BytesMut::from(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..]);
        assert!(take(&mut huge).is_err());
    }
}
