//! What the routes that generate nothing answer: health, liveness, models, metrics.
//!
//! Invariant: `/health` is 200 exactly while a new request would find a worker here.

use std::{fmt::Write as _, time::Duration};

use futures_util::future::join_all;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::json;
use weir_engine::EngineStats;
use weir_net::{CallOptions, Peer};

use super::{
    App,
    api::{self, ApiError},
    http::{Body, whole},
    metrics::{counter, gauge, head},
    process,
};
use crate::envelope::STATS;

/// How long a scrape waits for a worker process.
const STATS_PATIENCE: Duration = Duration::from_millis(300);

pub(crate) fn json_response(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `/health`: whether requests can be served, and which workers are rejected.
pub(crate) fn health(app: &App) -> Response<Body> {
    let snapshot = app.fleet.snapshot();
    let (status, text) = match (app.is_draining(), snapshot.is_empty()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "no_workers"),
        (false, false) => (StatusCode::OK, "ok"),
    };
    let rejected = snapshot.rejected().iter().map(
        |rejected| json!({"worker": rejected.worker, "model": rejected.model, "reason": rejected.reason}),
    );
    let body = json!({
        "status": text,
        "models": snapshot.served().map(|model| model.card.name.as_str()).collect::<Vec<_>>(),
        "workers": snapshot.workers(),
        "rejected_workers": rejected.collect::<Vec<_>>(),
    });
    json_response(status, body.to_string())
}

/// `/live`: the process answers.
pub(crate) fn live() -> Response<Body> {
    json_response(StatusCode::OK, "{\"status\":\"ok\"}")
}

/// `/v1/models`.
pub(crate) fn models(app: &App) -> Response<Body> {
    let snapshot = app.fleet.snapshot();
    let served = snapshot
        .served()
        .map(|model| (model.card.name.as_str(), model.created, model.card.context_length));
    json_response(StatusCode::OK, api::models(served))
}

/// `/v1/models/{name}`.
pub(crate) fn model(app: &App, name: &str) -> Result<Response<Body>, ApiError> {
    let snapshot = app.fleet.snapshot();
    let model = snapshot
        .model(name)
        .filter(|model| model.is_served())
        .ok_or_else(|| ApiError::no_model(name))?;
    let mut body = Vec::new();
    api::model(&mut body, name, model.created, model.card.context_length);
    Ok(json_response(StatusCode::OK, body))
}

/// `/metrics`, in Prometheus text form.
pub(crate) async fn metrics(app: &App) -> Response<Body> {
    let mut out = String::with_capacity(16 * 1024);
    app.metrics.render(&mut out);
    gauge(
        &mut out,
        "weir_connections_open",
        "Open HTTP connections.",
        app.connections.len() as u64,
    );
    counter(
        &mut out,
        "weir_connections_total",
        "Accepted HTTP connections.",
        app.connections.accepted(),
    );
    workers(app, &mut out).await;
    process::render(&mut out);
    app.node.render_metrics(&mut out);
    let mut response = Response::new(whole(out));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Asks all worker processes at once. One that does not answer in time has no values in this scrape.
async fn workers(app: &App, out: &mut String) {
    let snapshot = app.fleet.snapshot();
    gauge(
        out,
        "weir_workers",
        "Workers that requests can go to.",
        snapshot.workers() as u64,
    );
    let help = "Registered workers that are not used: their model card or tokenizer differs.";
    gauge(
        out,
        "weir_workers_rejected",
        help,
        snapshot.rejected().len() as u64,
    );
    let asked = snapshot
        .processes()
        .iter()
        .map(|(name, peer, workers)| async move {
            let stats = stats(peer).await.unwrap_or_default();
            (0..*workers)
                .zip(stats)
                .map(|(index, stats)| (format!("{name}/{index}"), stats))
                .collect::<Vec<_>>()
        });
    let stats: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    let gauges: [(&str, &str, fn(&EngineStats) -> u64); 2] = [
        (
            "weir_engine_running",
            "Requests that a worker's engine works on.",
            |stats| stats.running,
        ),
        (
            "weir_engine_waiting",
            "Requests that wait in a worker's engine.",
            |stats| stats.waiting,
        ),
    ];
    for (name, help, value) in gauges {
        head(out, name, help, "gauge");
        for (worker, stats) in &stats {
            let _ = writeln!(out, "{name}{{worker=\"{}\"}} {}", label(worker), value(stats));
        }
    }
}

async fn stats(peer: &Peer) -> Option<Vec<EngineStats>> {
    let reply = peer
        .call(
            STATS,
            bytes::Bytes::new(),
            CallOptions {
                deadline: STATS_PATIENCE,
            },
        )
        .await;
    let reply = reply
        .inspect_err(|error| tracing::debug!(%error, "a worker process gave no stats"))
        .ok()?;
    serde_json::from_slice(&reply).ok()
}

/// A label value as Prometheus wants it.
fn label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
