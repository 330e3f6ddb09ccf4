//! A run in figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    config::LoadConfig,
    record::{Failure, Record},
};
use crate::stats::{Distribution, Samples};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "why")]
pub enum State {
    /// Every request has its record.
    Complete,
    /// The run ended by itself, but records or files are missing.
    Degraded(String),
    /// The run was ended from outside.
    Aborted(String),
}

/// What `summary.json` holds. Times are milliseconds, stamps UTC nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// How the run ended.
    #[serde(flatten)]
    pub state: State,
    /// What was asked for.
    pub config: LoadConfig,
    /// UTC at the origin of all stamps in `requests.jsonl`.
    pub wall_origin_ns: u64,
    /// UTC at the start of the measured phase.
    pub wall_start_ns: u64,
    /// UTC at its end.
    pub wall_end_ns: u64,
    /// Counts.
    pub requests: Requests,
    /// Whether the figures can be judged.
    pub validity: Validity,
    /// What the client itself cost.
    pub client: Client,
    /// The whole measured phase.
    pub raw: Phase,
    /// Requests that started at least `steady_after` into the phase. (A closed loop starts none in its drain tail.)
    pub steady: Phase,
}

/// Requests by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Asked for.
    pub planned: u64,
    /// With a record.
    pub recorded: u64,
    /// Without.
    pub missing: u64,
    /// Completed as asked.
    pub completed: u64,
    /// Failed.
    pub failed: u64,
    /// Failures by class.
    pub failures: BTreeMap<&'static str, u64>,
    /// What was wrong with the first of them, in one line.
    pub first_failure: Option<String>,
}

/// A run that is not valid says nothing about the server's speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Validity {
    /// Whether no reason stands against it.
    pub valid: bool,
    /// Reasons.
    pub reasons: Vec<String>,
}

/// The load generator's own part.
#[derive(Debug, Clone, Serialize)]
pub struct Client {
    /// From intended to sent.
    pub lag_ms: Distribution,
    /// CPU used over CPU available to this process during the phase.
    pub cpu_share: f64,
    /// Cores available to it.
    pub cores: usize,
}

/// One phase. Plain distributions are over completed requests; in the adjusted ones a failure counts as infinite.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Requests in the phase.
    pub n: usize,
    /// Completed ones.
    pub completed: usize,
    /// From the first intended time to the last end.
    pub duration_s: f64,
    /// Completed requests a second.
    pub requests_per_s: Option<f64>,
    /// Their tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Mean tokens per event with content.
    pub tokens_per_chunk: Option<f64>,
    /// Mean tokens of a prompt by the server's count.
    pub prompt_tokens: Option<f64>,
    /// First content - send.
    pub ttft_ms: Distribution,
    /// First content - intended.
    pub ttft_intended_ms: Distribution,
    /// Per request, (last - first content) / (tokens - tokens in the first chunk).
    pub itl_ms: Distribution,
    /// Gaps between neighbouring events with content, of all requests together.
    pub gap_ms: Distribution,
    /// Last content - send.
    pub e2e_ms: Distribution,
    /// Adjusted.
    pub adj_ttft_ms: Distribution,
    /// Adjusted.
    pub adj_ttft_intended_ms: Distribution,
    /// Adjusted.
    pub adj_itl_ms: Distribution,
    /// Adjusted.
    pub adj_e2e_ms: Distribution,
}

/// What the phase cost and when it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) wall_origin_ns: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) cpu_s: f64,
    pub(super) cores: usize,
}

impl Summary {
    pub(super) fn new(config: &LoadConfig, state: State, records: &[Record], span: Span) -> Self {
        let steady_from = span
            .start
            .saturating_add(u64::try_from(config.steady_after.as_nanos()).unwrap_or(u64::MAX));
        let requests = Requests::count(config.requests, records);
        let client = Client::new(records, span);
        Self {
            state,
            config: config.clone(),
            wall_origin_ns: span.wall_origin_ns,
            wall_start_ns: span.wall_origin_ns + span.start,
            wall_end_ns: span.wall_origin_ns + span.end,
            validity: Validity::judge(&requests, &client),
            requests,
            client,
            raw: Phase::new(records.iter()),
            steady: Phase::new(records.iter().filter(|record| record.t_intended >= steady_from)),
        }
    }
}

impl Requests {
    fn count(planned: u64, records: &[Record]) -> Self {
        let recorded = records.len() as u64;
        let mut failures = BTreeMap::new();
        for failure in records.iter().filter_map(|record| record.failure) {
            *failures.entry(failure.name()).or_insert(0) += 1;
        }
        let failed = failures.values().sum();
        let missing = planned.saturating_sub(recorded);
        Self {
            planned,
            recorded,
            missing,
            completed: recorded - failed,
            failed,
            failures,
            first_failure: records.iter().find_map(Record::complaint),
        }
    }
}

impl Client {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a machine's cores and a run's nanoseconds"
    )]
    fn new(records: &[Record], span: Span) -> Self {
        let lag: Samples = records.iter().filter_map(Record::client_lag_ms).collect();
        let available = span.end.saturating_sub(span.start) as f64 / 1e9 * span.cores as f64;
        let cpu_share = if available > 0.0 {
            span.cpu_s / available
        } else {
            0.0
        };
        Self {
            lag_ms: lag.distribution(),
            cpu_share,
            cores: span.cores,
        }
    }
}

impl Validity {
    fn judge(requests: &Requests, client: &Client) -> Self {
        let mut reasons = Vec::new();
        if client.cpu_share > 0.8 {
            reasons.push(format!(
                "the client used {:.0}% of its CPU, over 80%",
                client.cpu_share * 100.0
            ));
        }
        if let Some(lag) = client.lag_ms.p99.filter(|&lag| lag > 1.0) {
            reasons.push(format!("client lag p99 is {lag:.1} ms, over 1 ms"));
        }
        if requests.failed > 0 {
            reasons.push(format!("{} requests failed", requests.failed));
        }
        if requests.missing > 0 {
            reasons.push(format!("{} records are missing", requests.missing));
        }
        Self {
            valid: reasons.is_empty(),
            reasons,
        }
    }
}

impl Phase {
    #[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of one run")]
    fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let all: Vec<&Record> = records.collect();
        let good: Vec<&Record> = all
            .iter()
            .copied()
            .filter(|record| record.failure.is_none())
            .collect();
        let start = all.iter().map(|record| record.t_intended).min().unwrap_or(0);
        let end = all.iter().map(|record| record.t_done).max().unwrap_or(0);
        let duration_s = end.saturating_sub(start) as f64 / 1e9;
        let tokens: u64 = good.iter().map(|record| u64::from(record.tokens)).sum();
        let tokens = tokens as f64;
        let chunks: usize = good.iter().map(|record| record.content.len()).sum();
        let prompts: Samples = good
            .iter()
            .filter_map(|record| record.usage)
            .map(|usage| f64::from(usage.prompt_tokens))
            .collect();
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        Self {
            n: all.len(),
            completed: good.len(),
            duration_s,
            requests_per_s: ratio(good.len() as f64, duration_s),
            tokens_per_s: ratio(tokens, duration_s),
            tokens_per_chunk: ratio(tokens, chunks as f64),
            prompt_tokens: prompts.distribution().mean,
            ttft_ms: plain(&good, Record::ttft_ms),
            ttft_intended_ms: plain(&good, Record::ttft_intended_ms),
            itl_ms: plain(&good, Record::itl_ms),
            gap_ms: good
                .iter()
                .flat_map(|record| record.gaps_ms())
                .collect::<Samples>()
                .distribution(),
            e2e_ms: plain(&good, Record::e2e_ms),
            adj_ttft_ms: adjusted(&all, Record::ttft_ms),
            adj_ttft_intended_ms: adjusted(&all, Record::ttft_intended_ms),
            adj_itl_ms: adjusted(&all, Record::itl_ms),
            adj_e2e_ms: adjusted(&all, Record::e2e_ms),
        }
    }
}

type Figure = fn(&Record) -> Option<f64>;

fn plain(records: &[&Record], figure: Figure) -> Distribution {
    records
        .iter()
        .filter_map(|record| figure(record))
        .collect::<Samples>()
        .distribution()
}

fn adjusted(records: &[&Record], figure: Figure) -> Distribution {
    let infinite = |_: Failure| f64::INFINITY;
    let value = |record: &&Record| record.failure.map(infinite).or_else(|| figure(record));
    records
        .iter()
        .filter_map(value)
        .collect::<Samples>()
        .distribution()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::config::tests::config;

    const SECOND: u64 = 1_000_000_000;

    fn record(index: u64, start: u64, failure: Option<Failure>) -> Record {
        Record {
            index,
            t_intended: start,
            t_send: Some(start + 100_000),
            t_first_content: Some(start + 5_100_000),
            t_last_content: Some(start + 35_100_000),
            t_done: start + 36_000_000,
            content: vec![start + 5_100_000, start + 35_100_000],
            tokens: 4,
            failure,
            ..Record::default()
        }
    }

    fn summary(records: &[Record], planned: u64) -> Summary {
        let config = LoadConfig {
            requests: planned,
            ..config("http://h")
        };
        let span = Span {
            wall_origin_ns: 7,
            start: SECOND,
            end: 21 * SECOND,
            cpu_s: 10.0,
            cores: 2,
        };
        Summary::new(&config, State::Complete, records, span)
    }

    #[test]
    fn steady_state_begins_ten_seconds_into_the_phase() {
        let records = [
            record(0, SECOND, None),
            record(1, 11 * SECOND - 1, None),
            record(2, 11 * SECOND, None),
        ];
        let summary = summary(&records, 3);
        assert_eq!((summary.raw.n, summary.steady.n), (3, 1));
        assert_eq!(summary.raw.ttft_ms.p50, Some(5.0));
        assert_eq!(summary.raw.ttft_intended_ms.p50, Some(5.1));
        assert_eq!(summary.raw.itl_ms.p50, Some(10.0));
        assert_eq!(summary.raw.gap_ms.p50, Some(30.0));
        assert_eq!(summary.raw.tokens_per_chunk, Some(2.0));
        assert!(summary.validity.valid, "{:?}", summary.validity);
    }

    #[test]
    fn a_failure_is_infinite_in_adjusted_figures_and_absent_from_plain_ones() {
        let records = [record(0, SECOND, None), record(1, SECOND, Some(Failure::NoDone))];
        let summary = summary(&records, 2);
        assert_eq!((summary.raw.ttft_ms.n, summary.raw.ttft_ms.p99), (1, Some(5.0)));
        assert_eq!(
            (summary.raw.adj_ttft_ms.n, summary.raw.adj_ttft_ms.p99),
            (2, None)
        );
        assert_eq!(summary.raw.adj_ttft_ms.infinite, 1);
        assert_eq!(summary.requests.failures.get("no_done"), Some(&1));
        assert!(!summary.validity.valid);
    }

    #[test]
    fn missing_records_are_counted_and_make_the_run_invalid() {
        let summary = summary(&[record(0, SECOND, None)], 5);
        assert_eq!((summary.requests.recorded, summary.requests.missing), (1, 4));
        assert!(
            summary
                .validity
                .reasons
                .iter()
                .any(|reason| reason.contains("4 records"))
        );
    }

    #[test]
    fn a_client_that_is_the_bottleneck_makes_the_run_invalid() {
        let late = Record {
            t_send: Some(SECOND + 2_000_000),
            ..record(0, SECOND, None)
        };
        let records = [late];
        let config = config("http://h");
        let span = Span {
            wall_origin_ns: 0,
            start: SECOND,
            end: 2 * SECOND,
            cpu_s: 1.7,
            cores: 2,
        };
        let summary = Summary::new(&config, State::Complete, &records, span);
        assert!((summary.client.cpu_share - 0.85).abs() < 1e-9);
        assert_eq!(summary.validity.reasons.len(), 2, "{:?}", summary.validity);
    }

    #[test]
    fn the_state_is_a_word_in_the_json() {
        let value = serde_json::to_value(summary(&[], 1)).unwrap();
        assert_eq!(value["state"], "complete");
        let aborted = serde_json::to_value(State::Aborted("signal".into())).unwrap();
        assert_eq!(
            (&aborted["state"], &aborted["why"]),
            (&"aborted".into(), &"signal".into())
        );
    }
}
