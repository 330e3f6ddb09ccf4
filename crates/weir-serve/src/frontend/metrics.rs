//! What the frontend counts, and how it looks to Prometheus.
//!
//! Plain atomics, rendered at scrape. Invariant: label values come from closed sets, never from a request.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Which route a request matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Completions,
    Models,
    Health,
    Live,
    Metrics,
    /// None.
    Other,
}

impl Route {
    const ALL: [Self; 7] = [
        Self::Chat,
        Self::Completions,
        Self::Models,
        Self::Health,
        Self::Live,
        Self::Metrics,
        Self::Other,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat_completions",
            Self::Completions => "completions",
            Self::Models => "models",
            Self::Health => "health",
            Self::Live => "live",
            Self::Metrics => "metrics",
            Self::Other => "other",
        }
    }

    /// Whether its requests generate tokens.
    pub(crate) fn generates(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Ok,
    /// The client's fault.
    Refused,
    /// The client went away first.
    Gone,
    Failed,
}

impl Class {
    const ALL: [Self; 4] = [Self::Ok, Self::Refused, Self::Gone, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Ok => "2xx",
            Self::Refused => "4xx",
            Self::Gone => "499",
            Self::Failed => "5xx",
        }
    }
}

/// Counts of durations, by upper bound.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// By bound, the last for all above.
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

const BOUNDS_MS: [u32; 18] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000,
];

impl Histogram {
    pub(crate) fn record(&self, value: Duration) {
        let at = BOUNDS_MS.partition_point(|bound| Duration::from_millis(u64::from(*bound)) < value);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(
            u64::try_from(value.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    fn render(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, help, "histogram");
        let mut total = 0u64;
        let bounds = BOUNDS_MS
            .iter()
            .map(|bound| (f64::from(*bound) / 1e3).to_string())
            .chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            total = total.saturating_add(count.load(Ordering::Relaxed));
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {total}");
    }
}

/// The frontend's counters and gauges.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: [[AtomicU64; Class::ALL.len()]; Route::ALL.len()],
    /// Generating requests that have not ended.
    pub(crate) in_flight: AtomicU64,
    pub(crate) first_token: Histogram,
    pub(crate) duration: Histogram,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) completion_tokens: AtomicU64,
    /// Requests that were moved to another worker before their first token.
    pub(crate) moved: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    /// Connections closed at once because too many were open.
    pub(crate) connections_refused: AtomicU64,
    /// Clients closed because they did not read.
    pub(crate) stalled_clients: AtomicU64,
}

impl Metrics {
    /// Counts one request.
    pub(crate) fn ended(&self, route: Route, class: Class) {
        if let Some(count) = self
            .requests
            .get(route as usize)
            .and_then(|classes| classes.get(class as usize))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends all of it in Prometheus text form.
    pub(crate) fn render(&self, out: &mut String) {
        let name = "weir_requests_total";
        head(
            out,
            name,
            "Requests by matched route and status class.",
            "counter",
        );
        for (route, classes) in Route::ALL.into_iter().zip(&self.requests) {
            for (class, count) in Class::ALL.into_iter().zip(classes) {
                let (route, class, count) = (route.label(), class.label(), count.load(Ordering::Relaxed));
                let _ = writeln!(out, "{name}{{route=\"{route}\",status=\"{class}\"}} {count}");
            }
        }
        let gone: u64 = self
            .requests
            .iter()
            .map(|classes| classes[Class::Gone as usize].load(Ordering::Relaxed))
            .sum();
        counter(
            out,
            "weir_client_disconnects_total",
            "Requests whose client went away first.",
            gone,
        );
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        gauge(
            out,
            "weir_requests_in_flight",
            "Generating requests that have not ended.",
            load(&self.in_flight),
        );
        let help = "From a request's head to its first token.";
        self.first_token
            .render(out, "weir_time_to_first_token_seconds", help);
        let help = "From a generating request's head to its end.";
        self.duration.render(out, "weir_request_duration_seconds", help);
        counter(
            out,
            "weir_prompt_tokens_total",
            "Prompt tokens of begun requests.",
            load(&self.prompt_tokens),
        );
        counter(
            out,
            "weir_completion_tokens_total",
            "Tokens that reached a request.",
            load(&self.completion_tokens),
        );
        let help = "Requests moved to another worker before their first token.";
        counter(out, "weir_requests_moved_total", help, load(&self.moved));
        counter(
            out,
            "weir_accept_errors_total",
            "Failed accepts of HTTP clients.",
            load(&self.accept_errors),
        );
        let help = "HTTP connections closed at once: too many open.";
        counter(
            out,
            "weir_connections_refused_total",
            help,
            load(&self.connections_refused),
        );
        let help = "HTTP clients closed because they did not read.";
        counter(
            out,
            "weir_stalled_clients_total",
            help,
            load(&self.stalled_clients),
        );
    }
}

/// Appends a metric's head.
pub(crate) fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends a gauge without labels.
pub(crate) fn gauge(out: &mut String, name: &str, help: &str, value: u64) {
    head(out, name, help, "gauge");
    let _ = writeln!(out, "{name} {value}");
}

/// Appends a counter without labels.
pub(crate) fn counter(out: &mut String, name: &str, help: &str, value: u64) {
    head(out, name, help, "counter");
    let _ = writeln!(out, "{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_inclusive() {
        let histogram = Histogram::default();
        for ms in [1, 2, 3, 400_000] {
            histogram.record(Duration::from_millis(ms));
        }
        let mut out = String::new();
        histogram.render(&mut out, "x_seconds", "X.");
        for line in [
            "{le=\"0.001\"} 1",
            "{le=\"0.002\"} 2",
            "{le=\"0.005\"} 3",
            "{le=\"300\"} 3",
            "{le=\"+Inf\"} 4",
        ] {
            assert!(
                out.contains(&format!("x_seconds_bucket{line}\n")),
                "{line} in {out}"
            );
        }
        assert!(
            out.contains("x_seconds_sum 400.006\nx_seconds_count 4\n"),
            "{out}"
        );
    }

    #[test]
    fn every_route_and_class_has_its_own_count() {
        let metrics = Metrics::default();
        for route in Route::ALL {
            for class in Class::ALL {
                metrics.ended(route, class);
            }
        }
        let mut out = String::new();
        metrics.render(&mut out);
        let ones = out
            .lines()
            .filter(|line| line.starts_with("weir_requests_total{") && line.ends_with(" 1"))
            .count();
        assert_eq!(ones, Route::ALL.len() * Class::ALL.len());
        assert!(out.contains("weir_client_disconnects_total 7\n"), "{out}");
    }
}
