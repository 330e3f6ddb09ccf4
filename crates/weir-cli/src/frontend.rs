//! `weir frontend`: one process that serves the OpenAI API over HTTP.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use clap::Args;
use weir_engine::PromptEncoder;
use weir_model::prompts::ModelPrompts;
use weir_net::{Node, NodeConfig};
use weir_serve::{
    discovery::Directory,
    frontend::{ApiKeys, Frontend, FrontendConfig, FrontendError},
};

use crate::{
    address, duration,
    exit::usage,
    model,
    process::{ProcessArgs, Stop, Stops, print_ready, run_on},
};

/// Arguments of `weir frontend`. What is not given keeps the default of `FrontendConfig`.
#[derive(Debug, Args)]
pub(crate) struct FrontendArgs {
    /// Address to serve HTTP on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000", value_parser = address::parse)]
    listen: SocketAddr,
    /// Directory where workers and frontends find each other; made if it is not there.
    #[arg(long, value_name = "DIR")]
    run_dir: PathBuf,
    /// From a request to its first token; then 504. Default 30s.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    first_token_timeout: Option<Duration>,
    /// Between two tokens of a request; then an error event. Default 30s.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    progress_timeout: Option<Duration>,
    /// How long a client may leave unread what waits for it. Default 30s.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    stall_limit: Option<Duration>,
    /// How long requests in progress may go on after the first signal. Default 30s.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    drain_timeout: Option<Duration>,
    /// How long a connection may be idle between requests. Default 2m.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    idle_timeout: Option<Duration>,
    /// Most connections open at a time; more are answered 503. Default 16384.
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Most requests in progress; more are answered 429. Default: no limit.
    #[arg(long, value_name = "N")]
    max_requests: Option<u64>,
    /// How many other workers a request may move to before its first token. Default 3.
    #[arg(long, value_name = "N")]
    migration_limit: Option<u32>,
    /// File with API keys, one a line, of which each request must carry one.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Allow to listen beyond loopback without API keys.
    #[arg(long)]
    insecure: bool,
    /// Origin whose pages may call from a browser, or * for all. May be given several times.
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Send a streamed chat's role at once, before its first token.
    #[arg(long)]
    early_role: bool,
    /// Tokenize as this model does: a GGUF file, or the name of a fetched one. Only workers with its tokenizer are used.
    #[arg(long, value_name = "FILE|NAME")]
    model: Option<String>,
    /// Chat template to use instead of the model's.
    #[arg(long, value_name = "FILE", requires = "model")]
    chat_template: Option<PathBuf>,
    #[command(flatten)]
    process: ProcessArgs,
}

impl FrontendArgs {
    fn config(&self) -> Result<FrontendConfig> {
        let default = FrontendConfig::default();
        Ok(FrontendConfig {
            listen: self.listen,
            api_keys: self.api_key_file.as_deref().map(read_keys).transpose()?,
            insecure: self.insecure,
            cors_origins: self.cors_origin.clone(),
            first_token_timeout: self.first_token_timeout.unwrap_or(default.first_token_timeout),
            progress_timeout: self.progress_timeout.unwrap_or(default.progress_timeout),
            stall_limit: self.stall_limit.unwrap_or(default.stall_limit),
            drain_timeout: self.drain_timeout.unwrap_or(default.drain_timeout),
            idle_timeout: self.idle_timeout.unwrap_or(default.idle_timeout),
            max_connections: self.max_connections.unwrap_or(default.max_connections),
            max_requests: self.max_requests,
            migration_limit: self.migration_limit.unwrap_or(default.migration_limit),
            early_role: self.early_role,
            encoder: match &self.model {
                Some(model) => self.encoder_of(model)?,
                None => default.encoder,
            },
            ..default
        })
    }

    fn encoder_of(&self, model: &str) -> Result<Arc<dyn PromptEncoder>> {
        let given = self.chat_template.as_deref().map(read_template).transpose()?;
        let gguf = model::open(model).map_err(|error| usage(format!("--model {model}: {error:#}")))?;
        let prompts = ModelPrompts::from_gguf(&gguf, given.as_deref())
            .map_err(|error| usage(format!("--model {model}: {error}")))?;
        tracing::info!(model, "chats go through {}", prompts.source());
        Ok(Arc::new(prompts))
    }
}

fn read_template(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| usage(format!("cannot read --chat-template {}: {error}", path.display())))
}

fn read_keys(path: &Path) -> Result<ApiKeys> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| usage(format!("cannot read --api-key-file {shown}: {error}")))?;
    ApiKeys::parse(&text).map_err(|what| usage(format!("--api-key-file {shown} cannot be used: {what}")))
}

/// Runs `weir frontend`.
///
/// # Errors
/// An argument cannot be used, or requests in progress were cut.
pub(crate) fn run(args: FrontendArgs) -> Result<()> {
    let process = args.process.clone();
    run_on(&process, serve(args))
}

async fn serve(args: FrontendArgs) -> Result<()> {
    let mut stops = Stops::new(&args.process)?;
    let node = Node::bind(NodeConfig::default()).await.map_err(usage)?;
    let directory = Directory::new(&args.run_dir);
    let frontend = Frontend::bind(args.config()?, node.clone(), &directory)
        .await
        .map_err(exit_error)?;
    tracing::info!(addr = %frontend.addr(), node = %node.id(), "frontend serves");
    print_ready(&format!("http://{}", frontend.addr()));

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(frontend.serve(async {
        // A sender that is gone says the same.
        let _ = stopped.await;
    }));
    let first = tokio::select! {
        _ = &mut serving => bail!("the frontend ended by itself"),
        first = stops.next() => first,
    };
    if first == Stop::Now {
        return Ok(());
    }
    drop(stop);
    let cut = stops.unless_again(serving).await?;
    node.close().await;
    if cut > 0 {
        bail!("the drain timeout is over: {cut} connections were cut");
    }
    Ok(())
}

/// What the operator can change is usage; a system without random bytes is not.
fn exit_error(error: FrontendError) -> anyhow::Error {
    match error {
        FrontendError::Random(_) => error.into(),
        error => usage(error),
    }
}
