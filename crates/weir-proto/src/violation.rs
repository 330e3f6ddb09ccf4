//! What a peer can do wrong, and the wire code each ends the link with. The one place that maps them.

/// A rule of the protocol that the peer broke. It ends the link; the process and other peers go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame of a kind this version does not know.
    #[error("unknown frame kind {0}")]
    UnknownFrame(u8),
    /// A frame whose header is inconsistent.
    #[error("malformed frame header")]
    MalformedFrame,
    /// A frame with a payload over the limit.
    #[error("frame payload of {0} bytes is over the limit")]
    FrameTooLarge(u32),
    /// A batch frame without a record.
    #[error("empty batch frame")]
    EmptyFrame,
    /// A frame whose number is not the next one.
    #[error("frame number {got} where {expected} was next")]
    FrameNumber {
        /// The number that was next.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// An ack for a frame that was never sent.
    #[error("ack of frame {0}, which was never sent")]
    AckUnsent(u64),
    /// A record of a kind this version does not know.
    #[error("unknown record kind {0}")]
    UnknownRecord(u8),
    /// A record that runs past its frame or whose body has a wrong length or content.
    #[error("malformed record of kind {0}")]
    MalformedRecord(u8),
    /// A slot index outside the consumer's table.
    #[error("slot index {0} is outside the table")]
    SlotOutOfTable(u32),
    /// A record past the stream's credit limit.
    #[error("record past the credit limit")]
    PastLimit,
    /// A credit limit beyond what was sent plus the negotiated maximum.
    #[error("grant beyond the negotiated window")]
    GrantTooLarge,
    /// More calls or call bytes in flight than agreed.
    #[error("more calls in flight than agreed")]
    CallsInFlight,
    /// A call, reply or fragment that fits no call in flight.
    #[error("call protocol broken")]
    CallProtocol,
    /// More refusals pending than the link keeps.
    #[error("too many refused streams")]
    TooManyRefusals,
    /// More handlers announced than a link keeps.
    #[error("too many handlers announced")]
    TooManyHandlers,
}

impl Violation {
    /// The code that travels in `Bye`.
    pub fn code(self) -> u16 {
        match self {
            Self::UnknownFrame(_) => 0x101,
            Self::MalformedFrame => 0x102,
            Self::FrameTooLarge(_) => 0x103,
            Self::EmptyFrame => 0x104,
            Self::FrameNumber { .. } => 0x105,
            Self::AckUnsent(_) => 0x106,
            Self::UnknownRecord(_) => 0x201,
            Self::MalformedRecord(_) => 0x202,
            Self::SlotOutOfTable(_) => 0x203,
            Self::PastLimit => 0x204,
            Self::GrantTooLarge => 0x205,
            Self::CallsInFlight => 0x301,
            Self::CallProtocol => 0x302,
            Self::TooManyRefusals => 0x303,
            Self::TooManyHandlers => 0x304,
        }
    }

    /// A short name for metrics labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::UnknownFrame(_) => "unknown_frame",
            Self::MalformedFrame => "malformed_frame",
            Self::FrameTooLarge(_) => "frame_too_large",
            Self::EmptyFrame => "empty_frame",
            Self::FrameNumber { .. } => "frame_number",
            Self::AckUnsent(_) => "ack_unsent",
            Self::UnknownRecord(_) => "unknown_record",
            Self::MalformedRecord(_) => "malformed_record",
            Self::SlotOutOfTable(_) => "slot_out_of_table",
            Self::PastLimit => "past_limit",
            Self::GrantTooLarge => "grant_too_large",
            Self::CallsInFlight => "calls_in_flight",
            Self::CallProtocol => "call_protocol",
            Self::TooManyRefusals => "too_many_refusals",
            Self::TooManyHandlers => "too_many_handlers",
        }
    }
}
