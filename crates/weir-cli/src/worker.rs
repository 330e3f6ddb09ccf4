//! `weir worker`: one process that hosts engines.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use clap::{Args, ValueEnum};
use tokio::time::Instant;
use weir_engine::{
    Engine,
    mock::{MockConfig, MockEngine},
    scripted::{ScriptedConfig, ScriptedEngine},
};
use weir_net::NodeConfig;
use weir_serve::{
    discovery::{Directory, Discovery},
    worker::{MetricsServer, WorkerHost},
};

use crate::{
    exit::usage,
    process::{ProcessArgs, Stop, Stops, print_ready, run_on},
};

/// How long requests in progress may go on after the first signal.
const DRAIN: Duration = Duration::from_secs(30);

/// Arguments of `weir worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Directory where workers and frontends find each other.
    #[arg(long)]
    run_dir: PathBuf,
    /// Name of this process, unique in the run directory. Default: w and the process id.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    engines: EngineArgs,
    /// Serve /metrics on this address.
    #[arg(long)]
    metrics_listen: Option<SocketAddr>,
    /// Allow --metrics-listen beyond loopback, where everyone can read it.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Which engines a process hosts.
#[derive(Debug, Clone, Args)]
pub(crate) struct EngineArgs {
    /// Engine of every worker.
    #[arg(long, value_enum, default_value = "mock")]
    pub(crate) engine: EngineKind,
    /// Workers (engines) in a process.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) workers: u16,
    /// Divides the mock engine's times; `inf` for no waiting at all.
    #[arg(long, default_value_t = 1.0, value_parser = parse_speedup)]
    pub(crate) speedup: f64,
}

/// Engines by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    /// Makes tokens up, with a model's timing.
    Mock,
    /// Plays the script that a request brings.
    Scripted,
}

fn parse_speedup(text: &str) -> Result<f64, String> {
    let speedup: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if speedup > 0.0 {
        Ok(speedup)
    } else {
        Err("it must be over 0".to_owned())
    }
}

impl EngineArgs {
    fn start(&self) -> Vec<Arc<dyn Engine>> {
        (0..self.workers).map(|_| self.start_one()).collect()
    }

    fn start_one(&self) -> Arc<dyn Engine> {
        match self.engine {
            EngineKind::Mock => Arc::new(MockEngine::start(&MockConfig {
                speedup: self.speedup,
                ..Default::default()
            })),
            EngineKind::Scripted => Arc::new(ScriptedEngine::start(&ScriptedConfig::default())),
        }
    }
}

/// Runs `weir worker`.
///
/// # Errors
/// An argument cannot be used, or the worker was stopped with requests in progress.
pub(crate) fn run(args: WorkerArgs) -> Result<()> {
    let process = args.process.clone();
    run_on(&process, serve(args))
}

async fn serve(args: WorkerArgs) -> Result<()> {
    let mut stops = Stops::new(&args.process)?;
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| format!("w{}", std::process::id()));
    let host = WorkerHost::start(&name, NodeConfig::default(), args.engines.start())
        .await
        .map_err(usage)?;
    let _metrics = serve_metrics(&args, &host).await?;
    let lease = Directory::new(&args.run_dir)
        .register(&host.registration())
        .await
        .map_err(usage)?;
    let node = host.node();
    tracing::info!(name, node = %node.id(), addr = %node.addr(), workers = args.engines.workers, "worker process serves");
    print_ready(&node.id().to_string());

    let stop = stops.next().await;
    drop(lease);
    if stop == Stop::Drain {
        tracing::info!(within = ?DRAIN, "draining");
        let left = stops.unless_again(host.drain(Instant::now() + DRAIN)).await?;
        if left > 0 {
            tracing::warn!(left, "the drain timeout is over; requests in progress are cut");
        }
    }
    host.close().await;
    Ok(())
}

async fn serve_metrics(args: &WorkerArgs, host: &WorkerHost) -> Result<Option<MetricsServer>> {
    let Some(addr) = args.metrics_listen else {
        return Ok(None);
    };
    if !addr.ip().is_loopback() && !args.insecure {
        return Err(usage(format!(
            "--metrics-listen {addr} is beyond loopback: that needs --insecure"
        )));
    }
    let server = MetricsServer::start(host.clone(), addr).await;
    let cannot = |error| {
        usage(format!(
            "cannot listen on {addr}: {error}; choose another address with --metrics-listen"
        ))
    };
    let server = server.map_err(cannot)?;
    tracing::info!(addr = %server.addr(), "serving metrics");
    Ok(Some(server))
}
