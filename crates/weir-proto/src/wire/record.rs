//! Records: `u24 slot index, u8 kind, u16 generation, u16 body length`, then the body.

use super::{ClaimToken, Cursor, MAX_PAYLOAD, SlotRef};
use crate::Violation;

/// Bytes of a record header.
pub const RECORD_HEADER: usize = 8;
/// Largest body of a record.
pub const MAX_BODY: usize = MAX_PAYLOAD - RECORD_HEADER;
/// Largest message of a failed end.
pub const MAX_MESSAGE: usize = 1024;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $byte:literal,)*) => {
        /// What a record is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RecordKind { $($(#[$doc])* $name,)* }

        impl RecordKind {
            /// The byte on the wire.
            pub fn byte(self) -> u8 {
                match self { $(Self::$name => $byte,)* }
            }

            /// The kind of a byte.
            pub fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Producer: claims the slot. Body: claim token.
    Open = 1,
    /// Producer: claims the slot and brings the first item whole. Body: claim token, item.
    OpenItem = 2,
    /// Producer: an item, or the last part of one.
    Item = 3,
    /// Producer: a part of an item; more follow.
    Part = 4,
    /// Producer: the end. Body: `u8 code`, and for a failure `u32 code`, UTF-8 message.
    End = 5,
    /// Consumer: credit limit. Body: `u64 records`, `u64 bytes`.
    Grant = 16,
    /// Consumer: finish with what you have.
    Stop = 17,
    /// Consumer: end now; its half of the close.
    Cancel = 18,
    /// Consumer: has taken everything; its half of the close. Body: `u64 records taken`.
    Closed = 19,
    /// Consumer: the claim failed. Body: `u8 code`.
    Refused = 20,
    /// A call begins. Body: `u64 id`, `u8 flags`, `u32 deadline in ms`, `u32 length`, `u8 name length`, name, bytes.
    Call = 32,
    /// More bytes of a call. Body: `u64 id`, bytes.
    CallPart = 33,
    /// The answer begins. Body: `u64 id`, `u8 status`, `u32 length`, bytes.
    Reply = 34,
    /// More bytes of an answer. Body: `u64 id`, bytes.
    ReplyPart = 35,
    /// The caller no longer waits. Body: `u64 id`.
    CallCancel = 36,
    /// Handlers of the sender: one or more of `u8 change (1 added, 0 removed), u8 length, name`.
    Handlers = 40,
}

/// How a producer ended its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCode {
    /// Everything was sent.
    Finished,
    /// The producer lets go; another may be given a ticket.
    Detached,
    /// The sender was dropped without an end, or answered a cancel.
    Dropped,
    /// The producer failed.
    Failed,
}

impl EndCode {
    const ALL: [(Self, u8); 4] = [
        (Self::Finished, 0),
        (Self::Detached, 1),
        (Self::Dropped, 2),
        (Self::Failed, 3),
    ];

    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        Self::ALL
            .iter()
            .find(|(code, _)| *code == self)
            .map_or(0, |(_, byte)| *byte)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, b)| *b == byte).map(|(code, _)| *code)
    }
}

/// Why a claim failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedCode {
    /// The slot is free or of another generation: the ticket expired, was voided, or was used before.
    Gone,
    /// The claim token or the claiming peer is wrong.
    NotYours,
}

impl RefusedCode {
    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        u8::from(self == Self::NotYours)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Gone),
            1 => Some(Self::NotYours),
            _ => None,
        }
    }
}

/// How a call was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// The handler answered.
    Ok,
    /// The handler failed; the body is its message.
    Failed,
    /// There is no such handler.
    NoHandler,
}

impl ReplyStatus {
    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::NoHandler => 2,
        }
    }

    /// The status of a byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Ok, Self::Failed, Self::NoHandler]
            .into_iter()
            .find(|status| status.byte() == byte)
    }
}

/// A record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The stream, or zeros where the record belongs to none.
    pub slot: SlotRef,
    /// What the record is.
    pub kind: RecordKind,
    /// Bytes after the header.
    pub body: u16,
}

impl RecordHeader {
    /// The header's bytes.
    pub fn encode(self) -> [u8; RECORD_HEADER] {
        let [i0, i1, i2, _] = self.slot.index.to_le_bytes();
        let [g0, g1] = self.slot.generation.to_le_bytes();
        let [b0, b1] = self.body.to_le_bytes();
        [i0, i1, i2, self.kind.byte(), g0, g1, b0, b1]
    }
}

/// A parsed record; bodies borrow from the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// See [`RecordKind::Open`] and [`RecordKind::OpenItem`].
    Open(SlotRef, ClaimToken, Option<&'a [u8]>),
    /// See [`RecordKind::Item`].
    Item(SlotRef, &'a [u8]),
    /// See [`RecordKind::Part`].
    Part(SlotRef, &'a [u8]),
    /// See [`RecordKind::End`]; code and message of a failure.
    End(SlotRef, EndCode, u32, &'a str),
    /// See [`RecordKind::Grant`]: records, bytes.
    Grant(SlotRef, u64, u64),
    /// See [`RecordKind::Stop`].
    Stop(SlotRef),
    /// See [`RecordKind::Cancel`].
    Cancel(SlotRef),
    /// See [`RecordKind::Closed`].
    Closed(SlotRef, u64),
    /// See [`RecordKind::Refused`].
    Refused(SlotRef, RefusedCode),
    /// See [`RecordKind::Call`].
    Call {
        /// The call.
        id: u64,
        /// Nobody waits for the reply.
        cast: bool,
        /// Milliseconds the caller waits; 0 for a cast.
        deadline_ms: u32,
        /// Length of the whole request.
        len: u32,
        /// Handler.
        name: &'a str,
        /// First bytes.
        bytes: &'a [u8],
    },
    /// See [`RecordKind::CallPart`].
    CallPart(u64, &'a [u8]),
    /// See [`RecordKind::Reply`]: id, status byte, length of the whole reply, first bytes.
    Reply(u64, u8, u32, &'a [u8]),
    /// See [`RecordKind::ReplyPart`].
    ReplyPart(u64, &'a [u8]),
    /// See [`RecordKind::CallCancel`].
    CallCancel(u64),
    /// See [`RecordKind::Handlers`]: changes still encoded.
    Handlers(&'a [u8]),
}

/// Iterates over the records of a batch frame's payload; stops after the first error.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a>(Cursor<'a>);

impl<'a> Records<'a> {
    /// The records of `payload`.
    pub fn new(payload: &'a [u8]) -> Self {
        Self(Cursor::new(payload))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Violation>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = parse(&mut self.0);
        if record.is_err() {
            self.0 = Cursor::new(&[]);
        }
        Some(record)
    }
}

#[inline]
fn parse<'a>(cursor: &mut Cursor<'a>) -> Result<Record<'a>, Violation> {
    let [i0, i1, i2, kind, g0, g1, b0, b1] = cursor
        .array::<RECORD_HEADER>()
        .ok_or(Violation::MalformedRecord(0))?;
    let slot = SlotRef {
        index: u32::from_le_bytes([i0, i1, i2, 0]),
        generation: u16::from_le_bytes([g0, g1]),
    };
    let malformed = Violation::MalformedRecord(kind);
    let body = cursor
        .bytes(usize::from(u16::from_le_bytes([b0, b1])))
        .ok_or(malformed)?;
    let known = RecordKind::from_byte(kind).ok_or(Violation::UnknownRecord(kind))?;
    if known == RecordKind::Item {
        return Ok(Record::Item(slot, body));
    }
    parse_body(known, slot, body).ok_or(malformed)
}

fn parse_body(kind: RecordKind, slot: SlotRef, body: &[u8]) -> Option<Record<'_>> {
    let mut c = Cursor::new(body);
    let record = match kind {
        RecordKind::Item => return Some(Record::Item(slot, body)),
        RecordKind::Part => return Some(Record::Part(slot, body)),
        RecordKind::Open => Record::Open(slot, ClaimToken(c.array()?), None),
        RecordKind::OpenItem => return Some(Record::Open(slot, ClaimToken(c.array()?), Some(c.rest()))),
        RecordKind::End => return parse_end(slot, c),
        RecordKind::Grant => Record::Grant(slot, c.u64()?, c.u64()?),
        RecordKind::Stop => Record::Stop(slot),
        RecordKind::Cancel => Record::Cancel(slot),
        RecordKind::Closed => Record::Closed(slot, c.u64()?),
        RecordKind::Refused => Record::Refused(slot, RefusedCode::from_byte(c.u8()?)?),
        RecordKind::Call => return parse_call(c),
        RecordKind::CallPart => return Some(Record::CallPart(c.u64()?, c.rest())),
        RecordKind::Reply => return Some(Record::Reply(c.u64()?, c.u8()?, c.u32()?, c.rest())),
        RecordKind::ReplyPart => return Some(Record::ReplyPart(c.u64()?, c.rest())),
        RecordKind::CallCancel => Record::CallCancel(c.u64()?),
        RecordKind::Handlers => return Some(Record::Handlers(body)),
    };
    c.is_empty().then_some(record)
}

fn parse_end(slot: SlotRef, mut c: Cursor<'_>) -> Option<Record<'_>> {
    let code = EndCode::from_byte(c.u8()?)?;
    if code != EndCode::Failed {
        return c.is_empty().then_some(Record::End(slot, code, 0, ""));
    }
    let failure = c.u32()?;
    let message = std::str::from_utf8(c.rest()).ok()?;
    (message.len() <= MAX_MESSAGE).then_some(Record::End(slot, code, failure, message))
}

fn parse_call(mut c: Cursor<'_>) -> Option<Record<'_>> {
    let id = c.u64()?;
    let cast = match c.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let (deadline_ms, len) = (c.u32()?, c.u32()?);
    let name_len = usize::from(c.u8()?);
    let name = std::str::from_utf8(c.bytes(name_len)?).ok()?;
    Some(Record::Call {
        id,
        cast,
        deadline_ms,
        len,
        name,
        bytes: c.rest(),
    })
}
