//! Lines between the parent and the two processes of a rep: one JSON value a line, over standard input and output.

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, Lines};

use super::arm::Written;

/// From the parent to a side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// The other side's cards.
    Meet(Vec<String>),
    /// Measure.
    Go,
    /// Report and leave.
    End,
}

/// From a side to the parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// This side's cards.
    Cards(Vec<String>),
    /// The worker has met the frontend; its clock runs.
    Ready,
    /// What the frontend measured.
    Frontend(FrontendFigures),
    /// What the worker measured.
    Worker(WorkerFigures),
    /// This side cannot go on.
    Failed(String),
}

/// What the frontend measured, from before the first start request to after the last record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FrontendFigures {
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) records: u64,
    pub(super) errors: u64,
    pub(super) ttft_ms_p50: Option<f64>,
    pub(super) ttft_ms_p99: Option<f64>,
    pub(super) gap_ms_p50: Option<f64>,
    pub(super) gap_ms_p99: Option<f64>,
    pub(super) rss_mib: f64,
}

/// What the worker process measured, from its `Ready` to its `End`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkerFigures {
    pub(super) cpu_s: f64,
    pub(super) errors: u64,
    pub(super) written: Option<Written>,
}

/// One end of the line.
#[derive(Debug)]
pub(super) struct Channel<R, W> {
    lines: Lines<R>,
    writer: W,
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> Channel<R, W> {
    pub(super) fn new(reader: R, writer: W) -> Self {
        Self {
            lines: reader.lines(),
            writer,
        }
    }

    pub(super) async fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.writer
            .write_all(&line)
            .await
            .context("the other process does not read")?;
        self.writer
            .flush()
            .await
            .context("the other process does not read")
    }

    /// The next message; an error when the other process is gone.
    pub(super) async fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T> {
        let Some(line) = self.lines.next_line().await? else {
            bail!("the other process closed its output")
        };
        serde_json::from_str(&line).with_context(|| format!("not a message: {line:?}"))
    }
}
