//! One rep from the parent's side: two fresh processes, introduced to each other, each wait with a deadline.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::BufReader,
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{
    control::{Channel, FrontendFigures, Order, Report, WorkerFigures},
    side::SideSpec,
};

/// How to start a side: the program and the arguments that precede its [`SideSpec`].
#[derive(Debug, Clone)]
pub struct SideCommand {
    /// The program, as a rule the current executable.
    pub program: PathBuf,
    /// Arguments before the description.
    pub args: Vec<OsString>,
}

/// A side's process; killed when dropped.
#[derive(Debug)]
struct Side {
    name: &'static str,
    child: Child,
    channel: Channel<BufReader<ChildStdout>, ChildStdin>,
}

impl Side {
    fn start(name: &'static str, command: &SideCommand, spec: &SideSpec) -> Result<Self> {
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .arg(serde_json::to_string(spec)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", command.program.display()))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        Ok(Self {
            name,
            child,
            channel: Channel::new(BufReader::new(stdout), stdin),
        })
    }

    async fn order(&mut self, order: &Order) -> Result<()> {
        self.channel
            .send(order)
            .await
            .with_context(|| format!("the {} process", self.name))
    }

    async fn report(&mut self) -> Result<Report> {
        match self
            .channel
            .receive()
            .await
            .with_context(|| format!("the {} process", self.name))?
        {
            Report::Failed(why) => bail!("the {} process failed: {why}", self.name),
            report => Ok(report),
        }
    }

    async fn cards(&mut self) -> Result<Vec<String>> {
        match self.report().await? {
            Report::Cards(cards) => Ok(cards),
            other => bail!("expected cards of the {} process, got {other:?}", self.name),
        }
    }
}

/// Runs one rep. A side that fails, dies or stays silent for `deadline` in all ends it.
pub(super) async fn run(
    command: &SideCommand,
    (frontend, worker): (&SideSpec, &SideSpec),
    deadline: Duration,
) -> Result<(FrontendFigures, WorkerFigures)> {
    let rep = async {
        let mut worker = Side::start("worker", command, worker)?;
        let mut frontend = Side::start("frontend", command, frontend)?;
        introduce(&mut frontend, &mut worker).await?;
        measure(&mut frontend, &mut worker).await
    };
    timeout(deadline, rep)
        .await
        .with_context(|| format!("no result within {deadline:?}"))?
}

async fn introduce(frontend: &mut Side, worker: &mut Side) -> Result<()> {
    let cards = worker.cards().await?;
    frontend.order(&Order::Meet(cards)).await?;
    let card = frontend.cards().await?;
    worker.order(&Order::Meet(card)).await?;
    let Report::Ready = worker.report().await? else {
        bail!("the worker process did not get ready")
    };
    frontend.order(&Order::Go).await
}

async fn measure(frontend: &mut Side, worker: &mut Side) -> Result<(FrontendFigures, WorkerFigures)> {
    let report = tokio::select! {
        report = frontend.report() => report?,
        status = worker.child.wait() => bail!("the worker process died during the rep: {}", status?),
    };
    let Report::Frontend(frontend_figures) = report else {
        bail!("expected the frontend's figures")
    };
    worker.order(&Order::End).await?;
    let Report::Worker(worker_figures) = worker.report().await? else {
        bail!("expected the worker's figures")
    };
    frontend.order(&Order::End).await?;
    Ok((frontend_figures, worker_figures))
}
