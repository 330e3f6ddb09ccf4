//! A summary for people; the client's own part first, because it decides whether the rest means anything.

use std::fmt::Write as _;

use super::summary::{Phase, State, Summary};
use crate::stats::Distribution;

/// The summary as a table.
pub fn render(summary: &Summary) -> String {
    let mut text = String::new();
    head(&mut text, summary);
    for (title, phase) in [("raw", &summary.raw), ("steady", &summary.steady)] {
        if phase.n == 0 {
            let _ = writeln!(text, "{title}: no request");
            continue;
        }
        let _ = write!(text, "{:<24}", format!("{title} (ms)"));
        ["n", "p50", "p90", "p95", "p99", "max"]
            .iter()
            .for_each(|name| _ = write!(text, "{name:>11}"));
        text.push('\n');
        body(&mut text, phase);
    }
    text
}

fn head(text: &mut String, summary: &Summary) {
    let (client, requests) = (&summary.client, &summary.requests);
    let _ = writeln!(
        text,
        "client lag p50 {} p99 {} max {} ms; client CPU {:.0}% of {} cores",
        cell(client.lag_ms.p50),
        cell(client.lag_ms.p99),
        cell(client.lag_ms.max),
        client.cpu_share * 100.0,
        client.cores
    );
    let state = match &summary.state {
        State::Complete => "complete".to_owned(),
        State::Degraded(why) => format!("degraded: {why}"),
        State::Aborted(why) => format!("aborted: {why}"),
    };
    let _ = writeln!(
        text,
        "{state}; {} of {} requests recorded, {} completed, {} failed {:?}",
        requests.recorded, requests.planned, requests.completed, requests.failed, requests.failures
    );
    if let Some(first) = &requests.first_failure {
        let _ = writeln!(text, "first failure: {first}");
    }
    if summary.validity.valid {
        text.push_str("valid\n");
    } else {
        let _ = writeln!(text, "not valid: {}", summary.validity.reasons.join("; "));
    }
    text.push('\n');
}

fn body(text: &mut String, phase: &Phase) {
    let rows = [
        ("TTFT", &phase.ttft_ms),
        ("TTFT from intended", &phase.ttft_intended_ms),
        ("ITL per request", &phase.itl_ms),
        ("gap between chunks", &phase.gap_ms),
        ("E2E", &phase.e2e_ms),
        ("TTFT, failures infinite", &phase.adj_ttft_ms),
        ("E2E, failures infinite", &phase.adj_e2e_ms),
    ];
    rows.iter().for_each(|(name, figures)| row(text, name, figures));
    let _ = writeln!(
        text,
        "{:<24}{} requests/s, {} tokens/s, {} tokens a chunk, {:.1} s\n",
        "rates",
        cell(phase.requests_per_s),
        cell(phase.tokens_per_s),
        cell(phase.tokens_per_chunk),
        phase.duration_s
    );
}

fn row(text: &mut String, name: &str, figures: &Distribution) {
    let _ = write!(text, "{name:<24}{:>11}", figures.n);
    for value in [figures.p50, figures.p90, figures.p95, figures.p99, figures.max] {
        let shown = if value.is_none() && figures.n > 0 {
            "inf".to_owned()
        } else {
            cell(value)
        };
        let _ = write!(text, "{shown:>11}");
    }
    text.push('\n');
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
