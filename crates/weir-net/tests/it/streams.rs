//! Items arrive once, in order, whatever their size.

use bytes::Bytes;
use weir_net::{MintError, Node, NodeConfig, OpenError, SendError, TrySendError};

use crate::pair::{Pair, drain};

#[tokio::test]
async fn items_arrive_in_order_and_the_end_after_them() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    let send = async {
        for i in 0..1000_u32 {
            sender.send(&i.to_le_bytes()).await.unwrap();
        }
        sender.finish().await
    };
    let (sent, (items, end)) = tokio::join!(send, drain(&mut anchor));
    assert_eq!(sent, Ok(()));
    assert_eq!(end, Ok(()));
    let expected: Vec<Vec<u8>> = (0..1000_u32).map(|i| i.to_le_bytes().to_vec()).collect();
    assert_eq!(items, expected);
    pair.settled().await;
}

#[tokio::test]
async fn items_of_every_size_up_to_the_window_arrive_whole() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    let sizes = [
        0, 1, 4095, 4096, 4097, 16_384, 32_743, 32_744, 32_745, 40_000, 65_535, 65_536,
    ];
    let send = async {
        for size in sizes {
            let item: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            sender.send_bytes(Bytes::from(item)).await.unwrap();
        }
        sender.finish().await
    };
    let (sent, (items, end)) = tokio::join!(send, drain(&mut anchor));
    assert_eq!((sent, end), (Ok(()), Ok(())));
    assert_eq!(items.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
    assert!(
        items
            .iter()
            .all(|item| item.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8))
    );
}

#[tokio::test]
async fn an_item_over_the_byte_window_fails_typed_and_harms_nothing() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    let error = sender.send(&vec![0; 65_537]).await.unwrap_err();
    assert_eq!(
        error,
        SendError::TooLarge {
            size: 65_537,
            limit: 65_536
        }
    );
    sender.send(b"still fine").await.unwrap();
    assert_eq!(anchor.next().await.unwrap().unwrap(), "still fine");
}

#[tokio::test]
async fn try_send_gives_the_item_back_without_credit_and_works_again_after_a_grant() {
    let pair = Pair::with(NodeConfig {
        window_records: 4,
        ..NodeConfig::default()
    })
    .await;
    let (mut anchor, mut sender) = pair.stream();
    for i in 0..4 {
        sender.try_send(&[i]).unwrap();
    }
    assert_eq!(sender.try_send(&[4]), Err(TrySendError::Full));
    assert_eq!(anchor.next().await.unwrap().unwrap(), [0_u8][..]);
    std::future::poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
    sender.try_send(&[4]).unwrap();
    drop(sender.finish());
    assert_eq!(drain(&mut anchor).await.0, [[1], [2], [3], [4]]);
}

#[tokio::test]
async fn a_stream_that_ends_without_items_is_finished_not_lost() {
    let pair = Pair::new().await;
    let (mut anchor, sender) = pair.stream();
    let (sent, (items, end)) = tokio::join!(sender.finish(), drain(&mut anchor));
    assert_eq!((sent, items.len(), end), (Ok(()), 0, Ok(())));
    pair.settled().await;
}

#[tokio::test]
async fn thousands_of_streams_share_one_connection() {
    let pair = Pair::new().await;
    let mut tasks = Vec::new();
    for i in 0..2000_u32 {
        let (mut anchor, mut sender) = pair.stream();
        tasks.push(tokio::spawn(async move {
            for k in 0..50_u32 {
                sender.send(&(i * 100 + k).to_le_bytes()).await.unwrap();
            }
            sender.finish().await.unwrap();
        }));
        tasks.push(tokio::spawn(async move {
            let (items, end) = drain(&mut anchor).await;
            assert_eq!(end, Ok(()));
            let expected: Vec<Vec<u8>> = (0..50).map(|k| (i * 100 + k).to_le_bytes().to_vec()).collect();
            assert_eq!(items, expected);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    pair.settled().await;
    assert_eq!(pair.consumer.metrics().links, 1);
}

#[tokio::test]
async fn a_ticket_opens_once_and_only_for_its_peer() {
    let pair = Pair::new().await;
    let mut anchor = pair.consumer.anchor();
    let ticket = anchor.mint(&pair.peer).unwrap();
    assert_eq!(anchor.mint(&pair.peer), Err(MintError::Attached));
    let other = Node::bind(NodeConfig::default()).await.unwrap();
    assert!(matches!(other.open(&ticket), Err(OpenError::NotForMe(_))));
    let _sender = pair.producer.open(&ticket).unwrap();
    assert!(matches!(pair.producer.open(&ticket), Err(OpenError::AlreadyOpen)));
    let parsed = weir_net::Ticket::from_bytes(&ticket.to_bytes()).unwrap();
    assert_eq!(parsed, ticket);
    assert!(matches!(
        weir_net::Ticket::from_bytes(b"\x09junk"),
        Err(OpenError::Malformed(_))
    ));
}

#[tokio::test]
async fn slots_run_out_typed_and_come_back() {
    let pair = Pair::with(NodeConfig {
        max_slots: 3,
        ..NodeConfig::default()
    })
    .await;
    let mut anchors: Vec<_> = (0..3).map(|_| pair.consumer.anchor()).collect();
    for anchor in &mut anchors {
        anchor.mint(&pair.peer).unwrap();
    }
    let mut late = pair.consumer.anchor();
    assert_eq!(late.mint(&pair.peer), Err(MintError::NoSlot { max: 3 }));
    anchors.clear();
    late.mint(&pair.peer).unwrap();
}
