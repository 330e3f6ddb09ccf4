//! Calls: replies, errors, cancels, sizes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use weir_net::{CallContext, CallError, CallOptions};

use crate::pair::{Pair, until};

async fn echo(context: CallContext) -> Result<Bytes, String> {
    Ok(context.body)
}

#[tokio::test]
async fn a_call_is_answered_whatever_its_size() {
    let pair = Pair::new().await;
    pair.producer.handle("echo", echo);
    pair.peer.wait_for_handler("echo").await.unwrap();
    for size in [0, 1, 4096, 5000, 40_000, 1 << 20, 16 << 20] {
        let body = Bytes::from(vec![7; size]);
        let reply = pair
            .peer
            .call("echo", body.clone(), CallOptions::default())
            .await
            .unwrap();
        assert!(reply == body, "{size} bytes");
    }
    let over = Bytes::from(vec![0; (16 << 20) + 1]);
    let error = pair
        .peer
        .call("echo", over, CallOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        error,
        CallError::TooLarge {
            size: (16 << 20) + 1,
            limit: 16 << 20
        }
    );
    pair.settled().await;
}

#[tokio::test]
async fn many_calls_run_at_once_and_small_ones_pass_large_ones() {
    let pair = Pair::new().await;
    pair.producer.handle("echo", echo);
    let large = pair
        .peer
        .call("echo", Bytes::from(vec![1; 8 << 20]), CallOptions::default());
    let small = async {
        for i in 0..200_u32 {
            let body = Bytes::copy_from_slice(&i.to_le_bytes());
            assert_eq!(
                pair.peer
                    .call("echo", body.clone(), CallOptions::default())
                    .await
                    .unwrap(),
                body
            );
        }
    };
    let (large, ()) = tokio::join!(large, small);
    assert_eq!(large.unwrap().len(), 8 << 20);
}

#[tokio::test]
async fn errors_say_who_must_act() {
    let pair = Pair::new().await;
    pair.producer
        .handle("fails", |_: CallContext| async { Err("no beans".to_owned()) });
    pair.producer
        .handle("panics", |_: CallContext| async { panic!("on purpose") });
    let call = |name: &'static str| pair.peer.call(name, Bytes::new(), CallOptions::default());
    assert_eq!(call("fails").await, Err(CallError::Failed("no beans".to_owned())));
    assert_eq!(call("none").await, Err(CallError::NoHandler("none".to_owned())));
    assert!(matches!(call("panics").await, Err(CallError::Failed(_))));
    pair.settled().await;
}

#[tokio::test]
async fn a_dropped_call_drops_its_handler() {
    struct Gauge(Arc<AtomicUsize>);
    impl Drop for Gauge {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let pair = Pair::new().await;
    let running = Arc::new(AtomicUsize::new(0));
    let gauge = running.clone();
    pair.producer.handle("hangs", move |_: CallContext| {
        gauge.fetch_add(1, Ordering::SeqCst);
        let guard = Gauge(gauge.clone());
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let deadline = CallOptions {
        deadline: Duration::from_millis(30),
    };
    let error = pair.peer.call("hangs", Bytes::new(), deadline).await.unwrap_err();
    assert_eq!(error, CallError::Deadline(Duration::from_millis(30)));
    until(|| running.load(Ordering::SeqCst) == 0).await;
    pair.settled().await;
}

#[tokio::test]
async fn casts_arrive_and_give_their_place_back() {
    let pair = Pair::new().await;
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    pair.producer.handle("note", move |_: CallContext| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(Bytes::from_static(b"unseen")) }
    });
    for i in 0..3000_usize {
        pair.peer.cast("note", Bytes::from_static(b"n")).unwrap();
        if i % 500 == 499 {
            until(|| seen.load(Ordering::SeqCst) == i + 1).await;
            pair.settled().await;
        }
    }
}

#[tokio::test]
async fn calls_in_flight_fail_at_once_when_the_link_ends() {
    let pair = Pair::new().await;
    pair.producer
        .handle("hangs", |_: CallContext| std::future::pending());
    pair.peer.wait_for_handler("hangs").await.unwrap();
    let call = pair.peer.call("hangs", Bytes::new(), CallOptions::default());
    let close = async {
        until(|| pair.consumer.metrics().writes >= 1).await;
        pair.producer.close().await;
    };
    let (reply, ()) = tokio::join!(call, close);
    assert_eq!(reply, Err(CallError::Unknown));
    let reply = pair
        .peer
        .call("hangs", Bytes::new(), CallOptions::default())
        .await;
    assert_eq!(reply, Err(CallError::NotSent));
    assert_eq!(pair.peer.wait_for_handler("other").await, Err(CallError::NotSent));
}

#[tokio::test]
async fn too_many_calls_fail_typed() {
    let pair = Pair::new().await;
    pair.producer
        .handle("hangs", |_: CallContext| std::future::pending());
    let body = Bytes::from(vec![0; 16 << 20]);
    pair.peer.cast("hangs", body.clone()).unwrap();
    pair.peer.cast("hangs", body.clone()).unwrap();
    assert!(matches!(
        pair.peer.cast("hangs", body),
        Err(CallError::Busy { .. })
    ));
}
