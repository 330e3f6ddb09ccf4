//! What a lane receives: bytes in, whole frames out.
//!
//! Invariant: a batch frame is handed out iff its number is next; a lower one is a repeat and dropped, a higher one a
//! violation. Memory grows only with bytes that arrived.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    Violation,
    wire::{Cursor, FRAME_HEADER, FrameHeader, FrameKind},
};

/// A frame that arrived whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Records of a batch frame.
    Batch(Bytes),
    /// The peer has taken all frames up to this one.
    Ack(u64),
    /// The peer is alive.
    Keepalive,
    /// The peer ends the link: code and message.
    Bye(u16, String),
}

/// The receiving side of a lane.
#[derive(Debug, Default)]
pub struct Inbox {
    taken: u64,
    repeated: u64,
}

impl Inbox {
    /// The number of the last batch frame handed out, 0 before the first.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Frames dropped because their number had been taken.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The next whole frame at the front of `buf`, if it is there.
    ///
    /// # Errors
    /// A [`Violation`] of the frame layer. Bytes after it must not be parsed.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Received>, Violation> {
        loop {
            let Some(header) = buf.first_chunk::<FRAME_HEADER>() else {
                return Ok(None);
            };
            let header = FrameHeader::parse(*header)?;
            let payload = header.payload as usize;
            if buf.len() < FRAME_HEADER + payload {
                return Ok(None);
            }
            buf.advance(FRAME_HEADER);
            match header.kind {
                FrameKind::Keepalive => return Ok(Some(Received::Keepalive)),
                FrameKind::Ack => return Ok(Some(Received::Ack(header.number))),
                FrameKind::Bye => return Ok(Some(bye(&buf.split_to(payload)))),
                FrameKind::Batch => {
                    let records = buf.split_to(payload).freeze();
                    if self.number(header.number)? {
                        return Ok(Some(Received::Batch(records)));
                    }
                }
            }
        }
    }

    fn number(&mut self, got: u64) -> Result<bool, Violation> {
        let expected = self.taken + 1;
        if got > expected {
            return Err(Violation::FrameNumber { expected, got });
        }
        if got < expected {
            self.repeated += 1;
            return Ok(false);
        }
        self.taken = got;
        Ok(true)
    }
}

fn bye(payload: &[u8]) -> Received {
    let mut cursor = Cursor::new(payload);
    let code = cursor.u16().unwrap_or(0);
    let message: String = String::from_utf8_lossy(cursor.rest()).chars().take(256).collect();
    Received::Bye(code, message)
}
