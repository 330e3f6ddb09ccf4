//! A peer that breaks the rules: what it sends is dropped or named, and nothing it can grow is without bound.

use bytes::Bytes;
use weir_proto::{
    Accept, Amount, CALL_BYTES_IN_FLIGHT, CALLS_IN_FLIGHT, CallFailure, CallRequest, Claim, ConsumerSlot,
    Deliver, Ending, Extent, LaneKey, MAX_CALL, StreamFate, Time, Violation,
    wire::{EndCode, NodeId, RefusedCode, ReplyStatus},
};

use crate::pair::{LANE, PEER, SLOT, WINDOW, open, outbox, token, turn};

/// A slot that `PEER` claimed.
fn claimed() -> (ConsumerSlot<u8>, u16) {
    let mut slot = ConsumerSlot::default();
    let generation = slot.mint(token(1), PEER, LANE, WINDOW, Time::ZERO);
    assert_eq!(
        slot.claim(generation, token(1), PEER, LANE, Time::ZERO),
        Claim::Claimed
    );
    (slot, generation)
}

fn item(slot: &mut ConsumerSlot<u8>, generation: u16, body: &Bytes, last: bool) -> Result<bool, Violation> {
    let accept = slot.item(generation, LANE, body, body, last, Time::ZERO)?;
    Ok(matches!(accept, Accept::Taken(_)))
}

#[test]
fn a_record_past_the_limit_is_a_violation() {
    let (mut slot, generation) = claimed();
    let empty = Bytes::new();
    for _ in 0..WINDOW.records {
        assert_eq!(item(&mut slot, generation, &empty, true), Ok(true));
    }
    assert_eq!(
        item(&mut slot, generation, &empty, true),
        Err(Violation::PastLimit)
    );
    let (mut slot, generation) = claimed();
    let whole = Bytes::from(vec![0; WINDOW.bytes as usize]);
    assert_eq!(item(&mut slot, generation, &whole, false), Ok(true));
    assert_eq!(
        item(&mut slot, generation, &Bytes::from_static(b"x"), false),
        Err(Violation::PastLimit)
    );
}

#[test]
fn nothing_is_granted_before_it_was_taken() {
    let (mut slot, generation) = claimed();
    let body = Bytes::from_static(b"x");
    for _ in 0..WINDOW.records {
        item(&mut slot, generation, &body, true).unwrap();
    }
    let mut batch = weir_proto::Batch::new(usize::MAX);
    slot.render(0, LANE, &mut batch, Time::ZERO);
    assert_eq!(
        item(&mut slot, generation, &body, true),
        Err(Violation::PastLimit)
    );
}

#[test]
fn a_token_a_node_or_a_lane_that_is_wrong_claims_nothing() {
    let mut slot = ConsumerSlot::<u8>::default();
    let generation = slot.mint(token(1), PEER, LANE, WINDOW, Time::ZERO);
    let (other, lane) = (NodeId([1; 16]), LaneKey(2));
    let mut claim =
        |generation, byte, peer, lane| slot.claim(generation, token(byte), peer, lane, Time::ZERO);
    let not_yours = Claim::Refused(RefusedCode::NotYours);
    assert_eq!(claim(generation, 2, PEER, LANE), not_yours);
    assert_eq!(claim(generation, 1, other, LANE), not_yours);
    assert_eq!(claim(generation, 1, PEER, lane), not_yours);
    assert_eq!(
        claim(generation + 1, 1, PEER, LANE),
        Claim::Refused(RefusedCode::Gone)
    );
    assert_eq!(
        claim(generation, 1, PEER, LANE),
        Claim::Claimed,
        "the owner is undisturbed"
    );
    assert_eq!(claim(generation, 1, PEER, lane), not_yours);
}

#[test]
fn records_over_another_lane_or_of_another_generation_are_stale() {
    let (mut slot, generation) = claimed();
    let body = Bytes::from_static(b"x");
    assert_eq!(item(&mut slot, generation + 1, &body, true), Ok(false));
    let accept = slot
        .item(generation, LaneKey(2), &body, &body, true, Time::ZERO)
        .unwrap();
    assert!(matches!(accept, Accept::Stale));
    let (accept, _event) = slot.end(generation, LaneKey(2), EndCode::Finished, 0, "");
    assert!(matches!(accept, Accept::Stale));
    assert!(matches!(
        slot.take(generation, &mut Extent::default(), || 1).0,
        Deliver::Pending
    ));
}

#[test]
fn an_end_inside_an_item_is_never_a_clean_one() {
    let (mut slot, generation) = claimed();
    let body = Bytes::from_static(b"x");
    item(&mut slot, generation, &body, true).unwrap();
    item(&mut slot, generation, &body, false).unwrap();
    let (_, _event) = slot.end(generation, LANE, EndCode::Finished, 0, "");
    let mut extent = Extent::default();
    assert_eq!(slot.take(generation, &mut extent, || 1).0, Deliver::Records);
    assert_eq!(extent.by_ref().count(), 1);
    assert_eq!(
        slot.take(generation, &mut extent, || 1).0,
        Deliver::Ended(Ending::Dropped, 1)
    );
}

#[test]
fn a_second_end_and_items_after_the_end_are_stale() {
    let (mut slot, generation) = claimed();
    let (_, _event) = slot.end(generation, LANE, EndCode::Failed, 1, "first");
    let (accept, _event) = slot.end(generation, LANE, EndCode::Finished, 0, "");
    assert!(matches!(accept, Accept::Stale));
    assert_eq!(
        item(&mut slot, generation, &Bytes::from_static(b"x"), true),
        Ok(false)
    );
    let ended = Deliver::Ended(Ending::Failed(1, "first".to_owned()), 0);
    assert_eq!(slot.take(generation, &mut Extent::default(), || 1).0, ended);
}

#[test]
fn refusals_that_wait_are_bounded() {
    let mut outbox = outbox();
    for _ in 0..16_384 {
        outbox.refuse(SLOT, RefusedCode::Gone).unwrap();
    }
    assert_eq!(
        outbox.refuse(SLOT, RefusedCode::Gone),
        Err(Violation::TooManyRefusals)
    );
    assert_eq!(turn(&mut outbox).len(), 16_384);
    assert_eq!(outbox.refuse(SLOT, RefusedCode::Gone), Ok(()));
}

#[test]
fn a_grant_beyond_the_declared_window_is_a_violation_and_a_lower_one_nothing() {
    let mut outbox = outbox();
    let key = open(&mut outbox, 1);
    outbox.send(key, b"12345").unwrap();
    let most = Amount {
        records: 1 + u64::from(WINDOW.records),
        bytes: 5 + u64::from(WINDOW.bytes),
    };
    assert_eq!(outbox.grant(SLOT, Amount::default()), Ok(None));
    assert_eq!(outbox.grant(SLOT, most), Ok(None));
    let more = Amount {
        bytes: most.bytes + 1,
        ..most
    };
    assert_eq!(outbox.grant(SLOT, more), Err(Violation::GrantTooLarge));
    let more = Amount {
        records: most.records + 1,
        ..most
    };
    assert_eq!(outbox.grant(SLOT, more), Err(Violation::GrantTooLarge));
}

#[test]
fn records_for_streams_that_are_not_open_here_are_counted() {
    let mut outbox = outbox();
    let far = Amount {
        records: u64::MAX,
        bytes: u64::MAX,
    };
    assert_eq!(outbox.grant(SLOT, far), Ok(None));
    assert_eq!(outbox.stop(SLOT), None);
    assert_eq!(outbox.over(SLOT, StreamFate::Cancelled), None);
    assert_eq!(outbox.counters().stale, 3);
    assert!(!outbox.has_work());
}

fn request(id: u64) -> CallRequest {
    CallRequest {
        id,
        cast: false,
        deadline_ms: 0,
        name: "echo".to_owned(),
        body: Bytes::new(),
    }
}

#[test]
fn calls_in_flight_and_their_bytes_are_bounded() {
    let mut outbox = outbox();
    let most = u32::try_from(MAX_CALL).unwrap();
    for id in 0..(CALL_BYTES_IN_FLIGHT / MAX_CALL) as u64 {
        assert_eq!(outbox.call_begins(request(id + 1), most, b"x"), Ok(None));
    }
    assert_eq!(
        outbox.call_begins(request(9), 1, b""),
        Err(Violation::CallsInFlight)
    );
    let mut outbox = self::outbox();
    for id in 0..CALLS_IN_FLIGHT as u64 {
        assert!(outbox.call_begins(request(id + 1), 0, b"").unwrap().is_some());
    }
    assert_eq!(
        outbox.call_begins(request(9999), 0, b""),
        Err(Violation::CallsInFlight)
    );
}

#[test]
fn calls_that_do_not_add_up_are_violations() {
    let broken = Err(Violation::CallProtocol);
    let mut outbox = outbox();
    assert_eq!(outbox.call_begins(request(5), 4, b"xy"), Ok(None));
    assert_eq!(outbox.call_begins(request(5), 4, b"xy"), broken, "an id again");
    assert_eq!(outbox.call_begins(request(4), 4, b"xy"), broken, "an earlier id");
    assert_eq!(
        outbox.call_begins(request(6), u32::MAX, b""),
        broken,
        "over 16 MiB"
    );
    assert_eq!(outbox.call_arrives(5, b""), broken, "an empty part");
    assert_eq!(outbox.call_arrives(5, b"zzz"), broken, "more than announced");
    assert_eq!(outbox.call_arrives(7, b"z"), broken, "a part of nothing");
    assert_eq!(
        outbox.call_arrives(5, b"zw").map(|whole| whole.unwrap().body),
        Ok(Bytes::from_static(b"xyzw"))
    );
    assert_eq!(outbox.call_arrives(5, b""), broken, "a part of a whole");
}

#[test]
fn replies_that_do_not_add_up_are_violations() {
    let mut outbox = outbox();
    let id = outbox.call("echo", 0, Bytes::new(), false).unwrap();
    let broken = Err(Violation::CallProtocol);
    assert_eq!(
        outbox.reply_begins(id + 1, 0, 0, b""),
        broken,
        "a reply to nothing"
    );
    assert_eq!(outbox.reply_begins(id, 9, 0, b""), broken, "an unknown status");
    assert_eq!(outbox.reply_arrives(id, b"x"), broken, "a part before the first");
    assert_eq!(outbox.reply_begins(id, 0, 2, b"x"), Ok(None));
    assert_eq!(outbox.reply_begins(id, 0, 2, b"x"), broken, "a second reply");
    assert_eq!(outbox.reply_arrives(id, b"y"), Ok(None));
    assert_eq!(
        outbox.reply_begins(id, 0, 0, b""),
        broken,
        "a reply after the reply"
    );
    assert_eq!(
        outbox.reply_to(id, || 1),
        Ok(Some((ReplyStatus::Ok, Bytes::from_static(b"xy"))))
    );
}

#[test]
fn what_a_call_took_comes_back() {
    let mut outbox = outbox();
    let body = Bytes::from(vec![0; MAX_CALL]);
    for _ in 0..3 {
        let ids: Vec<u64> = (0..CALL_BYTES_IN_FLIGHT / MAX_CALL)
            .map(|_| outbox.call("f", 0, body.clone(), false).unwrap())
            .collect();
        assert_eq!(outbox.call("f", 0, body.clone(), false), Err(CallFailure::Busy));
        for id in ids {
            outbox.reply_begins(id, 0, 0, b"").unwrap();
            assert!(outbox.reply_to(id, || 1).unwrap().is_some());
        }
        assert_eq!(outbox.calls_in_flight(), 0);
    }
}
