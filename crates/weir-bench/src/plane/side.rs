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
