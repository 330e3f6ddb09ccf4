//! Every stream ends once, with the right ending, after everything that came before it.

use std::time::Duration;

use weir_net::{Health, NodeConfig, SendError, StreamErrorKind};

use crate::pair::{Pair, drain, until};

#[tokio::test]
async fn a_dropped_sender_is_never_a_clean_end() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    sender.send(b"a").await.unwrap();
    drop(sender);
    let (items, end) = drain(&mut anchor).await;
    let error = end.unwrap_err();
    assert_eq!(
        (items.len(), error.kind, error.delivered),
        (1, StreamErrorKind::Dropped, 1)
    );
    pair.settled().await;
}

#[tokio::test]
async fn a_failure_brings_its_code_and_message() {
    let pair = Pair::new().await;
    let (mut anchor, sender) = pair.stream();
    sender.fail(42, &"é".repeat(800));
    let error = drain(&mut anchor).await.1.unwrap_err();
    assert_eq!(
        error.kind,
        StreamErrorKind::Failed {
            code: 42,
            message: "é".repeat(512)
        }
    );
    pair.settled().await;
}

#[tokio::test]
async fn dropping_the_anchor_reaches_an_idle_producer_at_once() {
    let pair = Pair::new().await;
    let (anchor, mut sender) = pair.stream();
    until(|| pair.producer.metrics().grants_in == 1).await;
    drop(anchor);
    sender.cancelled().await;
    assert!(sender.is_cancelled() && sender.is_stopped());
    assert_eq!(sender.send(b"x").await, Err(SendError::Cancelled));
    drop(sender);
    pair.settled().await;
}

#[tokio::test]
async fn an_anchor_dropped_before_the_claim_refuses_it() {
    let pair = Pair::new().await;
    let mut anchor = pair.consumer.anchor();
    let ticket = anchor.mint(&pair.peer).unwrap();
    drop(anchor);
    assert_eq!(pair.consumer.metrics().live_slots, 0);
    let mut sender = pair.producer.open(&ticket).unwrap();
    sender.cancelled().await;
    assert!(matches!(sender.send(b"x").await, Err(SendError::Refused(_))));
    assert_eq!(pair.consumer.metrics().claims_refused, 1);
    drop(sender);
    pair.settled().await;
}

#[tokio::test]
async fn stop_lets_the_producer_finish_with_what_it_has() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    anchor.stop();
    sender.stopped().await;
    assert!(!sender.is_cancelled());
    sender.send(b"last words").await.unwrap();
    let (sent, (items, end)) = tokio::join!(sender.finish(), drain(&mut anchor));
    assert_eq!((sent, items, end), (Ok(()), vec![b"last words".to_vec()], Ok(())));
}

#[tokio::test]
async fn a_sender_that_waits_for_credit_learns_of_the_cancel() {
    let pair = Pair::with(NodeConfig {
        window_records: 2,
        ..NodeConfig::default()
    })
    .await;
    let (mut anchor, mut sender) = pair.stream();
    let waits = tokio::spawn(async move {
        loop {
            if let Err(error) = sender.send(b"x").await {
                return error;
            }
        }
    });
    until(|| pair.consumer.metrics().records_in >= 2).await;
    anchor.cancel();
    assert_eq!(waits.await.unwrap(), SendError::Cancelled);
    assert_eq!(anchor.next().await.unwrap_err().kind, StreamErrorKind::Cancelled);
    pair.settled().await;
}

#[tokio::test]
async fn an_unclaimed_ticket_expires() {
    let pair = Pair::with(NodeConfig {
        ticket_lifetime: Duration::from_millis(50),
        ..NodeConfig::default()
    })
    .await;
    let mut anchor = pair.consumer.anchor();
    let ticket = anchor.mint(&pair.peer).unwrap();
    assert_eq!(anchor.next().await.unwrap_err().kind, StreamErrorKind::Expired);
    let mut sender = pair.producer.open(&ticket).unwrap();
    sender.cancelled().await;
    drop(sender);
    pair.settled().await;
}

#[tokio::test]
async fn a_producer_without_progress_stalls_and_is_told() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    anchor.set_progress_timeout(Some(Duration::from_millis(60)));
    sender.send(b"one").await.unwrap();
    let (items, end) = drain(&mut anchor).await;
    assert_eq!(items.len(), 1);
    assert!(matches!(end.unwrap_err().kind, StreamErrorKind::Stalled(_)));
    sender.cancelled().await;
    drop(sender);
    pair.settled().await;
}

#[tokio::test]
async fn a_lost_link_ends_every_stream_once() {
    let pair = Pair::new().await;
    let mut streams: Vec<_> = (0..100).map(|_| pair.stream()).collect();
    for (_, sender) in &mut streams {
        sender.send(b"one").await.unwrap();
    }
    until(|| pair.consumer.metrics().records_in >= 100).await;
    pair.producer.close().await;
    for (mut anchor, mut sender) in streams {
        let (items, end) = drain(&mut anchor).await;
        let error = end.unwrap_err();
        assert_eq!(
            (items.len(), error.kind.clone(), error.delivered),
            (1, StreamErrorKind::PeerLost, 1)
        );
        assert_eq!(anchor.next().await.unwrap_err(), error);
        assert_eq!(sender.send(b"x").await, Err(SendError::PeerLost));
    }
    assert_eq!(pair.peer.health(), Health::Gone);
    pair.settled().await;
}

#[tokio::test]
async fn finish_tells_when_the_consumer_did_not_take_everything() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    for _ in 0..3 {
        sender.send(b"x").await.unwrap();
    }
    let finish = sender.finish();
    until(|| pair.consumer.metrics().records_in >= 4).await;
    anchor.next().await.unwrap();
    // The first take took everything that was there, so a consumer that leaves now has taken it all.
    drop(anchor);
    assert_eq!(finish.await, Ok(()));
    let (anchor, mut sender) = pair.stream();
    sender.send(b"x").await.unwrap();
    let finish = sender.finish();
    until(|| pair.consumer.metrics().records_in >= 6).await;
    drop(anchor);
    assert_eq!(finish.await, Err(SendError::Cancelled));
    pair.settled().await;
}
