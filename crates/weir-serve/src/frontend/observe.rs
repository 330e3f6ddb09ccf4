//! What is noted of one request, from its head to its end.
//!
//! Invariant: each request is counted once: with the status it was finished with, or as gone if it is dropped before.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use hyper::StatusCode;
use weir_engine::Usage;

use super::metrics::{Class, Metrics, Route};

/// One request in progress.
#[derive(Debug)]
pub(crate) struct Observed {
    metrics: Arc<Metrics>,
    route: Route,
    began: Instant,
    class: Class,
}

impl Observed {
    pub(crate) fn begin(metrics: &Arc<Metrics>, route: Route) -> Self {
        if route.generates() {
            metrics.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            metrics: Arc::clone(metrics),
            route,
            began: Instant::now(),
            class: Class::Gone,
        }
    }

    /// When it began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Its first token is here.
    pub(crate) fn first_token(&self) {
        self.metrics.first_token.record(self.began.elapsed());
    }

    /// Its tokens.
    pub(crate) fn tokens(&self, usage: Usage) {
        self.metrics
            .prompt_tokens
            .fetch_add(u64::from(usage.prompt_tokens), Ordering::Relaxed);
        self.metrics
            .completion_tokens
            .fetch_add(u64::from(usage.completion_tokens), Ordering::Relaxed);
    }

    /// It ends with this status; a stream that breaks off ends with that of its error.
    pub(crate) fn finish(&mut self, status: StatusCode) {
        self.class = match status.as_u16() {
            ..400 => Class::Ok,
            400..500 => Class::Refused,
            _ => Class::Failed,
        };
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.metrics.ended(self.route, self.class);
        if self.route.generates() {
            self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
            self.metrics.duration.record(self.began.elapsed());
        }
    }
}
