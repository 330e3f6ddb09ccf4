//! Frame headers: `u32 payload length, u8 kind, u8 flags, u16 zero, u64 number`.

use super::Cursor;
use crate::Violation;

/// Bytes of a frame header.
pub const FRAME_HEADER: usize = 16;
/// Largest frame, header included.
pub const MAX_FRAME: usize = 32 * 1024;
/// Largest payload of a frame.
pub const MAX_PAYLOAD: usize = MAX_FRAME - FRAME_HEADER;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Records. Numbered from 1, one after the other.
    Batch,
    /// The number of the last batch frame that was taken.
    Ack,
    /// Nothing; the lane is alive.
    Keepalive,
    /// The link ends: `u16 code`, UTF-8 message.
    Bye,
}

impl FrameKind {
    const ALL: [(Self, u8); 4] = [
        (Self::Batch, 1),
        (Self::Ack, 2),
        (Self::Keepalive, 3),
        (Self::Bye, 4),
    ];

    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        Self::ALL
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or(0, |(_, byte)| *byte)
    }
}

/// A parsed frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes after the header.
    pub payload: u32,
    /// What the frame is.
    pub kind: FrameKind,
    /// The frame's number (batch), the acknowledged number (ack), else 0.
    pub number: u64,
}

impl FrameHeader {
    /// Parses a header.
    ///
    /// # Errors
    /// A [`Violation`] when the kind is unknown, a reserved bit is set, or a length does not fit the kind.
    pub fn parse(bytes: [u8; FRAME_HEADER]) -> Result<Self, Violation> {
        let mut cursor = Cursor::new(&bytes);
        let fields = (cursor.u32(), cursor.u8(), cursor.u8(), cursor.u16(), cursor.u64());
        let (Some(payload), Some(kind), Some(flags), Some(zero), Some(number)) = fields else {
            return Err(Violation::MalformedFrame);
        };
        let kind = FrameKind::ALL
            .iter()
            .find(|(_, byte)| *byte == kind)
            .map(|(kind, _)| *kind)
            .ok_or(Violation::UnknownFrame(kind))?;
        if usize::try_from(payload).map_or(true, |len| len > MAX_PAYLOAD) {
            return Err(Violation::FrameTooLarge(payload));
        }
        let fits = match kind {
            FrameKind::Batch if payload == 0 => return Err(Violation::EmptyFrame),
            FrameKind::Batch => true,
            FrameKind::Ack => payload == 0,
            FrameKind::Keepalive => payload == 0 && number == 0,
            FrameKind::Bye => payload >= 2 && number == 0,
        };
        if flags != 0 || zero != 0 || !fits {
            return Err(Violation::MalformedFrame);
        }
        Ok(Self {
            payload,
            kind,
            number,
        })
    }

    /// The header's bytes.
    pub fn encode(self) -> [u8; FRAME_HEADER] {
        let [l0, l1, l2, l3] = self.payload.to_le_bytes();
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.number.to_le_bytes();
        [
            l0,
            l1,
            l2,
            l3,
            self.kind.byte(),
            0,
            0,
            0,
            n0,
            n1,
            n2,
            n3,
            n4,
            n5,
            n6,
            n7,
        ]
    }
}
