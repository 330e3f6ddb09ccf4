//! Every way a request can go wrong is classified as defined, and none takes the run with it.

use std::time::Duration;

use tokio::net::TcpListener;
use weir_bench::load::{Failure, LoadConfig, State, Summary, run};

use crate::server::{GOOD, HEAD, Server, Step, chunk, open_stream, stream};

pub(crate) fn config(url: String) -> LoadConfig {
    LoadConfig {
        url,
        model: "m".to_owned(),
        endpoint: "completions".parse().unwrap(),
        concurrency: 1,
        requests: 1,
        isl: 8,
        osl: 4,
        seed: 1,
        request_timeout: Duration::from_secs(60),
        steady_after: Duration::from_secs(10),
        out: None,
        api_key: None,
    }
}

pub(crate) async fn run_to_end(config: &LoadConfig) -> Summary {
    run(config, std::future::pending()).await.unwrap()
}

/// What the lines of `requests.jsonl` say.
pub(crate) fn lines(directory: &std::path::Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(directory.join("requests.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs one request against `script`, then a good one: the failure and the detail of the first.
async fn failure_of(script: Vec<Step>) -> (Option<String>, serde_json::Value) {
    failure_within(Duration::from_secs(60), script).await
}

async fn failure_within(request_timeout: Duration, script: Vec<Step>) -> (Option<String>, serde_json::Value) {
    let server = Server::start(vec![script, stream(&GOOD)]).await;
    let directory = tempfile::tempdir().unwrap();
    let out = Some(directory.path().to_owned());
    let config = LoadConfig {
        requests: 2,
        request_timeout,
        out,
        ..config(server.url())
    };
    let summary = run_to_end(&config).await;
    assert_eq!(summary.state, State::Complete);
    let lines = lines(directory.path());
    assert_eq!(lines.len(), 2);
    assert!(
        lines[1]["failure"].is_null(),
        "the next request is served: {}",
        lines[1]
    );
    (lines[0]["failure"].as_str().map(str::to_owned), lines[0].clone())
}

async fn assert_failure(script: Vec<Step>, expected: Failure, detail: &str) {
    let (failure, line) = failure_of(script).await;
    assert_eq!(failure.as_deref(), Some(expected.name()), "{line}");
    let seen = line["detail"].as_str().unwrap_or("");
    assert!(seen.contains(detail), "{seen:?} does not say {detail:?}");
}

#[tokio::test]
async fn an_error_event_inside_a_200() {
    let events = [
        GOOD[0],
        r#"{"error":{"message":"worker died","code":500}}"#,
        "[DONE]",
    ];
    assert_failure(stream(&events), Failure::ErrorEvent, "worker died").await;
}

#[tokio::test]
async fn an_event_named_error() {
    let mut script = open_stream(&GOOD[..1]);
    script.push(Step::Write(chunk(
        "event: error\ndata: {\"message\":\"bad gateway\"}\n\n",
    )));
    script.push(Step::Write(b"0\r\n\r\n".to_vec()));
    assert_failure(script, Failure::ErrorEvent, "bad gateway").await;
}

#[tokio::test]
async fn an_event_that_is_not_json() {
    assert_failure(
        stream(&[GOOD[0], "{oops", "[DONE]"]),
        Failure::ErrorEvent,
        "{oops",
    )
    .await;
}

#[tokio::test]
async fn a_stream_that_ends_without_done() {
    assert_failure(stream(&GOOD[..5]), Failure::NoDone, "").await;
}

#[tokio::test]
async fn a_connection_that_closes_in_mid_stream() {
    let script = [open_stream(&GOOD[..3]), vec![Step::Close]].concat();
    assert_failure(script, Failure::NoDone, "the body broke off").await;
}

#[tokio::test]
async fn a_reset_before_the_response() {
    assert_failure(vec![Step::Reset], Failure::Connect, "no response").await;
}

#[tokio::test]
async fn bytes_that_are_not_http() {
    assert_failure(
        vec![Step::Write(b"garbage\r\n\r\n".to_vec()), Step::Close],
        Failure::Connect,
        "no response",
    )
    .await;
}

#[tokio::test]
async fn a_status_other_than_200() {
    let body = r#"{"error":{"message":"slow down"}}"#;
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_failure(
        vec![Step::Write(answer.into_bytes())],
        Failure::Status,
        "slow down",
    )
    .await;
}

#[tokio::test]
async fn a_clean_stream_without_content() {
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    assert_failure(stream(&[role, GOOD[4], "[DONE]"]), Failure::NoContent, "").await;
}

#[tokio::test]
async fn another_number_of_tokens() {
    let short = r#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}"#;
    assert_failure(
        stream(&[GOOD[0], short, "[DONE]"]),
        Failure::WrongTokenCount,
        "3 tokens, not 4",
    )
    .await;
}

#[tokio::test]
async fn a_response_that_never_ends_keeps_its_stamps() {
    let script = [open_stream(&GOOD[..2]), vec![Step::Hang]].concat();
    let (failure, line) = failure_within(Duration::from_millis(1_500), script).await;
    assert_eq!(failure.as_deref(), Some("timeout"));
    assert!(
        line["t_send"].is_u64() && line["t_done"].as_u64() > line["t_send"].as_u64(),
        "{line}"
    );
}

#[tokio::test]
async fn a_response_that_never_begins() {
    let (failure, line) = failure_within(Duration::from_millis(1_500), vec![Step::Hang]).await;
    assert_eq!(failure.as_deref(), Some("timeout"));
    assert!(line["t_headers"].is_null() && line["status"].is_null(), "{line}");
}

#[tokio::test]
async fn a_half_written_head_is_no_response() {
    let script = vec![Step::Write(HEAD.as_bytes()[..20].to_vec()), Step::Reset];
    assert_failure(script, Failure::Connect, "no response").await;
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let summary = run_to_end(&LoadConfig {
        requests: 5,
        concurrency: 2,
        ..config(url)
    })
    .await;
    assert_eq!(summary.state, State::Complete);
    assert_eq!(summary.requests.failures.get(Failure::Connect.name()), Some(&5));
    assert_eq!(summary.raw.adj_ttft_ms.infinite, 5);
}
