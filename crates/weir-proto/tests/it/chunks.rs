//! A lane's bytes in any chunks give the same frames, and any bytes at all no panic.

use bytes::BytesMut;
use proptest::{collection::vec, prelude::*};
use weir_proto::{
    Inbox, Received, Violation,
    wire::{FRAME_HEADER, FrameHeader, FrameKind, MAX_PAYLOAD},
};

use crate::codec::{flips, spoil};

#[derive(Debug, Clone)]
enum Part {
    Batch(Vec<u8>),
    /// A batch frame whose number was used before.
    Again(Vec<u8>),
    Ack(u64),
    Keepalive,
    Bye(u16, String),
}

fn part() -> impl Strategy<Value = Part> {
    let payload =
        || prop_oneof![6 => vec(any::<u8>(), 1..50), 1 => (1..=MAX_PAYLOAD).prop_map(|len| vec![7; len])];
    prop_oneof![
        6 => payload().prop_map(Part::Batch),
        1 => payload().prop_map(Part::Again),
        1 => any::<u64>().prop_map(Part::Ack),
        1 => Just(Part::Keepalive),
        1 => (any::<u16>(), "[a-zé]{0,100}").prop_map(|(code, message)| Part::Bye(code, message)),
    ]
}

fn frame(kind: FrameKind, number: u64, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        payload: payload.len() as u32,
        kind,
        number,
    };
    [&header.encode(), payload].concat()
}

/// The bytes of the parts, and what a lane must hand out.
fn lane(parts: &[Part]) -> (Vec<u8>, Vec<Received>) {
    let (mut bytes, mut expected, mut number) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        match part {
            Part::Batch(payload) => {
                number += 1;
                bytes.extend(frame(FrameKind::Batch, number, payload));
                expected.push(Received::Batch(payload.clone().into()));
            }
            Part::Again(payload) => bytes.extend(frame(FrameKind::Batch, number, payload)),
            Part::Ack(of) => {
                bytes.extend(frame(FrameKind::Ack, *of, &[]));
                expected.push(Received::Ack(*of));
            }
            Part::Keepalive => {
                bytes.extend(frame(FrameKind::Keepalive, 0, &[]));
                expected.push(Received::Keepalive);
            }
            Part::Bye(code, message) => {
                let payload = [&code.to_le_bytes(), message.as_bytes()].concat();
                bytes.extend(frame(FrameKind::Bye, 0, &payload));
                expected.push(Received::Bye(*code, message.clone()));
            }
        }
    }
    (bytes, expected)
}

/// Feeds `bytes` in chunks of `sizes`, over and over.
fn feed(bytes: &[u8], sizes: &[usize]) -> (Vec<Received>, Result<(), Violation>, u64) {
    let (mut inbox, mut buf, mut received) = (Inbox::default(), BytesMut::new(), Vec::new());
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        rest = after;
        buf.extend_from_slice(chunk);
        loop {
            match inbox.next(&mut buf) {
                Ok(Some(frame)) => received.push(frame),
                Ok(None) => break,
                Err(violation) => return (received, Err(violation), inbox.taken()),
            }
        }
    }
    (received, Ok(()), inbox.taken())
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_frames(parts in vec(part(), 0..20), sizes in vec(1..40_000_usize, 1..6), small: bool) {
        let (bytes, expected) = lane(&parts);
        let sizes: Vec<usize> = if small { sizes.iter().map(|size| size % 40 + 1).collect() } else { sizes };
        let batches = parts.iter().filter(|part| matches!(part, Part::Batch(_))).count() as u64;
        prop_assert_eq!(feed(&bytes, &sizes), (expected, Ok(()), batches));
    }

    #[test]
    fn spoilt_lanes_fail_alike_in_any_chunks(parts in vec(part(), 1..8), flips in flips(), sizes in vec(1..999_usize, 1..4)) {
        let (mut bytes, _) = lane(&parts);
        spoil(&mut bytes, &flips);
        prop_assert_eq!(feed(&bytes, &sizes), feed(&bytes, &[usize::MAX]));
    }

    #[test]
    fn noise_is_no_lane(bytes in vec(any::<u8>(), 0..200), sizes in vec(1..40_usize, 1..4)) {
        let (received, ..) = feed(&bytes, &sizes);
        prop_assert!(received.len() * FRAME_HEADER <= bytes.len());
    }
}

#[test]
fn a_gap_in_the_numbers_is_a_violation() {
    let bytes = [frame(FrameKind::Batch, 1, b"x"), frame(FrameKind::Batch, 3, b"x")].concat();
    let (received, result, taken) = feed(&bytes, &[5]);
    assert_eq!((received.len(), taken), (1, 1));
    assert_eq!(result, Err(Violation::FrameNumber { expected: 2, got: 3 }));
}
