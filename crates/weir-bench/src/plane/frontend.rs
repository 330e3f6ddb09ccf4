//! The consuming half of a rep: one task a stream, the same stamps and checks for every arm.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufRead, AsyncWrite},
    task::JoinHandle,
    time::timeout_at,
};

use super::{
    arm::{FrontendEnd, Inbound as _, PlaneArm},
    control::{Channel, FrontendFigures, Order, Report},
    payload::Payload,
    shape::Shape,
};
use crate::{
    process::{cpu_time, rss_mib},
    stats::Samples,
};

/// A start request: the same JSON in every arm, around the arm's ticket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start<T> {
    pub(super) ticket: T,
    pub(super) stream: u32,
    pub(super) records: u32,
    pub(super) pause: Duration,
}

/// Times of one stream.
#[derive(Debug)]
struct Trace {
    /// From just before the start request to the first record.
    ttft: Duration,
    /// Between neighbouring records, in microseconds.
    gaps: Vec<u32>,
}

/// Runs the frontend's process against the parent on `channel`; no wait is longer than `patience`.
pub(super) async fn run<A, R, W>(shape: &Shape, patience: Duration, channel: &mut Channel<R, W>) -> Result<()>
where
    A: PlaneArm,
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let Order::Meet(workers) = channel.receive().await? else {
        bail!("expected the workers' cards")
    };
    let frontend = A::Frontend::bind(shape, &workers).await?;
    channel.send(&Report::Cards(vec![frontend.card()?])).await?;
    let Order::Go = channel.receive().await? else {
        bail!("expected the order to go")
    };
    tokio::time::timeout(patience, frontend.settle())
        .await
        .context("the workers cannot be reached in time")??;
    let figures = measure::<A>(&frontend, shape, patience).await?;
    channel.send(&Report::Frontend(figures)).await?;
    let Order::End = channel.receive().await? else {
        bail!("expected the order to end")
    };
    Ok(())
}

async fn measure<A: PlaneArm>(
    frontend: &A::Frontend,
    shape: &Shape,
    patience: Duration,
) -> Result<FrontendFigures> {
    let (cpu, begin) = (cpu_time(), Instant::now());
    let tasks: Vec<JoinHandle<Result<Trace>>> = (0..shape.streams)
        .map(|stream| tokio::spawn(consume::<A>(frontend.clone(), stream, shape.clone())))
        .collect();
    let mut results = Vec::with_capacity(tasks.len());
    let deadline = tokio::time::Instant::now() + patience;
    for mut task in tasks {
        let joined = timeout_at(deadline, &mut task).await;
        results.push(match joined {
            Ok(result) => result.context("the stream's task died").and_then(|trace| trace),
            Err(_late) => Err(anyhow::anyhow!("not ended within {patience:?}")),
        });
        task.abort();
    }
    let (cpu, wall) = (cpu_time().saturating_sub(cpu), begin.elapsed());
    figures(&results, cpu, wall)
}

async fn consume<A: PlaneArm>(frontend: A::Frontend, stream: u32, shape: Shape) -> Result<Trace> {
    let worker = (stream % shape.nodes) as usize;
    let mut gaps = Vec::with_capacity(shape.records as usize);
    let mut expected = Payload::new(stream);
    let (mut inbound, ticket) = frontend.mint(worker)?;
    let begin = Instant::now();
    let start = Start {
        ticket,
        stream,
        records: shape.records,
        pause: shape.pause,
    };
    frontend
        .request(worker, serde_json::to_vec(&start)?.into())
        .await?;
    let Some(first) = inbound.next().await? else {
        bail!("ended without a record")
    };
    let mut last = Instant::now();
    let ttft = last - begin;
    expected.check(0, &first)?;
    let mut number = 1;
    while let Some(record) = inbound.next().await? {
        let now = Instant::now();
        gaps.push(u32::try_from((now - last).as_micros()).unwrap_or(u32::MAX));
        last = now;
        expected.check(number, &record)?;
        number += 1;
    }
    ensure!(
        number == shape.records,
        "ended after {number} of {} records",
        shape.records
    );
    Ok(Trace { ttft, gaps })
}

fn figures(results: &[Result<Trace>], cpu: Duration, wall: Duration) -> Result<FrontendFigures> {
    let rss_mib = rss_mib()?;
    for error in results.iter().filter_map(|result| result.as_ref().err()).take(3) {
        #[expect(clippy::print_stderr, reason = "the parent passes this process's stderr on")]
        {
            eprintln!("stream failed: {error:#}");
        }
    }
    let traces: Vec<&Trace> = results.iter().flatten().collect();
    let ttft: Samples = traces
        .iter()
        .map(|trace| trace.ttft.as_secs_f64() * 1e3)
        .collect();
    let gaps: Samples = traces
        .iter()
        .flat_map(|trace| &trace.gaps)
        .map(|&gap| f64::from(gap) / 1e3)
        .collect();
    Ok(FrontendFigures {
        cpu_s: cpu.as_secs_f64(),
        wall_s: wall.as_secs_f64(),
        records: (gaps.len() + ttft.len()) as u64,
        errors: (results.len() - traces.len()) as u64,
        ttft_ms_p50: ttft.percentile(50.0),
        ttft_ms_p99: ttft.percentile(99.0),
        gap_ms_p50: gaps.percentile(50.0),
        gap_ms_p99: gaps.percentile(99.0),
        rss_mib,
    })
}
