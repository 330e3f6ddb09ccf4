//! Requests that are refused: their status, a small JSON body, and the next request served.

use serde_json::{Value, json};
use tokio::time::timeout;
use weir_serve::frontend::ApiKeys;

use super::{CHAT, COMPLETIONS, FrontendConfig, PATIENCE, Rig, client::post_head, letters, silent};

#[tokio::test]
async fn a_bad_request_is_refused_and_the_next_one_on_its_connection_served() {
    let rig = Rig::start(1).await;
    let mut client = rig.client().await;
    let table: [(&str, Value, u16, Value, Value); 11] = [
        (CHAT, json!({}), 400, Value::Null, json!("model")),
        (
            CHAT,
            json!({"model": "mock"}),
            400,
            Value::Null,
            json!("messages"),
        ),
        (
            CHAT,
            json!({"model": "mock", "messages": []}),
            400,
            Value::Null,
            json!("messages"),
        ),
        (
            CHAT,
            json!({"model": "nix", "messages": [{"role": "user", "content": "x"}]}),
            404,
            json!("model_not_found"),
            json!("model"),
        ),
        (
            COMPLETIONS,
            json!({"model": "mock", "prompt": ""}),
            400,
            Value::Null,
            json!("prompt"),
        ),
        (
            COMPLETIONS,
            json!({"model": "mock", "prompt": "x", "max_tokens": 0}),
            400,
            Value::Null,
            json!("max_tokens"),
        ),
        (
            COMPLETIONS,
            json!({"model": "mock", "prompt": [99_999_999]}),
            400,
            Value::Null,
            json!("prompt"),
        ),
        (
            COMPLETIONS,
            json!({"model": "mock", "prompt": "x", "stop_token_ids": [99_999_999]}),
            400,
            Value::Null,
            json!("stop_token_ids"),
        ),
        (
            COMPLETIONS,
            json!({"model": "mock", "prompt": "x", "logit_bias": {"99999999": 1}}),
            400,
            Value::Null,
            json!("logit_bias"),
        ),
        (
            COMPLETIONS,
            json!({"model": "mock", "prompt": "x", "max_tokens": 16_384}),
            400,
            json!("context_length_exceeded"),
            json!("prompt"),
        ),
        (
            COMPLETIONS,
            json!({"model": "scripted", "prompt": "x"}),
            400,
            Value::Null,
            Value::Null,
        ),
    ];
    for (path, body, status, code, param) in table {
        client.post(path, &body).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (status, code),
            "{body}: {answer:?}"
        );
        assert_eq!(answer.json()["error"]["param"], param, "{body}");
    }
    for raw in [
        "",
        "nonsense",
        "{",
        "[]",
        "{\"model\": \"mock\", \"prompt\": \"\\ud800\"}",
    ] {
        client.send(post_head(COMPLETIONS, raw.len(), "") + raw).await;
        assert_eq!(client.answer().await.status, 400, "{raw}");
    }
    client.post(COMPLETIONS, &letters(2, json!({}))).await;
    assert_eq!(client.answer().await.json()["choices"][0]["text"], "ab");
    rig.idle().await;
}

#[tokio::test]
async fn a_prompt_far_over_the_context_is_refused() {
    let rig = Rig::start(1).await;
    for prompt in ["word ".repeat(1 << 20), "a".repeat(100_000), "é".repeat(20_000)] {
        let answer = rig
            .post(COMPLETIONS, &json!({"model": "mock", "prompt": prompt}))
            .await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (400, json!("context_length_exceeded"))
        );
    }
    let chat = json!({"model": "mock", "messages": [{"role": "user", "content": "word ".repeat(1 << 20)}]});
    assert_eq!(
        rig.post(CHAT, &chat).await.error_code(),
        "context_length_exceeded"
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_read_no_further() {
    let rig = Rig::start(1).await;
    let mut client = rig.client().await;
    client.send(post_head(COMPLETIONS, 33 << 20, "")).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.error_code()),
        (413, json!("request_too_large"))
    );
    assert_eq!(answer.header("connection"), Some("close"));
    let mut client = rig.client().await;
    client.send(post_head(COMPLETIONS, 33 << 20, "")).await;
    client.send(vec![b' '; 33 << 20]).await;
    assert_eq!(client.answer().await.status, 413);
    assert_eq!(rig.post(COMPLETIONS, &letters(1, json!({}))).await.status, 200);
}

#[tokio::test]
async fn paths_methods_and_types_are_checked() {
    let rig = Rig::start(1).await;
    let send = async |head: &str| {
        let mut client = rig.client().await;
        client
            .send(format!("{head}\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}"))
            .await;
        client.answer().await
    };
    for (head, status, code) in [
        ("GET /nix HTTP/1.1", 404, "not_found"),
        ("POST /v1/chat HTTP/1.1", 404, "not_found"),
        ("PUT /v1/completions HTTP/1.1", 405, "method_not_allowed"),
        ("OPTIONS /v1/completions HTTP/1.1", 405, "method_not_allowed"),
        ("POST /health HTTP/1.1", 405, "method_not_allowed"),
        (
            "POST /v1/completions HTTP/1.1\r\ncontent-type: text/plain",
            415,
            "unsupported_media_type",
        ),
        (
            "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-encoding: gzip",
            415,
            "unsupported_media_type",
        ),
    ] {
        let answer = send(head).await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (status, json!(code)),
            "{head}"
        );
        assert_eq!(answer.header("allow").is_some(), status == 405, "{head}");
    }
    assert_eq!(
        send("POST /v1/completions HTTP/1.1").await.json()["error"]["param"],
        "model"
    );
    let mut client = rig.client().await;
    client
        .send("HEAD /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    let answer = String::from_utf8(client.closed().await).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    assert_eq!(rig.metric("weir_requests_total{route=\"other\"").await, 0);
}

#[tokio::test]
async fn what_is_no_http_ends_its_connection_only() {
    let rig = Rig::start(1).await;
    for garbage in [
        &b"\x00\xff\x00\xff\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = rig.client().await;
        client.send(garbage).await;
        client.closed().await;
    }
    let mut client = rig.client().await;
    client
        .send(format!(
            "GET /live HTTP/1.1\r\nx: {}\r\n\r\n",
            "y".repeat(256 << 10)
        ))
        .await;
    let answer = String::from_utf8(client.closed().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(rig.get("/live").await.status, 200);
}

#[tokio::test]
async fn a_key_opens_every_route_but_health_and_live_are_open() {
    let keys = ApiKeys::parse("secret\n").unwrap();
    let rig = Rig::with(
        0,
        FrontendConfig {
            api_keys: Some(keys),
            ..FrontendConfig::default()
        },
    )
    .await;
    for path in [
        "/v1/models",
        "/v1/models/mock",
        "/metrics",
        "/nix",
        CHAT,
        COMPLETIONS,
    ] {
        let answer = rig.get(path).await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (401, json!("invalid_api_key")),
            "{path}"
        );
    }
    assert_eq!(rig.get("/live").await.status, 200);
    assert_eq!(rig.get("/health").await.status, 503);
    let mut client = rig.client().await;
    client
        .send("GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn browsers_may_call_from_configured_origins_only() {
    let config = FrontendConfig {
        cors_origins: vec!["https://a.example".to_owned()],
        ..FrontendConfig::default()
    };
    let rig = Rig::with(0, config).await;
    let ask = async |method: &str, origin: &str| {
        let mut client = rig.client().await;
        let more = "access-control-request-method: POST\r\n";
        client
            .send(format!(
                "{method} {CHAT} HTTP/1.1\r\nhost: x\r\norigin: {origin}\r\n{more}\r\n"
            ))
            .await;
        client.answer().await
    };
    let allowed = ask("OPTIONS", "https://a.example").await;
    assert_eq!(allowed.status, 204);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://a.example")
    );
    assert!(
        allowed
            .header("access-control-allow-headers")
            .unwrap()
            .contains("authorization")
    );
    let other = ask("OPTIONS", "https://b.example").await;
    assert_eq!(
        (other.status, other.header("access-control-allow-origin")),
        (405, None)
    );
    let error = ask("GET", "https://a.example").await;
    assert_eq!(
        (error.status, error.header("access-control-allow-origin")),
        (405, Some("https://a.example"))
    );
}

#[tokio::test]
async fn limits_on_requests_and_connections_say_when_to_retry() {
    let config = FrontendConfig {
        max_requests: Some(1),
        max_connections: 3,
        ..FrontendConfig::default()
    };
    let rig = Rig::with(1, config).await;
    let mut asking = rig.client().await;
    // The connections of the rig's own questions have to be gone.
    loop {
        asking.get("/metrics").await;
        if String::from_utf8(asking.answer().await.body)
            .unwrap()
            .contains("\nweir_connections_open 1\n")
        {
            break;
        }
    }
    let mut first = rig.client().await;
    first.post(COMPLETIONS, &silent(json!({}))).await;
    rig.busy_host().await;
    let mut second = rig.client().await;
    second.post(COMPLETIONS, &letters(1, json!({}))).await;
    let answer = second.answer().await;
    assert_eq!(
        (answer.status, answer.error_code()),
        (429, json!("rate_limit_exceeded"))
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    let mut fourth = rig.client().await;
    let answer = fourth.answer().await;
    assert_eq!(
        (answer.status, answer.error_code()),
        (503, json!("server_overloaded"))
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop(first);
    let served = async {
        loop {
            second.post(COMPLETIONS, &letters(1, json!({}))).await;
            if second.answer().await.status == 200 {
                return;
            }
        }
    };
    timeout(PATIENCE, served).await.expect("the place is free again");
}
