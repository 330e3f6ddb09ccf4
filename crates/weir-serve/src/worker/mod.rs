//! The worker host: one node and the engines behind it.
//!
//! It answers `generate` by opening the request's ticket and handing the stream to an engine, and `stats` with its
//! gauges. No task exists per stream. Invariant: a request is either refused in the call's reply or ends its stream.

mod endings;
mod metrics;
mod scrape;
mod sink;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{task::AbortHandle, time::Instant};
use weir_engine::{Engine, EngineStats, Refusal};
use weir_net::{BindError, CallContext, Node, NodeConfig};

use crate::{
    discovery::Registration,
    envelope::{GENERATE, Generate, STATS},
    frontend::process,
};
use endings::Endings;
pub use scrape::MetricsServer;
use sink::StreamSink;

/// How often a draining host looks whether its engines are empty.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// One node with its engines. Clones share it.
#[derive(Debug, Clone)]
pub struct WorkerHost {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    node: Node,
    engines: Vec<Arc<dyn Engine>>,
    endings: Arc<Endings>,
    ending: AbortHandle,
    draining: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.name)
            .field("engines", &self.engines.len())
            .finish_non_exhaustive()
    }
}

impl WorkerHost {
    /// Binds a node and serves `engines` on it, by index, on the current tokio runtime until
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// [`BindError`] names the field or the address.
    pub async fn start(
        name: &str,
        config: NodeConfig,
        engines: Vec<Arc<dyn Engine>>,
    ) -> Result<Self, BindError> {
        let node = Node::bind(config).await?;
        let endings = Endings::new();
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            node: node.clone(),
            engines,
            ending: tokio::spawn(Arc::clone(&endings).run()).abort_handle(),
            endings,
            draining: AtomicBool::new(false),
        });
        let host = Arc::clone(&shared);
        node.handle(GENERATE, move |context: CallContext| {
            let answer = host.generate(&context.body);
            async move { answer }
        });
        let host = Arc::clone(&shared);
        node.handle(STATS, move |_: CallContext| {
            let answer = serde_json::to_vec(&host.stats())
                .map(Bytes::from)
                .map_err(|error| error.to_string());
            async move { answer }
        });
        Ok(Self { shared })
    }

    /// What to publish about this process.
    pub fn registration(&self) -> Registration {
        let shared = &self.shared;
        Registration {
            name: shared.name.clone(),
            addr: shared.node.addr(),
            pid: std::process::id(),
            workers: shared
                .engines
                .iter()
                .map(|engine| engine.card().clone())
                .collect(),
        }
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.shared.node
    }

    /// Gauges and counters of the engines, by index.
    pub fn stats(&self) -> Vec<EngineStats> {
        self.shared.stats()
    }

    /// Appends the metrics of the host, its process and its node in Prometheus text form.
    pub fn render_metrics(&self, out: &mut String) {
        metrics::render(
            out,
            &self.shared.name,
            &self.stats(),
            self.shared.endings.waiting(),
        );
        process::render(out);
        self.shared.node.render_metrics(out);
    }

    /// Refuses new requests from now on and waits until those that run have ended, at most until `deadline`. Returns
    /// how many had not.
    pub async fn drain(&self, deadline: Instant) -> u64 {
        self.shared.draining.store(true, Ordering::Release);
        loop {
            let left = self.shared.busy();
            if left == 0 || Instant::now() >= deadline {
                return left;
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Writes what is staged, ends the links and the host.
    pub async fn close(&self) {
        self.shared.node.flush().await;
        self.shared.node.close().await;
        self.shared.ending.abort();
    }
}

impl Shared {
    fn stats(&self) -> Vec<EngineStats> {
        self.engines.iter().map(|engine| engine.stats()).collect()
    }

    /// Requests and endings that are not done.
    fn busy(&self) -> u64 {
        let requests: u64 = self
            .stats()
            .iter()
            .map(|stats| stats.running + stats.waiting)
            .sum();
        requests + self.endings.waiting()
    }

    fn generate(&self, body: &[u8]) -> Result<Bytes, String> {
        self.submit(body).map(|()| Bytes::new()).map_err(|refusal| {
            tracing::debug!(%refusal, "request refused");
            serde_json::to_string(&refusal).unwrap_or_else(|error| error.to_string())
        })
    }

    fn submit(&self, body: &[u8]) -> Result<(), Refusal> {
        if self.draining.load(Ordering::Acquire) {
            return Err(Refusal::Draining);
        }
        let invalid = |error: &dyn std::fmt::Display| Refusal::Invalid(error.to_string());
        let Generate {
            ticket,
            worker,
            request,
        } = Generate::decode(body).map_err(|error| invalid(&error))?;
        let Some(engine) = self.engines.get(usize::from(worker)) else {
            let (name, count) = (&self.name, self.engines.len());
            return Err(Refusal::Busy(format!(
                "{name} has {count} workers and none with index {worker}"
            )));
        };
        engine.card().admit(&request)?;
        let sender = self.node.open(&ticket).map_err(|error| invalid(&error))?;
        engine.submit(
            request,
            Box::new(StreamSink::new(sender, Arc::clone(&self.endings))),
        )
    }
}
