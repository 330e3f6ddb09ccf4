//! One process of a rep: pins itself, starts its runtime, runs its half of the harness.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncWrite, BufReader};

use super::{
    Arm, Shape,
    arm::PlaneArm,
    control::{Channel, Report},
    floor::Floor,
    frontend,
    weir::Weir,
    worker,
};
use crate::process::pin_to;

/// Which half of a rep a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    Frontend,
    Worker,
}

/// All that a side's process is told; travels as one JSON argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideSpec {
    pub(super) role: Role,
    pub(super) arm: Arm,
    pub(super) shape: Shape,
    pub(super) core: Option<usize>,
    pub(super) threads: usize,
    pub(super) patience: Duration,
}

/// Runs the side that `spec`, a [`SideSpec`] as JSON, describes, over standard input and output.
///
/// # Errors
/// What made the side fail; the parent has been told.
pub fn run_side(spec: &str) -> Result<()> {
    let spec: SideSpec = serde_json::from_str(spec).context("not a side's description")?;
    if let Some(core) = spec.core {
        pin_to(core)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(spec.threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let channel = Channel::new(BufReader::new(tokio::io::stdin()), tokio::io::stdout());
    let outcome = runtime.block_on(async { tokio::spawn(converse(spec, channel)).await });
    // Reading standard input occupies a thread that only the parent can release.
    runtime.shutdown_background();
    outcome.context("the side's task died")?
}

/// Runs a side; what goes wrong is reported before it is returned.
pub(super) async fn converse<R, W>(spec: SideSpec, mut channel: Channel<R, W>) -> Result<()>
where
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let outcome = match spec.arm {
        Arm::Weir => half::<Weir, R, W>(&spec, &mut channel).await,
        Arm::Floor => half::<Floor, R, W>(&spec, &mut channel).await,
        #[cfg(feature = "peers")]
        Arm::Velo => half::<super::velo::VeloArm, R, W>(&spec, &mut channel).await,
        #[cfg(not(feature = "peers"))]
        Arm::Velo => Err(anyhow::anyhow!(
            "this build has no arm velo: build with `--features peers`"
        )),
    };
    if let Err(error) = &outcome {
        // The parent may be gone; then there is nobody to tell.
        drop(channel.send(&Report::Failed(format!("{error:#}"))).await);
    }
    outcome
}

async fn half<A, R, W>(spec: &SideSpec, channel: &mut Channel<R, W>) -> Result<()>
where
    A: PlaneArm,
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match spec.role {
        Role::Frontend => frontend::run::<A, R, W>(&spec.shape, spec.patience, channel).await,
        Role::Worker => worker::run::<A, R, W>(&spec.shape, channel).await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

    use super::{
        super::control::{FrontendFigures, Order, WorkerFigures},
        *,
    };

    type End = Channel<BufReader<ReadHalf<DuplexStream>>, WriteHalf<DuplexStream>>;

    fn side(role: Role, arm: Arm, shape: &Shape) -> End {
        let ends = duplex(64 * 1024);
        let [ours, theirs] = [ends.0, ends.1].map(|end| {
            let (reader, writer) = split(end);
            Channel::new(BufReader::new(reader), writer)
        });
        let spec = SideSpec {
            role,
            arm,
            shape: shape.clone(),
            core: None,
            threads: 1,
            patience: Duration::from_secs(60),
        };
        tokio::spawn(converse(spec, theirs));
        ours
    }

    async fn cards(end: &mut End) -> Vec<String> {
        match end.receive().await.unwrap() {
            Report::Cards(cards) => cards,
            other => panic!("{other:?}"),
        }
    }

    /// Both sides of a small rep in this process.
    async fn rep(arm: Arm) -> (FrontendFigures, WorkerFigures) {
        let shape = Shape {
            streams: 7,
            nodes: 3,
            records: 100,
            pause: Duration::ZERO,
            ..shape()
        };
        let (mut worker, mut frontend) = (side(Role::Worker, arm, &shape), side(Role::Frontend, arm, &shape));
        let workers = cards(&mut worker).await;
        assert_eq!(workers.len(), 3);
        frontend.send(&Order::Meet(workers)).await.unwrap();
        let card = cards(&mut frontend).await;
        worker.send(&Order::Meet(card)).await.unwrap();
        assert_eq!(worker.receive::<Report>().await.unwrap(), Report::Ready);
        frontend.send(&Order::Go).await.unwrap();
        let Report::Frontend(consumed) = frontend.receive().await.unwrap() else {
            panic!("no figures")
        };
        worker.send(&Order::End).await.unwrap();
        let Report::Worker(produced) = worker.receive().await.unwrap() else {
            panic!("no figures")
        };
        (consumed, produced)
    }

    fn shape() -> Shape {
        "single".parse().unwrap()
    }

    #[tokio::test]
    async fn the_floor_delivers_every_record_past_its_window() {
        let (consumed, produced) = rep(Arm::Floor).await;
        assert_eq!((consumed.records, consumed.errors, produced.errors), (700, 0, 0));
        let written = produced.written.unwrap();
        assert_eq!(written.records, 700);
        assert!(written.writes > 0 && written.writes <= 700);
    }

    #[tokio::test]
    async fn weir_delivers_every_record_past_its_window() {
        let (consumed, produced) = rep(Arm::Weir).await;
        assert_eq!((consumed.records, consumed.errors, produced.errors), (700, 0, 0));
        let written = produced.written.unwrap();
        assert!(written.records >= 700 && written.writes > 0, "{written:?}");
    }

    #[cfg(feature = "peers")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn velo_delivers_every_record() {
        let (consumed, produced) = rep(Arm::Velo).await;
        assert_eq!((consumed.records, consumed.errors, produced.errors), (700, 0, 0));
    }

    #[tokio::test]
    async fn a_side_that_is_told_nonsense_says_so_and_fails() {
        let mut worker = side(Role::Worker, Arm::Floor, &shape());
        cards(&mut worker).await;
        worker.send(&Order::Go).await.unwrap();
        let Report::Failed(why) = worker.receive().await.unwrap() else {
            panic!("no failure")
        };
        assert!(why.contains("frontend"), "{why}");
    }

    #[tokio::test]
    async fn a_floor_worker_that_is_not_there_fails_the_frontend() {
        let mut frontend = side(Role::Frontend, Arm::Floor, &shape());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let card = listener.local_addr().unwrap().to_string();
        drop(listener);
        frontend.send(&Order::Meet(vec![card.clone()])).await.unwrap();
        let Report::Failed(why) = frontend.receive().await.unwrap() else {
            panic!("no failure")
        };
        assert!(why.contains(&card), "{why}");
    }
}
