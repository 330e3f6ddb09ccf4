//! One measured rep, as scripts read it.

use serde::Serialize;

use super::{
    Arm, Shape,
    control::{FrontendFigures, WorkerFigures},
};

/// One arm's rep of one shape. Figures are `null` where there is nothing to measure: no gap with one record, no count
/// of writes in an arm that keeps none, nothing at all when a process died.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The plane.
    pub arm: &'static str,
    /// The shape's name.
    pub shape: String,
    /// Number of the rep, from 0.
    pub rep: u32,
    /// CPU of the frontend's process per record received, in microseconds.
    pub frontend_cpu_us_per_record: Option<f64>,
    /// CPU of the workers' process per record received, in microseconds.
    pub worker_cpu_us_per_record: Option<f64>,
    /// Records received a second, from before the first start request to after the last record.
    pub records_per_s: Option<f64>,
    /// From just before a stream's start request to its first record, over streams.
    pub ttft_ms_p50: Option<f64>,
    /// The same.
    pub ttft_ms_p99: Option<f64>,
    /// Between neighbouring records of a stream at its consumer, over all streams.
    pub gap_ms_p50: Option<f64>,
    /// The same.
    pub gap_ms_p99: Option<f64>,
    /// Records per write of the worker's nodes.
    pub records_per_batch: Option<f64>,
    /// Streams that did not deliver exactly what was sent.
    pub errors: u64,
    /// Resident memory of the frontend's process after the last record.
    pub rss_mib: Option<f64>,
}

impl Row {
    /// The row of a rep in which both processes reported.
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 records")]
    pub(super) fn measured(
        (arm, shape, rep): (Arm, &Shape, u32),
        frontend: &FrontendFigures,
        worker: &WorkerFigures,
    ) -> Self {
        let records = (frontend.records > 0).then_some(frontend.records as f64);
        let written = worker.written.filter(|written| written.writes > 0);
        Self {
            frontend_cpu_us_per_record: records.map(|records| frontend.cpu_s * 1e6 / records),
            worker_cpu_us_per_record: records.map(|records| worker.cpu_s * 1e6 / records),
            records_per_s: records.map(|records| records / frontend.wall_s),
            ttft_ms_p50: frontend.ttft_ms_p50,
            ttft_ms_p99: frontend.ttft_ms_p99,
            gap_ms_p50: frontend.gap_ms_p50,
            gap_ms_p99: frontend.gap_ms_p99,
            records_per_batch: written.map(|written| written.records as f64 / written.writes as f64),
            errors: frontend.errors.max(worker.errors),
            rss_mib: Some(frontend.rss_mib),
            ..Self::failed((arm, shape, rep))
        }
    }

    /// The row of a rep that gave no figures: every stream is an error.
    pub(super) fn failed((arm, shape, rep): (Arm, &Shape, u32)) -> Self {
        Self {
            arm: arm.name(),
            shape: shape.name.clone(),
            rep,
            frontend_cpu_us_per_record: None,
            worker_cpu_us_per_record: None,
            records_per_s: None,
            ttft_ms_p50: None,
            ttft_ms_p99: None,
            gap_ms_p50: None,
            gap_ms_p99: None,
            records_per_batch: None,
            errors: u64::from(shape.streams),
            rss_mib: None,
        }
    }
}
