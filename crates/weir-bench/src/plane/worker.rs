//! The producing half of a rep: many nodes in one process, one task a stream, the same pace for every arm.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufRead, AsyncWrite};

use super::{
    arm::{Outbound, PlaneArm, WorkerNode, Written},
    control::{Channel, Order, Report, WorkerFigures},
    frontend::Start,
    payload::Payload,
    shape::Shape,
};
use crate::process::cpu_time;

/// Turns start requests into streams; counts those that failed. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Starter {
    errors: Arc<AtomicU64>,
}

impl Starter {
    /// Opens the stream that `body` asks for and produces it in a task of its own.
    pub(super) fn start<N: WorkerNode>(&self, node: N, body: &[u8])
    where
        N::Ticket: for<'a> serde::Deserialize<'a> + Send + 'static,
    {
        let start: Result<Start<N::Ticket>> = serde_json::from_slice(body).context("not a start request");
        let errors = Arc::clone(&self.errors);
        tokio::spawn(async move {
            let produced = match start {
                Ok(start) => produce(node, start).await,
                Err(error) => Err(error),
            };
            if let Err(error) = produced
                && errors.fetch_add(1, Ordering::Relaxed) < 3
            {
                #[expect(clippy::print_stderr, reason = "the parent passes this process's stderr on")]
                {
                    eprintln!("producer failed: {error:#}");
                }
            }
        });
    }
}

async fn produce<N: WorkerNode>(node: N, start: Start<N::Ticket>) -> Result<()> {
    let Start {
        ticket,
        stream,
        records,
        pause,
    } = start;
    let mut outbound = node.open(ticket).await?;
    let mut payload = Payload::new(stream);
    for number in 0..records {
        outbound.send(payload.number(number)).await?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    outbound.finish()
}

/// Runs the workers' process against the parent on `channel`.
pub(super) async fn run<A, R, W>(shape: &Shape, channel: &mut Channel<R, W>) -> Result<()>
where
    A: PlaneArm,
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let starter = Starter::default();
    let mut nodes = Vec::new();
    for _ in 0..shape.nodes {
        nodes.push(A::Worker::bind(shape, starter.clone()).await?);
    }
    let cards = nodes.iter().map(WorkerNode::card).collect::<Result<_>>()?;
    channel.send(&Report::Cards(cards)).await?;
    let Order::Meet(frontend) = channel.receive().await? else {
        bail!("expected the frontend's card")
    };
    let card = frontend.first().context("the frontend sent no card")?;
    nodes.iter().try_for_each(|node| node.meet(card))?;
    let cpu = cpu_time();
    channel.send(&Report::Ready).await?;
    let Order::End = channel.receive().await? else {
        bail!("expected the order to end")
    };
    let figures = WorkerFigures {
        cpu_s: cpu_time().saturating_sub(cpu).as_secs_f64(),
        errors: starter.errors.load(Ordering::Relaxed),
        written: nodes.iter().map(WorkerNode::written).sum::<Option<Written>>(),
    };
    channel.send(&Report::Worker(figures)).await
}
