//! Whole runs: what is sent, what is stamped, what is written, and that a run always ends.

use std::collections::HashSet;

use weir_bench::load::{InvalidConfig, LoadConfig, State, render, run};

use crate::{
    load_failures::{config, lines, run_to_end},
    server::{END, GOOD, HEAD, Server, Step, chunk, stream},
};

#[tokio::test]
async fn a_closed_loop_sends_every_request_once_over_one_connection_a_slot() {
    let server = Server::start(vec![stream(&GOOD)]).await;
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new/run");
    let config = LoadConfig {
        concurrency: 4,
        requests: 40,
        out: Some(out.clone()),
        ..config(server.url())
    };
    let summary = run_to_end(&config).await;
    assert_eq!(
        (
            summary.requests.completed,
            summary.requests.failed,
            summary.requests.missing
        ),
        (40, 0, 0)
    );
    assert_eq!(summary.state, State::Complete);
    assert_eq!(server.connections(), 4);

    let received = server.received();
    let prompts: HashSet<String> = received
        .iter()
        .map(|request| request.body["prompt"].to_string())
        .collect();
    assert_eq!(prompts.len(), 40, "every prompt differs");
    assert!(
        received
            .iter()
            .all(|request| request.body["prompt"].as_array().unwrap().len() == 8)
    );
    assert!(
        received[0].head.starts_with("post /v1/completions http/1.1"),
        "{}",
        received[0].head
    );

    let lines = lines(&out);
    let ids: HashSet<&str> = lines
        .iter()
        .map(|line| line["request_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 40);
    assert!(received.iter().all(|request| {
        let id = request
            .head
            .split_once("x-request-id: ")
            .unwrap()
            .1
            .lines()
            .next()
            .unwrap();
        ids.contains(id)
    }));
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(
        (&written["state"], &written["raw"]["n"]),
        (&"complete".into(), &40.into())
    );
    assert!(out.join("config.json").exists() && out.join("run.log").exists());
}

#[tokio::test]
async fn stamps_of_a_good_request_are_in_order() {
    let server = Server::start(vec![stream(&GOOD)]).await;
    let directory = tempfile::tempdir().unwrap();
    run_to_end(&LoadConfig {
        out: Some(directory.path().to_owned()),
        ..config(server.url())
    })
    .await;
    let line = lines(directory.path()).remove(0);
    let order = [
        "t_intended",
        "t_send",
        "t_headers",
        "t_first_byte",
        "t_first_content",
        "t_last_content",
        "t_done",
    ];
    let stamps: Vec<u64> = order.iter().map(|name| line[*name].as_u64().unwrap()).collect();
    assert!(stamps.is_sorted(), "{line}");
    assert_eq!(line["content"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&line["tokens"], &line["finish_reason"]),
        (&4.into(), &"length".into())
    );
    assert_eq!(line["usage"]["prompt_tokens"], 8);
}

#[tokio::test]
async fn an_early_role_is_no_content_and_chunks_of_four_tokens_are_counted() {
    let four = |total: u32| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":"abcd"}}}}],"usage":{{"prompt_tokens":8,"completion_tokens":{total}}}}}"#
        )
    };
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let server = Server::start(vec![stream(&[role, &four(4), &four(8), &four(12), "[DONE]"])]).await;
    let directory = tempfile::tempdir().unwrap();
    let out = Some(directory.path().to_owned());
    let config = LoadConfig {
        osl: 12,
        endpoint: "chat".parse().unwrap(),
        out,
        ..config(server.url())
    };
    let summary = run_to_end(&config).await;
    assert_eq!(summary.requests.completed, 1);
    assert_eq!(summary.raw.tokens_per_chunk, Some(4.0));
    let line = lines(directory.path()).remove(0);
    assert_eq!(line["content"].as_array().unwrap().len(), 3, "{line}");
    assert_eq!(line["content_tokens"], serde_json::json!([4, 4, 4]));
    assert!(
        server.received()[0]
            .head
            .starts_with("post /v1/chat/completions ")
    );
}

#[tokio::test]
async fn a_stream_cut_at_every_byte_with_crlf_is_read_whole() {
    let text: String = GOOD
        .iter()
        .map(|event| format!("data: {event}\r\n\r\n"))
        .collect();
    let mut script = vec![Step::Write(HEAD.as_bytes().to_vec())];
    script.extend(text.chars().map(|c| Step::Write(chunk(&c.to_string()))));
    script.push(Step::Write(END.to_vec()));
    let server = Server::start(vec![script]).await;
    let summary = run_to_end(&config(server.url())).await;
    assert_eq!((summary.requests.completed, summary.raw.gap_ms.n), (1, 3));
}

#[tokio::test]
async fn a_server_that_closes_after_each_response_is_met_with_a_new_connection() {
    let text: String = GOOD.iter().map(|event| format!("data: {event}\n\n")).collect();
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let script = vec![Step::Write(format!("{head}{text}").into_bytes()), Step::Close];
    let server = Server::start(vec![script]).await;
    let summary = run_to_end(&LoadConfig {
        requests: 3,
        ..config(server.url())
    })
    .await;
    assert_eq!(summary.requests.completed, 3, "{:?}", summary.requests);
    assert_eq!((server.connections(), server.received().len()), (3, 3));
}

#[tokio::test]
async fn an_interrupted_run_writes_what_it_has() {
    let server = Server::start(vec![stream(&GOOD), stream(&GOOD), vec![Step::Hang]]).await;
    let directory = tempfile::tempdir().unwrap();
    let out = Some(directory.path().to_owned());
    let config = LoadConfig {
        concurrency: 2,
        requests: 100,
        out,
        ..config(server.url())
    };
    let summary = run(&config, server.has_received(4)).await.unwrap();
    assert!(matches!(summary.state, State::Aborted(_)), "{:?}", summary.state);
    assert_eq!(
        (
            summary.requests.completed,
            summary.requests.failures.get("cancelled")
        ),
        (2, Some(&2))
    );
    assert_eq!(summary.requests.missing, 96);
    assert_eq!(lines(directory.path()).len(), 4);
    let written = std::fs::read_to_string(directory.path().join("summary.json")).unwrap();
    assert!(written.contains("\"aborted\""), "{written}");
}

#[tokio::test]
async fn a_run_interrupted_at_once_still_has_a_summary() {
    let server = Server::start(vec![vec![Step::Hang]]).await;
    let summary = run(&config(server.url()), std::future::ready(())).await.unwrap();
    assert!(matches!(summary.state, State::Aborted(_)), "{:?}", summary.state);
    assert!(render(&summary).contains("aborted"));
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let config = LoadConfig {
        out: Some(file.join("run")),
        ..config("http://127.0.0.1:1".to_owned())
    };
    let error = run(&config, std::future::pending()).await.unwrap_err();
    assert!(
        error.is::<InvalidConfig>() && error.to_string().contains("file/run"),
        "{error}"
    );
}

#[tokio::test]
async fn the_table_says_what_the_summary_says() {
    let server = Server::start(vec![stream(&GOOD), stream(&GOOD[..5])]).await;
    let summary = run_to_end(&LoadConfig {
        requests: 2,
        ..config(server.url())
    })
    .await;
    let table = render(&summary);
    assert!(table.starts_with("client lag"), "{table}");
    assert!(
        table.contains("1 completed, 1 failed {\"no_done\": 1}"),
        "{table}"
    );
    assert!(table.contains("\nfirst failure: no_done"), "{table}");
    assert!(table.contains("inf"), "{table}");
}

#[tokio::test]
async fn a_run_in_which_all_fails_says_why_and_has_no_negative_rate() {
    let table = render(&run_to_end(&config("http://127.0.0.1:1".to_owned())).await);
    assert!(table.contains("\nfirst failure: connect "), "{table}");
    assert!(!table.contains("-0.00"), "{table}");
}
