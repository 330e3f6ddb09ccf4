//! Fuzz targets: what must hold whatever the bytes are.
//!
//! `fuzz/` runs them under libFuzzer; the tests of this crate replay its corpora and mutate them with seeds. A target
//! panics when its property does not hold and returns otherwise.

use bytes::{Bytes, BytesMut};
use weir_proto::{
    Inbox, Received, Violation, Window,
    wire::{Answer, FRAME_HEADER, FrameHeader, Hello, MAX_HELLO, PREFIX, Records, Ticket},
};

use crate::Side;

pub use crate::script::pair;

/// A target: it panics when its property does not hold.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 5] = [
    ("frame", frame),
    ("record", record),
    ("ticket", ticket),
    ("hello", hello),
    ("pair", pair),
];

/// A lane's bytes: frames are the same however they are cut, and a header is what it encodes to.
///
/// # Panics
/// When that does not hold.
pub fn frame(data: &[u8]) {
    if let Some(header) = data.first_chunk::<FRAME_HEADER>()
        && let Ok(parsed) = FrameHeader::parse(*header)
    {
        assert_eq!(parsed.encode(), *header);
    }
    let whole = frames([data].into_iter());
    assert_eq!(frames(data.chunks(1)), whole, "byte by byte");
    assert_eq!(frames(data.chunks(7)), whole, "in sevens");
}

fn frames<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Received>, Option<Violation>) {
    let (mut inbox, mut buf, mut seen) = (Inbox::default(), BytesMut::new(), Vec::new());
    for chunk in chunks {
        buf.extend_from_slice(chunk);
        loop {
            match inbox.next(&mut buf) {
                Ok(Some(received)) => seen.push(received),
                Ok(None) => break,
                Err(violation) => return (seen, Some(violation)),
            }
        }
    }
    (seen, None)
}

/// A frame's records, to an end with open streams and a call: nothing panics, and what waits is bounded.
///
/// # Panics
/// When that does not hold.
pub fn record(data: &[u8]) {
    let parsed = Records::new(data).count();
    assert!(parsed <= data.len() / 8 + 1);
    let window = Window {
        records: 4,
        bytes: 256,
    };
    let mut side = Side::new(3);
    for index in 0..3 {
        let slot = side.mint(index, window);
        let key = side.open(slot, window);
        assert_eq!(key.map(|key| side.outbox.send(key, b"x")), Some(Ok(())));
    }
    let _id = side.outbox.call("f", 0, Bytes::from_static(b"q"), false);
    let frame = Bytes::copy_from_slice(data);
    let mut wire = BytesMut::new();
    side.write(&mut wire);
    if side.frame(&frame).is_ok() {
        let written = side.write(&mut wire);
        assert!(
            written <= 4 * parsed as u64 + 8,
            "{parsed} records caused {written}"
        );
    }
}

/// Bytes that are a ticket are what the ticket encodes to.
///
/// # Panics
/// When that does not hold.
pub fn ticket(data: &[u8]) {
    if let Ok(ticket) = Ticket::decode(data) {
        assert_eq!(ticket.encode(), data);
    }
}

/// A hello and an answer say the same again once they are encoded, and fit.
///
/// # Panics
/// When that does not hold.
pub fn hello(data: &[u8]) {
    if let Some(prefix) = data.first_chunk::<PREFIX>()
        && let Ok(len) = Hello::body_len(*prefix)
    {
        assert!(len <= MAX_HELLO);
    }
    let body = &data[..data.len().min(MAX_HELLO)];
    if let Ok(hello) = Hello::decode(body) {
        let again = hello.encode();
        assert_eq!(Hello::decode(body_of(&again)), Ok(hello));
    }
    if let Ok(answer) = Answer::decode(body) {
        let again = answer.encode();
        let decoded = Answer::decode(body_of(&again));
        match (answer, decoded) {
            (Answer::Refuse(code, _), Ok(Answer::Refuse(same, _))) => assert_eq!(code, same),
            (answer, decoded) => assert_eq!(decoded, Ok(answer)),
        }
    }
}

fn body_of(encoded: &[u8]) -> &[u8] {
    let (prefix, body) = encoded.split_first_chunk::<PREFIX>().expect("a prefix");
    assert_eq!(Hello::body_len(*prefix), Ok(body.len()));
    body
}
