//! Clients that go away or do not read, and workers that hang: everything comes back to its base.

use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;

use super::{
    CHAT, COMPLETIONS, Client, FrontendConfig, Rig, Streamed, client::post_head, letters, script, silent,
};

/// How a client goes.
#[derive(Clone, Copy)]
enum Way {
    Close,
    HalfClose,
    Reset,
}

async fn go(client: Client, way: Way) -> Option<Client> {
    match way {
        Way::Close => drop(client),
        Way::Reset => SockRef::from(client.socket())
            .set_linger(Some(Duration::ZERO))
            .unwrap(),
        Way::HalfClose => {
            SockRef::from(client.socket())
                .shutdown(std::net::Shutdown::Write)
                .unwrap();
            return Some(client);
        }
    }
    None
}

#[tokio::test]
async fn a_client_that_goes_before_the_first_token_stops_its_worker() {
    let rig = Rig::start(1).await;
    for (gone, way) in (1..).zip([Way::Close, Way::HalfClose, Way::Reset]) {
        for stream in [true, false] {
            let mut client = rig.client().await;
            client.post(COMPLETIONS, &silent(json!({"stream": stream}))).await;
            rig.busy_host().await;
            assert_eq!(rig.metric("weir_requests_in_flight").await, 1);
            let half = go(client, way).await;
            rig.idle().await;
            drop(half);
        }
        assert_eq!(rig.metric("weir_client_disconnects_total").await, 2 * gone);
    }
}

/// The alphabet, then ten minutes of silence, then one more letter.
fn halting(members: Value) -> Value {
    let mut body = letters(27, members);
    body["weir_script"][26]["delay_ms"] = json!(600_000);
    body
}

#[tokio::test]
async fn a_client_that_goes_mid_stream_stops_its_worker() {
    let rig = Rig::start(1).await;
    for (gone, way) in (1..).zip([Way::Close, Way::HalfClose, Way::Reset]) {
        let mut client = rig.client().await;
        client.post(COMPLETIONS, &halting(json!({"stream": true}))).await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        let mut text = String::new();
        while !text.contains("\"z\"") {
            text += std::str::from_utf8(&client.chunk().await).unwrap();
        }
        let half = go(client, way).await;
        rig.idle().await;
        drop(half);
        assert_eq!(rig.metric("weir_client_disconnects_total").await, gone);
        assert_eq!(rig.metric("weir_completion_tokens_total").await, 26 * gone);
    }
}

#[tokio::test]
async fn a_client_that_goes_while_its_answer_is_collected_stops_its_worker() {
    let rig = Rig::start(1).await;
    let mut client = rig.client().await;
    client
        .post(
            CHAT,
            &halting(json!({"messages": [{"role": "user", "content": "x"}], "n": 3})),
        )
        .await;
    rig.until("weir_engine_running", 3).await;
    drop(client);
    rig.idle().await;
    assert_eq!(rig.metric("weir_client_disconnects_total").await, 1);
}

#[tokio::test]
async fn a_client_that_goes_while_it_sends_leaves_nothing() {
    let rig = Rig::start(1).await;
    let mut client = rig.client().await;
    client
        .send(post_head(COMPLETIONS, 1000, "") + "{\"model\":")
        .await;
    drop(client);
    rig.idle().await;
}

#[tokio::test]
async fn many_clients_that_go_leave_tasks_and_descriptors_at_their_base() {
    let rig = Rig::start(2).await;
    rig.idle().await;
    let (tasks, fds) = (
        rig.metric("weir_runtime_tasks").await,
        rig.metric("weir_process_open_fds").await,
    );
    let mut clients = Vec::new();
    for at in 0..200 {
        let mut client = rig.client().await;
        client
            .post(COMPLETIONS, &halting(json!({"stream": at % 2 == 0})))
            .await;
        clients.push(client);
    }
    rig.until("weir_engine_running", 200).await;
    // A stream has no task beyond its connection's.
    assert!(rig.metric("weir_runtime_tasks").await <= tasks + 200);
    drop(clients);
    rig.idle().await;
    rig.until("weir_runtime_tasks", tasks).await;
    // Worker hosts of this test live in the same process, so this counts both ends.
    rig.until("weir_process_open_fds", fds).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_disturbs_nobody() {
    let config = FrontendConfig {
        stall_limit: Duration::from_millis(300),
        ..FrontendConfig::default()
    };
    let rig = Rig::with(1, config).await;
    let mut slow = rig.client().await;
    SockRef::from(slow.socket()).set_recv_buffer_size(4096).unwrap();
    let large = vec![vec![b'x'; 4000]; 200];
    slow.post(COMPLETIONS, &script(large, json!({"stream": true})))
        .await;
    assert!(slow.head().await.starts_with("HTTP/1.1 200"));
    for _ in 0..20 {
        let streamed = Streamed::read(&rig.post(COMPLETIONS, &letters(26, json!({"stream": true}))).await);
        assert!(streamed.done && streamed.texts.len() == 26);
    }
    rig.until("weir_stalled_clients_total", 1).await;
    let rest = String::from_utf8_lossy(&slow.closed().await).into_owned();
    assert!(!rest.contains("[DONE]") && !rest.contains("finish_reason\":\"stop"));
    rig.idle().await;
}

fn brief() -> FrontendConfig {
    let limit = Duration::from_millis(300);
    FrontendConfig {
        first_token_timeout: limit,
        progress_timeout: limit,
        ..FrontendConfig::default()
    }
}

#[tokio::test]
async fn a_worker_that_hangs_before_its_first_token_is_a_timeout() {
    let rig = Rig::with(1, brief()).await;
    for stream in [true, false] {
        let fault = json!({"stream": stream, "weir_fault": {"at": 0, "kind": "hang"}});
        let answer = rig.post(COMPLETIONS, &letters(5, fault)).await;
        assert_eq!((answer.status, answer.error_code()), (504, json!("timeout")));
        rig.idle().await;
    }
}

#[tokio::test]
async fn a_worker_that_hangs_later_breaks_the_answer() {
    let rig = Rig::with(1, brief()).await;
    let fault = |stream: bool| json!({"stream": stream, "weir_fault": {"at": 3, "kind": "hang"}});
    let streamed = Streamed::read(&rig.post(COMPLETIONS, &letters(5, fault(true))).await);
    assert_eq!(
        (streamed.text().as_str(), &streamed.broken()["code"]),
        ("abc", &json!("timeout"))
    );
    let whole = rig.post(COMPLETIONS, &letters(5, fault(false))).await;
    assert_eq!((whole.status, whole.error_code()), (504, json!("timeout")));
    rig.idle().await;
}

#[tokio::test]
async fn a_worker_that_fails_later_breaks_the_answer_and_its_siblings() {
    let rig = Rig::start(1).await;
    let fault = |stream: bool| json!({"stream": stream, "n": 2, "weir_fault": {"at": 3, "kind": "error"}});
    let streamed = Streamed::read(&rig.post(COMPLETIONS, &letters(5, fault(true))).await);
    assert_eq!(streamed.broken()["code"], "engine_error");
    let whole = rig.post(COMPLETIONS, &letters(5, fault(false))).await;
    assert_eq!((whole.status, whole.error_code()), (502, json!("engine_error")));
    rig.idle().await;
    assert_eq!(
        rig.metric("weir_requests_total{route=\"completions\",status=\"5xx\"")
            .await,
        2
    );
}
