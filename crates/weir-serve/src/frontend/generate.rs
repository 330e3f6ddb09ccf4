//! The two endpoints that generate: from a body's bytes to an answer that has begun.
//!
//! A streamed answer's status is not sent before every choice has its first record, so whatever goes wrong until then
//! has its own status. Invariant: no task and no channel belongs to a request; when the connection drops the handler or
//! the body, every anchor of the request goes with it.

use std::{sync::Arc, sync::atomic::Ordering, time::SystemTime};

use bytes::Bytes;
use futures_util::future::try_join_all;
use hyper::{
    Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use tokio::time::Instant;
use weir_engine::Request;

use super::{
    App,
    api::{Answer, ApiError, Endpoint, sse},
    http::{Body, whole},
    observe::Observed,
    prepare::{Prepared, prepare},
    stream::{Choice, Choices, EventStream, Page},
};
use crate::router::{self, Limits};

/// A body this long is read on a blocking thread: parsing and tokenizing it would hold up the runtime's. So would a
/// template that loops.
const LONG_BODY: usize = 8 * 1024;

/// Answers one request. `observed` is finished by whatever ends it.
pub(crate) async fn generate(
    app: &Arc<App>,
    endpoint: Endpoint,
    body: Bytes,
    mut observed: Observed,
) -> Result<Response<Body>, ApiError> {
    let prepared = match check_load(app) {
        Ok(()) => read(app, endpoint, body).await,
        Err(error) => Err(error),
    };
    let prepared = prepared.inspect_err(|error| observed.finish(error.status))?;
    let answer = Answering::new(app, endpoint, &prepared);
    if prepared.params.stream {
        answer.stream(prepared, observed).await
    } else {
        answer.whole(prepared, observed).await
    }
}

fn check_load(app: &App) -> Result<(), ApiError> {
    match app.config.max_requests {
        // This request counts already.
        Some(limit) if app.metrics.in_flight.load(Ordering::Relaxed) > limit => {
            Err(ApiError::rate_limited(limit))
        }
        _ => Ok(()),
    }
}

async fn read(app: &Arc<App>, endpoint: Endpoint, body: Bytes) -> Result<Prepared, ApiError> {
    let encoder = Arc::clone(&app.config.encoder);
    let slow = endpoint == Endpoint::Chat && encoder.runs_templates();
    if body.len() < LONG_BODY && !slow {
        return prepare(endpoint, &body, &app.fleet, &*encoder);
    }
    // As many at a time as there are cores: more would only make more threads. It is never closed.
    let _reading = app.readers.acquire().await;
    let app = Arc::clone(app);
    let read = tokio::task::spawn_blocking(move || prepare(endpoint, &body, &app.fleet, &*encoder));
    read.await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// What all choices of one answer share.
struct Answering {
    app: Arc<App>,
    endpoint: Endpoint,
    id: String,
    created: u64,
    model: String,
}

impl Answering {
    fn new(app: &Arc<App>, endpoint: Endpoint, prepared: &Prepared) -> Self {
        Self {
            app: Arc::clone(app),
            endpoint,
            id: app.ids.next(endpoint.id_prefix()),
            created: unix_seconds(),
            model: prepared.params.model.clone(),
        }
    }

    async fn stream(self, prepared: Prepared, observed: Observed) -> Result<Response<Body>, ApiError> {
        let usage = prepared.params.include_usage;
        let count = u32::try_from(prepared.prompts.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(prepared.params.n);
        let encoder = sse::Encoder::new(self.endpoint, &self.id, self.created, &self.model, count, usage);
        let page = Page::new(encoder, usage);
        let early = self.app.config.early_role && self.endpoint == Endpoint::Chat;
        let starting = self.start(prepared, observed);
        let events = if early {
            EventStream::early(page, Box::pin(starting))
        } else {
            EventStream::new(page, starting.await?)
        };
        let mut response = Response::new(Body::events(events));
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream; charset=utf-8"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }

    async fn whole(self, prepared: Prepared, observed: Observed) -> Result<Response<Body>, ApiError> {
        let (endpoint, id, created, model) =
            (self.endpoint, self.id.clone(), self.created, self.model.clone());
        let mut choices = self.start(prepared, observed).await?;
        let texts = match choices.collect().await {
            Ok(texts) => texts,
            Err(error) => {
                choices.observed.finish(error.status);
                return Err(error);
            }
        };
        choices.observed.finish(StatusCode::OK);
        let usage = choices.usage();
        let answer = Answer {
            endpoint,
            id: &id,
            created,
            model: &model,
            choices: &texts,
            usage,
        };
        let mut response = Response::new(whole(answer.render()));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Waits until every choice has begun.
    async fn start(self, prepared: Prepared, mut observed: Observed) -> Result<Choices, ApiError> {
        let config = &self.app.config;
        let limits = Limits {
            by: Instant::from_std(observed.began()) + config.first_token_timeout,
            first_token: config.first_token_timeout,
            progress: config.progress_timeout,
            moves: config.migration_limit,
        };
        let Prepared { params, prompts } = prepared;
        let seed = params.sampling.seed.unwrap_or_else(|| self.app.ids.seed());
        let requests = prompts
            .iter()
            .flat_map(|prompt| (0..params.n).map(move |choice| (prompt, choice)));
        let started = requests.map(|(prompt, choice)| {
            let mut request = Request {
                id: self.id.clone(),
                model: params.model.clone(),
                prompt: prompt.clone(),
                max_tokens: params.max_tokens,
                min_tokens: params.min_tokens,
                ignore_eos: params.ignore_eos,
                stop_token_ids: params.stop_token_ids.clone(),
                sampling: params.sampling.clone(),
                choice,
                attempt: 0,
                script: params.script.clone(),
                fault: params.fault.clone(),
            };
            request.sampling.seed = Some(seed);
            let app = &self.app;
            let tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
            async move {
                let started = router::start(&app.node, &app.fleet, &app.metrics, request, limits).await?;
                Ok::<_, ApiError>((started, tokens))
            }
        });
        let started = match try_join_all(started).await {
            Ok(started) => started,
            Err(error) => {
                observed.finish(error.status);
                return Err(error);
            }
        };
        observed.first_token();
        let choices = (0..).zip(started);
        let list = choices
            .map(|(index, (started, tokens))| Choice::new(index, started, &params.stop, tokens))
            .collect();
        Ok(Choices::new(list, params.n, observed))
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
