//! `weir worker`: one process that hosts engines.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use tokio::time::Instant;
use weir_net::NodeConfig;
use weir_serve::{
    discovery::{Directory, Discovery},
    worker::{MetricsServer, WorkerHost},
};

use crate::{
    address,
    engines::EngineArgs,
    exit::usage,
    process::{ProcessArgs, Stop, Stops, print_ready, run_on},
};

/// How long requests in progress may go on after the first signal.
const DRAIN: Duration = Duration::from_secs(30);

/// Arguments of `weir worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Directory where workers and frontends find each other; made if it is not there.
    #[arg(long, value_name = "DIR")]
    run_dir: PathBuf,
    /// Name of this process, unique in the run directory. Default: w and the process id.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    engines: EngineArgs,
    /// Serve /metrics on this address.
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    metrics_listen: Option<SocketAddr>,
    /// Allow --metrics-listen beyond loopback, where everyone can read it.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    process: ProcessArgs,
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
    let engines = args.engines.start(args.process.threads)?;
    let host = WorkerHost::start(&name, NodeConfig::default(), engines)
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
            host.close().await;
            bail!("the drain timeout of {DRAIN:?} is over: {left} requests were cut");
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
