//! The host's metrics in Prometheus text form.

use std::fmt::Write as _;

use weir_engine::EngineStats;

use crate::frontend::metrics::{gauge, head};

type Field = fn(&EngineStats) -> u64;

const FIELDS: [(&str, &str, &str, Field); 4] = [
    (
        "weir_engine_running",
        "gauge",
        "Requests that generate or prefill now.",
        |stats| stats.running,
    ),
    (
        "weir_engine_waiting",
        "gauge",
        "Requests accepted and not yet running.",
        |stats| stats.waiting,
    ),
    ("weir_engine_tokens_total", "counter", "Tokens pushed.", |stats| {
        stats.tokens
    }),
    (
        "weir_engine_requests_total",
        "counter",
        "Requests accepted.",
        |stats| stats.requests,
    ),
];

/// Appends the metrics of the engines of process `name` and the number of endings that wait for credit.
pub(super) fn render(out: &mut String, name: &str, engines: &[EngineStats], endings: u64) {
    for (metric, kind, help, field) in FIELDS {
        head(out, metric, help, kind);
        for (index, stats) in engines.iter().enumerate() {
            let _ = writeln!(out, "{metric}{{worker=\"{name}/{index}\"}} {}", field(stats));
        }
    }
    let help = "Finished streams whose last item waits for credit.";
    gauge(out, "weir_worker_endings_waiting", help, endings);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_a_line_per_metric() {
        let mut out = String::new();
        let stats = [
            EngineStats {
                running: 1,
                waiting: 2,
                tokens: 3,
                requests: 4,
            },
            EngineStats::default(),
        ];
        render(&mut out, "w0", &stats, 5);
        for line in [
            "# TYPE weir_engine_running gauge",
            "weir_engine_running{worker=\"w0/0\"} 1",
            "weir_engine_waiting{worker=\"w0/0\"} 2",
            "weir_engine_tokens_total{worker=\"w0/0\"} 3",
            "weir_engine_requests_total{worker=\"w0/0\"} 4",
            "weir_engine_running{worker=\"w0/1\"} 0",
            "weir_worker_endings_waiting 5",
        ] {
            assert!(out.lines().any(|has| has == line), "{line} in {out}");
        }
    }
}
