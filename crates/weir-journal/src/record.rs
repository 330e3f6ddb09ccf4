//! What a caller puts in and gets back: the label of a record, its entry in the list of open work, the record.

/// Whose work a record is, for the census and for the receiver. The journal stores it and does not interpret it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The request.
    pub request: u128,
    /// The step of the request.
    pub step: u32,
}

/// One open record, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRecord {
    /// The record's number: grows, never used twice in a journal. Receivers drop repeats by (journal id, seq).
    pub seq: u64,
    /// Whose work it is.
    pub meta: Meta,
    /// When it was appended, in milliseconds since 1970 by the writer's clock. For people; order is by `seq`.
    pub at_ms: u64,
    /// Bytes of the payload.
    pub len: usize,
}

/// One open record with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number, label, time and length.
    pub entry: OpenRecord,
    /// The bytes that were appended.
    pub payload: Vec<u8>,
}
