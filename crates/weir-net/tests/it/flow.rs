//! Credit, grants and flushes.

use weir_net::NodeConfig;

use crate::pair::{Pair, until};

#[tokio::test]
async fn a_sender_runs_ahead_of_its_consumer_by_the_window_and_no_further() {
    let pair = Pair::with(NodeConfig {
        window_records: 8,
        ..NodeConfig::default()
    })
    .await;
    let (mut anchor, mut sender) = pair.stream();
    let mut sent = 0;
    while sender.try_send(b"x").is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 8);
    for _ in 0..8 {
        anchor.next().await.unwrap().unwrap();
    }
    std::future::poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
}

#[tokio::test]
async fn only_drained_slots_are_visited_for_a_grant() {
    let pair = Pair::new().await;
    let mut streams: Vec<_> = (0..1000).map(|_| pair.stream()).collect();
    for (_, sender) in &mut streams {
        sender.send(b"one").await.unwrap();
    }
    // Every claim is answered with a grant; wait until these are through.
    until(|| pair.producer.metrics().grants_in == 1000).await;
    until(|| pair.consumer.metrics().records_in >= 1000).await;
    let before = pair.consumer.metrics();
    for (anchor, _) in streams.iter_mut().step_by(91) {
        anchor.next().await.unwrap().unwrap();
    }
    until(|| pair.producer.metrics().grants_in == 1011).await;
    let after = pair.consumer.metrics();
    assert_eq!(after.dirty_visits - before.dirty_visits, 11);
    assert_eq!(after.grants_out - before.grants_out, 11);
}

#[tokio::test]
async fn a_consumer_that_does_not_read_delays_nobody_else() {
    let pair = Pair::new().await;
    let (_stopped, mut to_stopped) = pair.stream();
    while to_stopped.try_send(&[0; 1000]).is_ok() {}
    let (mut anchor, mut sender) = pair.stream();
    let reader = tokio::spawn(async move {
        let mut count = 0;
        while anchor.next().await.unwrap().is_some() {
            count += 1;
        }
        count
    });
    for _ in 0..5000 {
        sender.send(&[0; 1000]).await.unwrap();
    }
    sender.finish().await.unwrap();
    assert_eq!(reader.await.unwrap(), 5000);
    assert!(to_stopped.try_send(b"x").is_err());
}

#[tokio::test]
async fn flush_resolves_once_everything_is_with_the_kernel() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    for i in 0..10_u8 {
        sender.send(&[i]).await.unwrap();
        sender.flush().await;
        assert!(pair.producer.metrics().records_out > u64::from(i));
    }
    pair.producer.flush().await;
    for _ in 0..10 {
        anchor.next().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn one_write_carries_a_whole_pass() {
    let pair = Pair::new().await;
    let mut streams: Vec<_> = (0..200).map(|_| pair.stream()).collect();
    pair.producer.flush().await;
    let before = pair.producer.metrics();
    for (_, sender) in &mut streams {
        sender.try_send(&[0; 100]).unwrap();
    }
    pair.producer.flush().await;
    let after = pair.producer.metrics();
    assert_eq!(after.records_out - before.records_out, 200);
    assert_eq!(after.writes - before.writes, 1);
}
