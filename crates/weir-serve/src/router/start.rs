//! Getting a request to a worker that begins to answer it.
//!
//! A worker that refuses for now, dies or is gone before its first token costs an attempt, and the request goes to
//! another one. A worker that fails *with* the request does not: another would fail too, and a request that breaks
//! engines must not walk through the fleet. Invariant: at most one worker runs the request at a time, since an
//! abandoned attempt's anchor is dropped, which cancels it, before the next begins.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;
use weir_engine::{Refusal, Request};
use weir_net::{Anchor, CallError, CallOptions, Extent, Node, StreamErrorKind};

use super::{Fleet, Target};
use crate::{
    envelope::{GENERATE, Generate},
    frontend::{api::ApiError, metrics::Metrics, stream},
};

/// A stream whose first records are here.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) anchor: Anchor,
    pub(crate) first: Extent,
}

/// How long and how often a request may be tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// When the first token must be here, and how long after the request that is.
    pub(crate) by: Instant,
    pub(crate) first_token: Duration,
    /// For each token after the first.
    pub(crate) progress: Duration,
    /// Most other workers to try.
    pub(crate) moves: u32,
}

/// Why an attempt gave no stream.
enum Failure {
    /// This worker cannot now; another may.
    Busy(ApiError),
    /// Its process is gone; a worker of another may.
    Lost(ApiError),
    /// No worker can.
    Final(ApiError),
}

/// Hands `request` to workers of its model until one has sent a first token.
pub(crate) async fn start(
    node: &Node,
    fleet: &Fleet,
    metrics: &Metrics,
    mut request: Request,
    limits: Limits,
) -> Result<Started, ApiError> {
    // Workers not to be tried again; without an index, all of the process.
    let mut skip: Vec<(Target, bool)> = Vec::new();
    let mut last: Option<ApiError> = None;
    loop {
        let target = pick(fleet, &request.model, &skip);
        let Some(target) = target else {
            return Err(last.unwrap_or_else(|| no_workers(&request.model)));
        };
        let attempt = tokio::time::timeout_at(limits.by, attempt(node, &target, &request, limits)).await;
        let failure = match attempt {
            Ok(Ok(mut started)) => {
                started.anchor.set_progress_timeout(Some(limits.progress));
                return Ok(started);
            }
            Ok(Err(failure)) => failure,
            Err(_) => return Err(late(limits)),
        };
        let (error, whole_process) = match failure {
            Failure::Busy(error) => (error, false),
            Failure::Lost(error) => (error, true),
            Failure::Final(error) => return Err(error),
        };
        let (process, worker, reason) = (&target.process, target.index, error.message());
        tracing::warn!(request = request.id, %process, worker, reason, "attempt failed before the first token");
        if request.attempt >= limits.moves {
            return Err(error);
        }
        request.attempt += 1;
        metrics.moved.fetch_add(1, Ordering::Relaxed);
        last = Some(error);
        skip.push((target, whole_process));
    }
}

fn pick(fleet: &Fleet, model: &str, skip: &[(Target, bool)]) -> Option<Target> {
    let skipped = |target: &Target| {
        skip.iter()
            .any(|(tried, whole)| tried.process == target.process && (*whole || tried.index == target.index))
    };
    fleet
        .snapshot()
        .model(model)
        .and_then(|model| model.pick(skipped).cloned())
}

async fn attempt(
    node: &Node,
    target: &Target,
    request: &Request,
    limits: Limits,
) -> Result<Started, Failure> {
    let mut anchor = node.anchor();
    let ticket = anchor.mint(&target.peer).map_err(|error| match error {
        weir_net::MintError::NoSlot { .. } => Failure::Final(ApiError::overloaded(error.to_string())),
        error => Failure::Lost(ApiError::worker_lost(error.to_string())),
    })?;
    let body = Generate {
        ticket,
        worker: target.index,
        request: request.clone(),
    }
    .encode();
    let options = CallOptions {
        deadline: limits.by.saturating_duration_since(Instant::now()),
    };
    target
        .peer
        .call(GENERATE, body, options)
        .await
        .map_err(|error| call_failure(error, limits))?;
    match std::future::poll_fn(|cx| anchor.poll_extent(cx)).await {
        Ok(Some(first)) => Ok(Started { anchor, first }),
        Ok(None) => Err(Failure::Lost(ApiError::worker_lost(
            "the worker ended the answer before it began",
        ))),
        Err(error) => {
            let told = stream::describe(&error);
            Err(match error.kind {
                StreamErrorKind::Failed { .. } => Failure::Final(told),
                _ => Failure::Lost(told),
            })
        }
    }
}

fn call_failure(error: CallError, limits: Limits) -> Failure {
    match error {
        CallError::Failed(message) => refusal(&message),
        CallError::NotSent | CallError::Unknown | CallError::NoHandler(_) => {
            Failure::Lost(ApiError::worker_lost(error.to_string()))
        }
        CallError::Busy { .. } => Failure::Busy(ApiError::overloaded(error.to_string())),
        CallError::TooLarge { limit, .. } => Failure::Final(ApiError::too_large("request", limit)),
        CallError::Deadline(_) => Failure::Final(late(limits)),
        _ => Failure::Lost(ApiError::worker_lost(error.to_string())),
    }
}

fn refusal(message: &str) -> Failure {
    match serde_json::from_str::<Refusal>(message) {
        Ok(Refusal::Invalid(reason)) => Failure::Final(ApiError::malformed(reason)),
        Ok(refusal) => Failure::Busy(ApiError::overloaded(refusal.to_string())),
        Err(_) => Failure::Lost(ApiError::engine(format!("the worker failed: {message}"))),
    }
}

fn late(limits: Limits) -> ApiError {
    ApiError::timeout(format!("no token came within {:?}", limits.first_token))
}

/// What a request is told for whose model there is no worker.
pub(crate) fn no_workers(model: &str) -> ApiError {
    ApiError::no_workers(format!(
        "no worker serves '{}' now",
        crate::frontend::api::cut(model)
    ))
}
