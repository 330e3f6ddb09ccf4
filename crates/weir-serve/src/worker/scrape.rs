//! The small HTTP server for a worker's `/metrics` and `/live`.
//!
//! It answers scrapes, nothing else. Invariant: at most [`CONNECTIONS`] clients at once, each with a deadline.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::AbortHandle,
};

use super::WorkerHost;

/// Clients served at once.
const CONNECTIONS: usize = 32;
/// From accept to the end of a client's connection.
const DEADLINE: Duration = Duration::from_secs(10);
/// Wait after an accept that failed, for example without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running metrics server; dropping it ends it.
#[derive(Debug)]
pub struct MetricsServer {
    addr: SocketAddr,
    task: AbortHandle,
}

impl MetricsServer {
    /// Serves the metrics of `host` on `addr`.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn start(host: WorkerHost, addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        Ok(Self {
            addr,
            task: tokio::spawn(accept(listener, host)).abort_handle(),
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, host: WorkerHost) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((socket, _)) => {
                let host = host.clone();
                tokio::spawn(async move {
                    let _place = place;
                    // A client that fails or dawdles loses its connection; there is nobody else to tell.
                    let _ = tokio::time::timeout(DEADLINE, serve(socket, host)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a metrics client");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, host: WorkerHost) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        let answer = answer(&request, &host);
        async move { Ok::<_, Infallible>(answer) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service)
        .await
}

fn answer(request: &Request<Incoming>, host: &WorkerHost) -> Response<Full<Bytes>> {
    let mut text = String::new();
    let status = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            host.render_metrics(&mut text);
            StatusCode::OK
        }
        (&Method::GET, "/live") => StatusCode::OK,
        (_, "/metrics" | "/live") => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
