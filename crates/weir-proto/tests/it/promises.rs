//! Single promises of the state machines, each once broken or easy to break.

use bytes::Bytes;
use weir_proto::{
    Claim, ConsumerSlot, End, Ending, OpenRefused, StreamFate, Time,
    wire::{EndCode, RefusedCode},
};

use crate::pair::{LANE, PEER, SLOT, WINDOW, open, outbox, take, token, turn};

#[test]
fn records_of_a_refused_claim_never_follow_the_next_claim_of_the_slot() {
    let mut outbox = outbox();
    let wrong = open(&mut outbox, 1);
    outbox.send(wrong, b"first").unwrap();
    let mut writing = take(&mut outbox);
    outbox.send(wrong, b"second").unwrap();
    outbox.over(SLOT, StreamFate::Refused(RefusedCode::NotYours));
    outbox.release(wrong);
    let again = outbox.open(SLOT, token(2), WINDOW, WINDOW);
    assert_eq!(
        again,
        Err(OpenRefused::AlreadyOpen),
        "its second record has not left"
    );
    outbox.turn_written(&mut writing.wake);
    assert_eq!(turn(&mut outbox), ["item 6"]);
    assert_eq!(outbox.streams(), 0);
    open(&mut outbox, 2);
    assert_eq!(turn(&mut outbox), ["open 2 None"]);
}

#[test]
fn a_claim_of_a_stream_that_ended_is_refused() {
    let mut slot = ConsumerSlot::<u8>::default();
    let generation = slot.mint(token(1), PEER, LANE, WINDOW, Time::ZERO);
    let claim = |slot: &mut ConsumerSlot<u8>| slot.claim(generation, token(1), PEER, LANE, Time::ZERO);
    assert_eq!(claim(&mut slot), Claim::Claimed);
    assert_eq!(claim(&mut slot), Claim::Repeated);
    // Stalled here, its end came, and the consumer has not looked yet: the producer may open the ticket again.
    let _event = slot.end_here(generation, Ending::Stalled(std::time::Duration::ZERO));
    let (_, _event) = slot.end(generation, LANE, EndCode::Dropped, 0, "");
    assert_eq!(claim(&mut slot), Claim::Refused(RefusedCode::Gone));
}

#[test]
fn a_waiting_item_that_nobody_waits_for_keeps_the_senders_waker() {
    let mut outbox = outbox();
    let key = open(&mut outbox, 1);
    outbox.send(key, b"").unwrap();
    while outbox.calls_in_flight() < 8 {
        outbox
            .call("fill", 0, Bytes::from(vec![0; 32 * 1024]), false)
            .unwrap();
    }
    outbox.wake_on_change(key, 7);
    outbox
        .enqueue(key, Bytes::from(vec![0; 20 * 1024]), None)
        .unwrap();
    assert_eq!(outbox.stop(SLOT), Some(7));
}

#[test]
fn a_peer_that_reads_no_replies_cannot_have_more_calls_served() {
    use weir_proto::{CALLS_IN_FLIGHT, CallRequest, Violation, wire::ReplyStatus};
    let mut outbox = outbox();
    let mut served = 0;
    let violation = loop {
        let head = CallRequest {
            id: served + 1,
            cast: false,
            deadline_ms: 0,
            name: "echo".into(),
            body: Bytes::new(),
        };
        match outbox.call_begins(head, 0, &[]) {
            Ok(_) => served += 1,
            Err(violation) => break violation,
        }
        outbox.reply(served, ReplyStatus::Ok, Bytes::from(vec![0; 16 * 1024]));
        assert!(served < 2 * CALLS_IN_FLIGHT as u64, "replies pile up");
    };
    assert_eq!(violation, Violation::CallsInFlight);
    assert!(outbox.waiting().0 <= CALLS_IN_FLIGHT);
}

#[test]
fn a_cancel_is_answered_by_the_link_and_an_end_passes_no_item() {
    let mut outbox = outbox();
    let key = open(&mut outbox, 1);
    outbox.send(key, b"one").unwrap();
    outbox.send(key, b"two").unwrap();
    outbox.over(SLOT, StreamFate::Cancelled);
    outbox.end(key, End::Finished);
    assert_eq!(turn(&mut outbox), ["open 1 Some(3)", "item 3", "end Dropped"]);
}
