//! The codec by value: what was encoded reads back, and bytes of any origin neither panic nor yield what they do not
//! hold.

use proptest::{collection::vec, prelude::*};
use weir_proto::{
    Batch, Violation,
    wire::{
        Answer, ClaimToken, FRAME_HEADER, FrameHeader, FrameKind, Hello, MAX_BODY, MAX_FRAME, MAX_MESSAGE,
        MAX_PAYLOAD, NodeId, PREFIX, RECORD_HEADER, Record, RecordHeader, RecordKind, Records, RefuseCode,
        SlotRef, TICKET_LEN, Ticket,
    },
};

use crate::pair::frames;

/// A record as its header and body.
pub(crate) type Raw = (SlotRef, RecordKind, Vec<u8>);

/// The header and body of a parsed record, by the tables of `docs/wire.md`.
pub(crate) fn raw(record: &Record<'_>) -> Raw {
    const NONE: SlotRef = SlotRef {
        index: 0,
        generation: 0,
    };
    match *record {
        Record::Open(slot, token, None) => (slot, RecordKind::Open, token.0.to_vec()),
        Record::Open(slot, token, Some(item)) => (slot, RecordKind::OpenItem, [&token.0, item].concat()),
        Record::Item(slot, body) => (slot, RecordKind::Item, body.to_vec()),
        Record::Part(slot, body) => (slot, RecordKind::Part, body.to_vec()),
        Record::End(slot, code, failure, message) => {
            let mut body = vec![code.byte()];
            if code.byte() == 3 {
                body.extend(failure.to_le_bytes());
                body.extend(message.as_bytes());
            }
            (slot, RecordKind::End, body)
        }
        Record::Grant(slot, records, bytes) => (
            slot,
            RecordKind::Grant,
            [records.to_le_bytes(), bytes.to_le_bytes()].concat(),
        ),
        Record::Stop(slot) => (slot, RecordKind::Stop, Vec::new()),
        Record::Cancel(slot) => (slot, RecordKind::Cancel, Vec::new()),
        Record::Closed(slot, taken) => (slot, RecordKind::Closed, taken.to_le_bytes().to_vec()),
        Record::Refused(slot, code) => (slot, RecordKind::Refused, vec![code.byte()]),
        Record::Call {
            id,
            cast,
            deadline_ms,
            len,
            name,
            bytes,
        } => {
            let mut body = id.to_le_bytes().to_vec();
            body.push(u8::from(cast));
            body.extend(deadline_ms.to_le_bytes());
            body.extend(len.to_le_bytes());
            body.push(name.len() as u8);
            body.extend(name.as_bytes());
            body.extend(bytes);
            (NONE, RecordKind::Call, body)
        }
        Record::CallPart(id, bytes) => (NONE, RecordKind::CallPart, [&id.to_le_bytes(), bytes].concat()),
        Record::Reply(id, status, len, bytes) => {
            let body = [&id.to_le_bytes()[..], &[status], &len.to_le_bytes(), bytes].concat();
            (NONE, RecordKind::Reply, body)
        }
        Record::ReplyPart(id, bytes) => (NONE, RecordKind::ReplyPart, [&id.to_le_bytes(), bytes].concat()),
        Record::CallCancel(id) => (NONE, RecordKind::CallCancel, id.to_le_bytes().to_vec()),
        Record::Handlers(changes) => (NONE, RecordKind::Handlers, changes.to_vec()),
    }
}

fn payload(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(any::<u8>(), 0..64), 1 => (0..=most).prop_map(|len| vec![0xa5; len])]
}

fn slot() -> impl Strategy<Value = SlotRef> {
    (0..1_u32 << 24, any::<u16>()).prop_map(|(index, generation)| SlotRef { index, generation })
}

fn of_stream() -> impl Strategy<Value = (RecordKind, Vec<u8>)> {
    let fixed = |kind, len: usize| vec(any::<u8>(), len).prop_map(move |body| (kind, body)).boxed();
    let failure = (any::<u32>(), ".{0,250}").prop_map(|(code, message)| {
        (
            RecordKind::End,
            [&[3], &code.to_le_bytes()[..], message.as_bytes()].concat(),
        )
    });
    prop_oneof![
        4 => payload(MAX_BODY).prop_map(|body| (RecordKind::Item, body)),
        2 => payload(MAX_BODY).prop_map(|body| (RecordKind::Part, body)),
        1 => fixed(RecordKind::Open, 16),
        1 => (any::<[u8; 16]>(), payload(MAX_BODY - 16))
            .prop_map(|(token, item)| (RecordKind::OpenItem, [&token[..], &item].concat())),
        1 => (0..3_u8).prop_map(|code| (RecordKind::End, vec![code])),
        1 => failure,
        1 => fixed(RecordKind::Grant, 16),
        1 => fixed(RecordKind::Stop, 0),
        1 => fixed(RecordKind::Cancel, 0),
        1 => fixed(RecordKind::Closed, 8),
        1 => (0..2_u8).prop_map(|code| (RecordKind::Refused, vec![code])),
    ]
}

fn of_calls() -> impl Strategy<Value = (RecordKind, Vec<u8>)> {
    let part = |kind, head: usize| {
        (vec(any::<u8>(), head), payload(MAX_BODY - head))
            .prop_map(move |(head, rest)| (kind, [head, rest].concat()))
            .boxed()
    };
    let call = (
        any::<[u8; 8]>(),
        0..2_u8,
        any::<[u8; 8]>(),
        "[a-zé]{0,100}",
        payload(20_000),
    )
        .prop_map(|(id, cast, numbers, name, rest)| {
            let head = [&id[..], &[cast], &numbers, &[name.len() as u8], name.as_bytes()].concat();
            (RecordKind::Call, [head, rest].concat())
        });
    prop_oneof![
        call,
        part(RecordKind::CallPart, 8),
        part(RecordKind::Reply, 13),
        part(RecordKind::ReplyPart, 8),
        vec(any::<u8>(), 8).prop_map(|id| (RecordKind::CallCancel, id)),
        payload(2000).prop_map(|changes| (RecordKind::Handlers, changes)),
    ]
}

pub(crate) fn record() -> impl Strategy<Value = Raw> {
    let none = SlotRef {
        index: 0,
        generation: 0,
    };
    prop_oneof![
        3 => (slot(), of_stream()).prop_map(|(slot, (kind, body))| (slot, kind, body)),
        1 => of_calls().prop_map(move |(kind, body)| (none, kind, body)),
    ]
}

/// Records pushed as the outbox pushes them: large bodies are not copied.
pub(crate) fn batch(records: &[Raw]) -> Batch {
    let mut batch = Batch::new(usize::MAX);
    for (slot, kind, body) in records {
        let (head, tail) = body.split_at(body.len().min(13));
        if tail.len() >= 4096 {
            batch.push_shared(*slot, *kind, head, tail.to_vec().into());
        } else {
            batch.push(*slot, *kind, &[head, tail]);
        }
    }
    batch
}

fn parsed(frames: &[Vec<u8>]) -> Vec<Raw> {
    let records = frames
        .iter()
        .flat_map(|frame| Records::new(&frame[FRAME_HEADER..]));
    records.map(|record| raw(&record.unwrap())).collect()
}

/// Every record that parses is exactly the bytes it was parsed from; what follows an error is not parsed.
fn holds_no_more(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut at = 0;
    for record in Records::new(bytes) {
        let Ok(record) = record else {
            at = bytes.len();
            continue;
        };
        let (slot, kind, body) = raw(&record);
        let end = at + RECORD_HEADER + body.len();
        prop_assert!(end <= bytes.len());
        prop_assert_eq!(&bytes[at + RECORD_HEADER..end], &body[..]);
        if kind.byte() < 32 {
            let header = RecordHeader {
                slot,
                kind,
                body: body.len() as u16,
            };
            prop_assert_eq!(&bytes[at..at + RECORD_HEADER], &header.encode()[..]);
        }
        at = end;
    }
    prop_assert_eq!(at, bytes.len());
    Ok(())
}

fn hello() -> impl Strategy<Value = Hello> {
    (
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        "[ -~é]{0,200}",
    )
        .prop_map(
            |(node, incarnation, max_window_records, max_window_bytes, listen)| Hello {
                node: NodeId(node),
                incarnation,
                max_window_records,
                max_window_bytes,
                listen,
            },
        )
}

fn ticket() -> impl Strategy<Value = Ticket> {
    (
        hello(),
        any::<[u8; 16]>(),
        slot(),
        any::<[u8; 16]>(),
        any::<u64>(),
    )
        .prop_map(|(hello, peer, slot, token, expires_unix_ms)| Ticket {
            node: hello.node,
            incarnation: hello.incarnation,
            peer: NodeId(peer),
            slot,
            token: ClaimToken(token),
            window_records: hello.max_window_records,
            window_bytes: hello.max_window_bytes,
            expires_unix_ms,
        })
}

fn body(bytes: &[u8]) -> &[u8] {
    let len = Hello::body_len(bytes[..PREFIX].try_into().unwrap()).unwrap();
    assert_eq!(bytes.len(), PREFIX + len);
    &bytes[PREFIX..]
}

/// Turns some bytes over.
pub(crate) fn spoil(bytes: &mut [u8], flips: &[(prop::sample::Index, u8)]) {
    for (at, bits) in flips {
        if !bytes.is_empty() {
            bytes[at.index(bytes.len())] ^= bits;
        }
    }
}

pub(crate) fn flips() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
}

proptest! {
    #[test]
    fn records_of_a_batch_read_back_in_order(records in vec(record(), 1..40)) {
        let frames = frames(&mut batch(&records));
        prop_assert!(frames.iter().all(|frame| frame.len() <= MAX_FRAME));
        prop_assert_eq!(parsed(&frames), records);
    }

    #[test]
    fn pieces_of_any_size_hold_the_same_records(records in vec(record(), 1..40), most in 1..200_000_usize) {
        let mut batch = batch(&records);
        let (mut number, mut bytes, mut last) = (7, Vec::new(), 6);
        while let Some(piece) = batch.piece(most, &mut number) {
            let before = bytes.len();
            batch.slices(&piece).for_each(|slice| bytes.extend_from_slice(slice));
            prop_assert_eq!(bytes.len() - before, piece.bytes);
            prop_assert!(piece.bytes <= most || piece.last == last + 1, "more than one frame over the limit");
            prop_assert_eq!(piece.last, number - 1);
            last = piece.last;
        }
        prop_assert!(!batch.has_more());
        prop_assert_eq!(batch.records(), records.len() as u64);
        prop_assert_eq!(batch.bytes(), bytes.len());
        let (mut frames, mut next) = (Vec::new(), 7);
        while !bytes.is_empty() {
            let header = FrameHeader::parse(bytes[..FRAME_HEADER].try_into().unwrap()).unwrap();
            prop_assert_eq!((header.kind, header.number), (FrameKind::Batch, next));
            next += 1;
            let rest = bytes.split_off(FRAME_HEADER + header.payload as usize);
            frames.push(std::mem::replace(&mut bytes, rest));
        }
        prop_assert_eq!(parsed(&frames), records);
    }

    #[test]
    fn any_bytes_yield_no_more_records_than_they_hold(bytes in vec(any::<u8>(), 0..400)) {
        holds_no_more(&bytes)?;
    }

    #[test]
    fn spoilt_records_yield_no_more_than_they_hold(records in vec(record(), 1..6), flips in flips()) {
        for frame in frames(&mut batch(&records)) {
            let mut payload = frame[FRAME_HEADER..].to_vec();
            spoil(&mut payload, &flips);
            holds_no_more(&payload)?;
        }
    }

    #[test]
    fn a_frame_header_that_parses_is_the_one_way_to_write_it(bytes in any::<[u8; FRAME_HEADER]>(), kind in 0..6_u8, small: bool) {
        let mut bytes = bytes;
        bytes[4] = kind;
        if small {
            bytes[1..4].fill(0);
            bytes[5..8].fill(0);
        }
        match FrameHeader::parse(bytes) {
            Ok(header) => {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(header.payload as usize <= MAX_PAYLOAD);
            }
            Err(violation) => prop_assert_eq!(violation.code() >> 8, 1),
        }
    }

    #[test]
    fn a_ticket_reads_back(ticket in ticket(), flips in flips()) {
        let mut bytes = ticket.encode();
        prop_assert_eq!(bytes.len(), TICKET_LEN);
        prop_assert_eq!(&Ticket::decode(&bytes), &Ok(ticket));
        spoil(&mut bytes, &flips);
        if let Ok(other) = Ticket::decode(&bytes) {
            prop_assert_eq!(other.encode(), bytes);
        }
    }

    #[test]
    fn no_other_bytes_are_a_ticket(bytes in vec(any::<u8>(), 0..200), first in 0..3_u8) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() {
            *version = first;
        }
        prop_assert_eq!(Ticket::decode(&bytes).is_ok(), first == 1 && bytes.len() == TICKET_LEN);
    }

    #[test]
    fn a_hello_reads_back_both_ways(hello in hello(), tag in 5..=255_u8, unknown in payload(300)) {
        let bytes = hello.encode();
        prop_assert_eq!(&Hello::decode(body(&bytes)), &Ok(hello.clone()));
        let answer = Answer::Accept(hello.clone());
        prop_assert_eq!(&Answer::decode(body(&answer.encode())), &Ok(answer));
        // A field of a later version is skipped.
        let field = [&[tag], &(unknown.len() as u16).to_le_bytes()[..], &unknown].concat();
        prop_assert_eq!(&Hello::decode(&[body(&bytes), &field[..]].concat()), &Ok(hello));
    }

    #[test]
    fn a_refusal_reads_back_and_is_cut_at_a_character(message in "[a-zé]{0,900}") {
        let codes = [
            RefuseCode::Version,
            RefuseCode::NodeIdInUse,
            RefuseCode::Crossing,
            RefuseCode::Closing,
            RefuseCode::Itself,
        ];
        for code in codes {
            let bytes = Answer::Refuse(code, message.clone()).encode();
            let Ok(Answer::Refuse(back, text)) = Answer::decode(body(&bytes)) else {
                return Err(TestCaseError::fail("no refusal"));
            };
            prop_assert_eq!(back, code);
            prop_assert!(message.starts_with(&text) && (text.len() == message.len() || text.len() > MAX_MESSAGE - 4));
        }
    }

    #[test]
    fn spoilt_hellos_are_errors_or_hellos(hello in hello(), flips in flips(), cut in any::<prop::sample::Index>()) {
        let bytes = hello.encode();
        let mut body = body(&bytes).to_vec();
        body.truncate(cut.index(body.len() + 1));
        spoil(&mut body, &flips);
        let _any = Hello::decode(&body);
        let _any = Answer::decode(&body);
    }

    #[test]
    fn any_prefix_is_judged(prefix in any::<[u8; PREFIX]>()) {
        prop_assert!(Hello::body_len(prefix).is_err() || prefix.starts_with(b"WEIR"));
    }
}

#[test]
fn a_record_cut_short_is_malformed() {
    let frames = frames(&mut batch(&[(crate::pair::SLOT, RecordKind::Item, vec![1; 20])]));
    let payload = &frames[0][FRAME_HEADER..];
    for len in 1..payload.len() {
        let first = Records::new(&payload[..len]).next().unwrap();
        assert!(
            matches!(first, Err(Violation::MalformedRecord(_))),
            "{len} bytes: {first:?}"
        );
    }
}
