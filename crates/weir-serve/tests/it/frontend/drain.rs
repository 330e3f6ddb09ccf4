//! Shutdown: what is in progress finishes, nothing new begins, nothing waits for ever.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::{COMPLETIONS, FrontendConfig, PATIENCE, Rig, client::Client, letters, silent};

/// A stream that has begun and waits for half a second.
async fn begun(rig: &Rig) -> Client {
    let mut client = rig.client().await;
    let mut body = letters(3, json!({"stream": true}));
    body["weir_script"][1]["delay_ms"] = json!(500);
    client.post(COMPLETIONS, &body).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    client
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_progress_and_refuses_the_rest() {
    let mut rig = Rig::start(1).await;
    let mut idle = rig.client().await;
    idle.get("/live").await;
    assert_eq!(idle.answer().await.status, 200);
    let mut streaming = begun(&rig).await;
    drop(rig.stop.take());
    assert!(idle.closed().await.is_empty());
    let health = rig.get("/health").await;
    assert_eq!(
        (health.status, health.json()["status"].clone()),
        (503, json!("draining"))
    );
    let refused = rig.post(COMPLETIONS, &letters(1, json!({}))).await;
    assert_eq!(
        (refused.status, refused.error_code()),
        (503, json!("server_overloaded"))
    );
    assert_eq!(
        (refused.header("retry-after"), refused.header("connection")),
        (Some("1"), Some("close"))
    );
    let rest = String::from_utf8(streaming.closed().await).unwrap();
    assert!(rest.contains("\"c\"") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(timeout(PATIENCE, rig.serving).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_drain_is_bounded_and_stops_the_workers_too() {
    let config = FrontendConfig {
        drain_timeout: Duration::from_millis(200),
        ..FrontendConfig::default()
    };
    let mut rig = Rig::with(1, config).await;
    let mut client = rig.client().await;
    client.post(COMPLETIONS, &silent(json!({}))).await;
    rig.busy_host().await;
    drop(rig.stop.take());
    assert!(client.closed().await.is_empty());
    assert_eq!(timeout(PATIENCE, rig.serving).await.unwrap().unwrap(), 1);
    let idle = async {
        while rig.hosts[0].stats().iter().any(|stats| stats.running > 0) {
            tokio::task::yield_now().await
        }
    };
    timeout(PATIENCE, idle).await.expect("the worker is idle");
}

#[tokio::test]
async fn a_drain_does_not_wait_for_clients_that_ask_nothing() {
    let mut rig = Rig::start(0).await;
    let mut silent = rig.client().await;
    drop(rig.stop.take());
    assert_eq!(timeout(PATIENCE, rig.serving).await.unwrap().unwrap(), 0);
    assert!(silent.closed().await.is_empty());
}
