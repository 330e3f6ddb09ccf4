//! The OpenAI-compatible HTTP frontend.
//!
//! [`Frontend::bind`] listens, [`Frontend::serve`] answers until it is told to stop and then drains. `http` is the
//! server under it, `api` the pure side of OpenAI's API, `stream` turns records into text. Invariant: an HTTP request
//! owns everything that is done for it; when its connection goes, so does all of it.

pub(crate) mod api;
mod auth;
mod config;
mod cors;
mod generate;
mod http;
mod ids;
pub(crate) mod metrics;
mod observe;
mod pages;
mod prepare;
pub(crate) mod process;
mod service;
pub(crate) mod stream;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub use auth::ApiKeys;
pub use config::{FrontendConfig, FrontendConfigError};
pub(crate) use generate::unix_seconds;
use tokio::{
    net::TcpStream,
    sync::{Semaphore, watch},
    time::Instant,
};
use weir_net::Node;

use crate::{
    discovery::{Discovery, DiscoveryError, Registration},
    router::{self, Fleet},
};
use api::ApiError;
use http::{Acceptor, Connections, End, Open, Patience, Wish};
use ids::Ids;
use metrics::Metrics;

/// `Frontend::bind` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontendError {
    /// A field of the configuration is out of bounds.
    #[error(transparent)]
    Config(#[from] FrontendConfigError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; choose another address with --listen")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Workers cannot be found.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The system gave no random bytes.
    #[error("no random bytes from the system: {0}")]
    Random(io::Error),
}

/// What every request is answered with.
#[derive(Debug)]
pub(crate) struct App {
    config: FrontendConfig,
    node: Node,
    fleet: Arc<Fleet>,
    metrics: Arc<Metrics>,
    connections: Arc<Connections>,
    ids: Ids,
    /// Places for long request bodies that are being parsed.
    readers: Semaphore,
    draining: AtomicBool,
}

impl App {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// A frontend that listens.
#[derive(Debug)]
pub struct Frontend {
    app: Arc<App>,
    acceptor: Acceptor,
    addr: SocketAddr,
    registrations: watch::Receiver<Vec<Registration>>,
}

impl Frontend {
    /// Listens on `config.listen` and begins to watch `discovery`. Requests travel over `node`.
    ///
    /// # Errors
    /// [`FrontendError`] names the field, the address or the place.
    pub async fn bind(
        config: FrontendConfig,
        node: Node,
        discovery: &impl Discovery,
    ) -> Result<Self, FrontendError> {
        config.validate()?;
        let addr = config.listen;
        let failed = |source| FrontendError::Listen { addr, source };
        let listener = http::listen(addr).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let registrations = discovery.watch().await?;
        let fleet = Arc::new(Fleet::new(config.encoder.fingerprint()));
        let app = App {
            config,
            node,
            fleet,
            metrics: Arc::default(),
            connections: Arc::default(),
            ids: Ids::new().map_err(FrontendError::Random)?,
            readers: Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)),
            draining: AtomicBool::new(false),
        };
        Ok(Self {
            app: Arc::new(app),
            acceptor: Acceptor::new(listener),
            addr,
            registrations,
        })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `shutdown` resolves, then drains: `/health` and new requests are answered 503, idle connections
    /// close, requests in progress finish, for at most the drain timeout. Returns how many connections were cut.
    ///
    /// Links to workers stay up until the last request has ended. Dropping the future ends everything at once.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> usize {
        let Self {
            app,
            mut acceptor,
            registrations,
            ..
        } = self;
        let routing = router::supervise(Arc::clone(&app.fleet), app.node.clone(), registrations);
        let accepting = async {
            loop {
                let failed = || {
                    app.metrics.accept_errors.fetch_add(1, Ordering::Relaxed);
                };
                let socket = acceptor.accept(failed).await;
                take(&app, socket);
            }
        };
        let stopping = async {
            shutdown.await;
            drain(&app).await;
        };
        tokio::select! {
            () = stopping => {}
            never = routing => never,
            never = accepting => never,
        }
        drop(acceptor);
        cut(&app).await
    }
}

/// Serves a new client in a task of its own, or turns it away.
fn take(app: &Arc<App>, socket: TcpStream) {
    let Some(open) = app.connections.open(app.config.max_connections) else {
        app.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
        turn_away(&socket);
        return;
    };
    tokio::spawn(connection(Arc::clone(app), socket, open));
}

async fn connection(app: Arc<App>, socket: TcpStream, open: Open) {
    let config = &app.config;
    let patience = Patience {
        idle: config.idle_timeout,
        head: config.head_timeout,
        stall: config.stall_limit,
    };
    let end = http::serve(socket, open, patience, |request, exchange| {
        service::answer(Arc::clone(&app), request, exchange)
    });
    if end.await == End::Stalled {
        app.metrics.stalled_clients.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("closed a client that did not read");
    }
}

/// One write, if the socket takes it; nothing is kept of a client over the limit.
fn turn_away(socket: &TcpStream) {
    let mut body = Vec::new();
    ApiError::overloaded("too many connections are open here").render(&mut body);
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // A fresh socket takes this much; if it does not, the client sees a close.
    let _ = socket.try_write(&[head.into_bytes(), body].concat());
}

/// Lets what is in progress finish, within the drain timeout.
async fn drain(app: &App) {
    let by = Instant::now() + app.config.drain_timeout;
    app.draining.store(true, Ordering::Relaxed);
    let open = app.connections.len();
    tracing::info!(connections = open, within = ?app.config.drain_timeout, "draining");
    app.connections.ask_all(Wish::Finish);
    if !app.connections.none_left(Connections::served, by).await {
        tracing::warn!("the drain timeout is over; requests in progress are cut");
    }
}

/// Ends every connection that is left; how many of them had a request.
async fn cut(app: &App) -> usize {
    let left = app.connections.served();
    app.connections.ask_all(Wish::Abort);
    // Their tasks only have to be polled once more.
    app.connections
        .none_left(Connections::len, Instant::now() + Duration::from_secs(1))
        .await;
    left
}
