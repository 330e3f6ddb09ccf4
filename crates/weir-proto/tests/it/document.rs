//! `docs/wire.md` is true: its vectors read and write both ways, its tables list what the code knows.

use std::collections::BTreeMap;

use weir_proto::{
    Batch, Inbox, Received, Violation,
    wire::{
        Answer, ClaimToken, FRAME_HEADER, FrameHeader, FrameKind, Hello, NodeId, PREFIX, RECORD_HEADER,
        Record, RecordKind, Records, RefuseCode, SlotRef, Ticket,
    },
};

use crate::{
    codec::{Raw, raw},
    pair::frames,
};

const SLOT: SlotRef = SlotRef {
    index: 0x0001_0203,
    generation: 0x0405,
};
const NONE: SlotRef = SlotRef {
    index: 0,
    generation: 0,
};
const TOKEN: [u8; 16] = [0xaa; 16];

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks marked `vector NAME`.
fn vectors(document: &str) -> BTreeMap<String, Vec<u8>> {
    let mut vectors = BTreeMap::new();
    for block in document.split("```vector ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let (hex, _) = rest.split_once("```").unwrap();
        let bytes = hex
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap());
        assert!(
            vectors.insert(name.trim().to_owned(), bytes.collect()).is_none(),
            "{name} is there twice"
        );
    }
    vectors
}

fn hello() -> Hello {
    Hello {
        node: NodeId([0x11; 16]),
        incarnation: 0x0807_0605_0403_0201,
        max_window_records: 32,
        max_window_bytes: 65_536,
        listen: "127.0.0.1:7000".to_owned(),
    }
}

fn ticket() -> Ticket {
    Ticket {
        node: NodeId([0x11; 16]),
        incarnation: 0x0807_0605_0403_0201,
        peer: NodeId([0x22; 16]),
        slot: SLOT,
        token: ClaimToken(TOKEN),
        window_records: 32,
        window_bytes: 65_536,
        expires_unix_ms: 1_700_000_000_000,
    }
}

fn header(kind: FrameKind, payload: u32, number: u64) -> Vec<u8> {
    FrameHeader {
        payload,
        kind,
        number,
    }
    .encode()
    .to_vec()
}

fn id() -> Vec<u8> {
    7_u64.to_le_bytes().to_vec()
}

/// Name and record of every vector that is one.
fn records() -> Vec<(&'static str, Raw)> {
    use RecordKind as K;
    let call = [
        &id()[..],
        &[0],
        &30_000_u32.to_le_bytes(),
        &2_u32.to_le_bytes(),
        &[4],
        b"echo",
        b"hi",
    ]
    .concat();
    let cast = [&8_u64.to_le_bytes()[..], &[1], &[0; 4], &[0; 4], &[4], b"echo"].concat();
    let reply = [&id()[..], &[0], &5_u32.to_le_bytes(), b"hel"].concat();
    let failed = [&[3], &500_u32.to_le_bytes()[..], "no é".as_bytes()].concat();
    vec![
        ("open", (SLOT, K::Open, TOKEN.to_vec())),
        ("open-item", (SLOT, K::OpenItem, [&TOKEN[..], b"hi"].concat())),
        ("item", (SLOT, K::Item, b"hello".to_vec())),
        ("item-empty", (SLOT, K::Item, Vec::new())),
        ("part", (SLOT, K::Part, b"hel".to_vec())),
        ("end-finished", (SLOT, K::End, vec![0])),
        ("end-detached", (SLOT, K::End, vec![1])),
        ("end-dropped", (SLOT, K::End, vec![2])),
        ("end-failed", (SLOT, K::End, failed)),
        (
            "grant",
            (
                SLOT,
                K::Grant,
                [40_u64.to_le_bytes(), 66_000_u64.to_le_bytes()].concat(),
            ),
        ),
        ("stop", (SLOT, K::Stop, Vec::new())),
        ("cancel", (SLOT, K::Cancel, Vec::new())),
        ("closed", (SLOT, K::Closed, 12_u64.to_le_bytes().to_vec())),
        ("refused-gone", (SLOT, K::Refused, vec![0])),
        ("refused-not-yours", (SLOT, K::Refused, vec![1])),
        ("call", (NONE, K::Call, call)),
        ("cast", (NONE, K::Call, cast)),
        ("call-part", (NONE, K::CallPart, [&id()[..], b"more"].concat())),
        ("reply", (NONE, K::Reply, reply)),
        ("reply-part", (NONE, K::ReplyPart, [&id()[..], b"lo"].concat())),
        ("call-cancel", (NONE, K::CallCancel, id())),
        (
            "handlers",
            (NONE, K::Handlers, b"\x01\x04echo\x00\x03old".to_vec()),
        ),
    ]
}

fn batch(record: &Raw) -> Vec<u8> {
    let mut batch = Batch::new(usize::MAX);
    batch.push(record.0, record.1, &[&record.2]);
    frames(&mut batch).concat()
}

/// Every vector as this build writes it.
fn written() -> BTreeMap<&'static str, Vec<u8>> {
    let mut all: BTreeMap<_, _> = records()
        .into_iter()
        .map(|(name, record)| (name, batch(&record)[FRAME_HEADER..].to_vec()))
        .collect();
    let refusal = Answer::Refuse(RefuseCode::Version, "this node speaks version 1".to_owned());
    let bye = [header(FrameKind::Bye, 6, 0), vec![0x04, 0x02], b"past".to_vec()].concat();
    all.extend([
        ("hello", hello().encode()),
        ("answer", Answer::Accept(hello()).encode()),
        ("refusal", refusal.encode()),
        ("ticket", ticket().encode()),
        ("frame-batch", batch(&(SLOT, RecordKind::Item, b"hello".to_vec()))),
        ("frame-ack", header(FrameKind::Ack, 0, 300)),
        ("frame-keepalive", header(FrameKind::Keepalive, 0, 0)),
        ("frame-bye", bye),
    ]);
    all
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| {
        line.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_vectors_are_what_this_build_writes() {
    let (document, written) = (vectors(&document()), written());
    for (name, bytes) in &written {
        let there = document.get(*name).map(|bytes| hex(bytes)).unwrap_or_default();
        assert_eq!(there, hex(bytes), "vector {name}");
    }
    assert_eq!(document.len(), written.len(), "vectors that no test writes");
}

#[test]
fn the_vectors_of_records_read_back() {
    let vectors = vectors(&document());
    for (name, record) in records() {
        let parsed: Vec<_> = Records::new(&vectors[name])
            .map(|record| raw(&record.unwrap()))
            .collect();
        assert_eq!(parsed, [record], "vector {name}");
    }
}

#[test]
fn the_other_vectors_read_back() {
    let vectors = vectors(&document());
    let body = |name: &str| {
        let (prefix, body) = vectors[name].split_at(PREFIX);
        assert_eq!(Hello::body_len(prefix.try_into().unwrap()), Ok(body.len()));
        body.to_vec()
    };
    assert_eq!(Hello::decode(&body("hello")), Ok(hello()));
    assert_eq!(Answer::decode(&body("answer")), Ok(Answer::Accept(hello())));
    assert!(matches!(
        Answer::decode(&body("refusal")),
        Ok(Answer::Refuse(RefuseCode::Version, _))
    ));
    assert_eq!(Ticket::decode(&vectors["ticket"]), Ok(ticket()));
    let mut lane = bytes::BytesMut::new();
    for name in ["frame-batch", "frame-ack", "frame-keepalive", "frame-bye"] {
        lane.extend_from_slice(&vectors[name]);
    }
    let mut inbox = Inbox::default();
    let mut next = || inbox.next(&mut lane).unwrap().unwrap();
    let Received::Batch(payload) = next() else {
        panic!("no batch")
    };
    assert_eq!(payload.len(), RECORD_HEADER + 5);
    assert_eq!(
        Records::new(&payload).next(),
        Some(Ok(Record::Item(SLOT, b"hello")))
    );
    assert_eq!(next(), Received::Ack(300));
    assert_eq!(next(), Received::Keepalive);
    assert_eq!(next(), Received::Bye(0x204, "past".to_owned()));
}

#[test]
fn the_table_of_violations_is_complete() {
    let all = [
        Violation::UnknownFrame(9),
        Violation::MalformedFrame,
        Violation::FrameTooLarge(40_000),
        Violation::EmptyFrame,
        Violation::FrameNumber { expected: 2, got: 4 },
        Violation::AckUnsent(9),
        Violation::UnknownRecord(9),
        Violation::MalformedRecord(5),
        Violation::SlotOutOfTable(9),
        Violation::PastLimit,
        Violation::GrantTooLarge,
        Violation::CallsInFlight,
        Violation::CallProtocol,
        Violation::TooManyRefusals,
        Violation::TooManyHandlers,
    ];
    let expected: Vec<_> = all
        .iter()
        .map(|violation| format!("| `{:#x}` | `{}` |", violation.code(), violation.label()))
        .collect();
    let document = document();
    let rows: Vec<_> = document
        .lines()
        .filter(|line| line.starts_with("| `0x"))
        .collect();
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert!(row.starts_with(expected.as_str()), "{row}, not {expected}");
    }
}

#[test]
fn the_table_of_record_kinds_is_complete() {
    let document = document();
    let known: Vec<u8> = (0..=u8::MAX)
        .filter(|byte| RecordKind::from_byte(*byte).is_some())
        .collect();
    for byte in &known {
        let kind = RecordKind::from_byte(*byte).unwrap();
        assert!(
            document.contains(&format!("| {byte} | `{kind:?}` |")),
            "{kind:?} is {byte} and not in the table"
        );
    }
    let rows = document.lines().filter(|line| {
        known
            .iter()
            .any(|byte| line.starts_with(&format!("| {byte} | `")))
    });
    let kinds = rows.filter(|row| {
        records()
            .iter()
            .any(|(_, (_, kind, _))| row.contains(&format!("`{kind:?}`")))
    });
    assert_eq!(kinds.count(), known.len(), "every kind has a vector");
}
