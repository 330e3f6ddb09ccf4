//! Which worker a request goes to, and what happens when that one cannot.

use serde_json::{Value, json};
use weir_engine::scripted::ScriptedConfig;

use super::{COMPLETIONS, FrontendConfig, Rig, Streamed, host, letters, silent};

fn text(answer: &super::Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["choices"][0]["text"].clone()
}

#[tokio::test]
async fn without_workers_requests_are_told_to_retry() {
    let rig = Rig::start(0).await;
    let answer = rig.post(COMPLETIONS, &letters(1, json!({}))).await;
    assert_eq!((answer.status, answer.error_code()), (503, json!("no_workers")));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let health = rig.get("/health").await;
    assert_eq!(
        (health.status, health.json()["status"].clone()),
        (503, json!("no_workers"))
    );
    assert_eq!(rig.get("/live").await.status, 200);
}

#[tokio::test]
async fn requests_go_to_the_workers_in_turn() {
    let rig = Rig::start(3).await;
    for _ in 0..9 {
        text(&rig.post(COMPLETIONS, &letters(1, json!({}))).await);
    }
    let served: Vec<_> = rig.hosts.iter().map(|host| host.stats()[1].requests).collect();
    assert_eq!(served, [3, 3, 3]);
}

#[tokio::test]
async fn a_worker_that_refuses_costs_the_request_nothing() {
    let rig = Rig::start(2).await;
    let refuse = json!({"weir_fault": {"at": 0, "kind": "refuse"}});
    assert_eq!(
        text(&rig.post(COMPLETIONS, &letters(20, refuse.clone())).await),
        "abcdefghijklmnopqrst"
    );
    assert_eq!(rig.metric("weir_requests_moved_total").await, 1);
    let alone = Rig::start(1).await;
    let answer = alone.post(COMPLETIONS, &letters(20, refuse)).await;
    assert_eq!(
        (answer.status, answer.error_code()),
        (503, json!("server_overloaded"))
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    alone.idle().await;
}

#[tokio::test]
async fn a_migration_limit_of_0_moves_nothing() {
    let rig = Rig::with(
        2,
        FrontendConfig {
            migration_limit: 0,
            ..FrontendConfig::default()
        },
    )
    .await;
    let refuse = json!({"weir_fault": {"at": 0, "kind": "refuse"}});
    assert_eq!(rig.post(COMPLETIONS, &letters(2, refuse)).await.status, 503);
    assert_eq!(rig.metric("weir_requests_moved_total").await, 0);
}

#[tokio::test]
async fn a_worker_that_fails_with_a_request_is_not_followed_by_others() {
    let rig = Rig::start(2).await;
    let answer = rig
        .post(
            COMPLETIONS,
            &letters(2, json!({"weir_fault": {"at": 0, "kind": "error"}})),
        )
        .await;
    assert_eq!((answer.status, answer.error_code()), (502, json!("engine_error")));
    assert_eq!(rig.metric("weir_requests_moved_total").await, 0);
}

#[tokio::test]
async fn a_worker_lost_before_the_first_token_is_replaced_by_another() {
    let rig = Rig::start(2).await;
    for stream in [true, false] {
        let mut client = rig.client().await;
        let mut body = letters(
            20,
            json!({"stream": stream, "weir_fault": {"at": 0, "kind": "hang"}}),
        );
        body["model"] = json!("scripted");
        client.post(COMPLETIONS, &body).await;
        let lost = rig.busy_host().await;
        lost.node().close().await;
        let answer = client.answer().await;
        if stream {
            let streamed = Streamed::read(&answer);
            assert_eq!(
                (streamed.texts.len(), streamed.finish, streamed.done),
                (20, vec!["stop".to_owned()], true)
            );
        } else {
            // The second loss leaves nobody.
            assert_eq!((answer.status, answer.error_code()), (502, json!("worker_lost")));
        }
    }
    assert_eq!(rig.metric("weir_requests_moved_total").await, 2);
}

#[tokio::test]
async fn a_worker_lost_later_breaks_the_answer() {
    let rig = Rig::start(2).await;
    let mut client = rig.client().await;
    client
        .post(
            COMPLETIONS,
            &letters(
                20,
                json!({"stream": true, "weir_fault": {"at": 5, "kind": "hang"}}),
            ),
        )
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut body = String::new();
    while !body.contains("\"e\"") {
        body += std::str::from_utf8(&client.chunk().await).unwrap();
    }
    rig.busy_host().await.node().close().await;
    loop {
        let chunk = client.chunk().await;
        if chunk.is_empty() {
            break;
        }
        body += std::str::from_utf8(&chunk).unwrap();
    }
    assert!(
        body.contains("\"code\":\"worker_lost\"") && !body.contains("[DONE]"),
        "{body}"
    );
    assert!(!body.contains("\"finish_reason\":\"stop\""), "{body}");
    rig.idle().await;
}

#[tokio::test]
async fn a_worker_that_comes_back_elsewhere_is_linked_again() {
    let mut rig = Rig::start(1).await;
    rig.hosts[0].node().close().await;
    rig.until("weir_workers", 0).await;
    let answer = rig.post(COMPLETIONS, &letters(1, json!({}))).await;
    assert_eq!((answer.status, answer.error_code()), (503, json!("no_workers")));
    rig.hosts[0] = host("w0", &ScriptedConfig::default()).await;
    rig.listed.send_replace(vec![rig.hosts[0].registration()]);
    rig.until("weir_workers", 2).await;
    assert_eq!(text(&rig.post(COMPLETIONS, &letters(1, json!({}))).await), "a");
    rig.listed.send_replace(Vec::new());
    rig.until("weir_workers", 0).await;
    assert_eq!(rig.post(COMPLETIONS, &letters(1, json!({}))).await.status, 503);
}

#[tokio::test]
async fn a_worker_gone_from_the_list_ends_what_it_runs() {
    let rig = Rig::start(1).await;
    let mut client = rig.client().await;
    let mut body = letters(3, json!({}));
    body["weir_script"][1]["delay_ms"] = json!(300);
    client.post(COMPLETIONS, &body).await;
    rig.busy_host().await;
    rig.listed.send_replace(Vec::new());
    assert_eq!(text(&client.answer().await), "abc");
}

#[tokio::test]
async fn a_worker_whose_card_differs_is_named_and_not_used() {
    let other = ScriptedConfig {
        context_length: 99,
        ..ScriptedConfig::default()
    };
    let hosts = vec![
        host("w0", &ScriptedConfig::default()).await,
        host("w1", &other).await,
    ];
    let rig = Rig::of(hosts, FrontendConfig::default()).await;
    rig.until("weir_workers", 3).await;
    let health = rig.get("/health").await;
    assert_eq!(health.status, 200);
    let rejected = &health.json()["rejected_workers"];
    assert_eq!(
        (&rejected[0]["worker"], &rejected[0]["model"]),
        (&json!("w1/1"), &json!("scripted"))
    );
    assert!(
        rejected[0]["reason"].as_str().unwrap().contains("99"),
        "{rejected}"
    );
    assert_eq!(
        (
            rejected.as_array().unwrap().len(),
            rig.metric("weir_workers_rejected").await
        ),
        (1, 1)
    );
    for _ in 0..4 {
        text(&rig.post(COMPLETIONS, &letters(1, json!({}))).await);
    }
    assert_eq!(rig.hosts[1].stats()[1].requests, 0);
    // Once the first is gone the other's card is the model's.
    rig.listed.send_replace(vec![rig.hosts[1].registration()]);
    rig.until("weir_workers_rejected", 0).await;
    rig.until("weir_workers", 2).await;
    text(&rig.post(COMPLETIONS, &letters(1, json!({}))).await);
    assert_eq!(rig.get("/v1/models/scripted").await.json()["context_length"], 99);
}

#[tokio::test]
async fn a_request_is_not_moved_after_its_deadline() {
    let config = FrontendConfig {
        first_token_timeout: std::time::Duration::from_millis(200),
        ..FrontendConfig::default()
    };
    let rig = Rig::with(2, config).await;
    let answer = rig.post(COMPLETIONS, &silent(json!({}))).await;
    assert_eq!(
        (answer.status, rig.metric("weir_requests_moved_total").await),
        (504, 0)
    );
    rig.idle().await;
}
