//! An outbox, and the records of the turns it takes.

use weir_proto::{
    Batch, LaneKey, Outbox, StreamKey, Turn, Window,
    wire::{ClaimToken, FRAME_HEADER, FrameHeader, NodeId, Record, Records, SlotRef},
};

pub(crate) const LANE: LaneKey = LaneKey(1);
pub(crate) const PEER: NodeId = NodeId([9; 16]);
pub(crate) const WINDOW: Window = Window {
    records: 8,
    bytes: 64 * 1024,
};
pub(crate) const SLOT: SlotRef = SlotRef {
    index: 3,
    generation: 1,
};

pub(crate) fn token(byte: u8) -> ClaimToken {
    ClaimToken([byte; 16])
}

pub(crate) fn outbox() -> Outbox<u8> {
    Outbox::new(LANE)
}

pub(crate) fn open(outbox: &mut Outbox<u8>, byte: u8) -> StreamKey {
    outbox.open(SLOT, token(byte), WINDOW, WINDOW).unwrap()
}

/// Takes a turn that is still being written.
pub(crate) fn take(outbox: &mut Outbox<u8>) -> Turn<u8> {
    let mut turn = Turn::default();
    outbox.take(&mut turn);
    turn
}

/// Takes a turn and writes it whole; the records in their order on the lane, briefly.
pub(crate) fn turn(outbox: &mut Outbox<u8>) -> Vec<String> {
    let mut turn = take(outbox);
    outbox.turn_written(&mut turn.wake);
    records(&mut turn)
}

pub(crate) fn records(turn: &mut Turn<u8>) -> Vec<String> {
    let mut seen = Vec::new();
    for batch in [&mut turn.urgent, &mut turn.bulk] {
        for bytes in frames(batch) {
            seen.extend(Records::new(&bytes[FRAME_HEADER..]).map(|record| brief(&record.unwrap())));
        }
        batch.clear();
    }
    seen
}

/// The frames of a batch, header and all.
pub(crate) fn frames(batch: &mut Batch) -> Vec<Vec<u8>> {
    let (mut number, mut bytes) = (1, Vec::new());
    while let Some(piece) = batch.piece(1, &mut number) {
        let frame: Vec<u8> = batch.slices(&piece).flatten().copied().collect();
        let header = FrameHeader::parse(frame[..FRAME_HEADER].try_into().unwrap()).unwrap();
        assert_eq!(frame.len(), FRAME_HEADER + header.payload as usize);
        bytes.push(frame);
    }
    bytes
}

fn brief(record: &Record<'_>) -> String {
    match record {
        Record::Open(_, token, item) => format!("open {} {:?}", token.0[0], item.map(<[u8]>::len)),
        Record::Item(_, body) => format!("item {}", body.len()),
        Record::Part(_, body) => format!("part {}", body.len()),
        Record::End(_, code, ..) => format!("end {code:?}"),
        Record::Refused(_, code) => format!("refused {code:?}"),
        Record::Call { id, .. } => format!("call {id}"),
        Record::CallCancel(id) => format!("call cancel {id}"),
        Record::Reply(id, status, ..) => format!("reply {id} {status}"),
        other => format!("{other:?}"),
    }
}
