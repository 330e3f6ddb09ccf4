//! One client's connection, from accept to close.
//!
//! hyper's own HTTP/1 machine runs here in the connection's one task. Invariant: the answer's body, and with it the
//! stream it reads from, is dropped as soon as the client is gone; a FIN counts as gone, also of a client that still
//! reads, because nothing else tells a closed socket before a write fails.

use std::{convert::Infallible, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    server::conn::http1,
    service::{HttpService, service_fn},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Body, ClientIo, Exchange, Open, Patience, Wish};

/// Read and write buffer of a connection, and so the longest request head.
const BUFFER: usize = 64 * 1024;
/// Most header fields of a request.
const MAX_HEADERS: usize = 128;
/// Most bytes read and thrown away of a body that was refused.
const LINGER_BYTES: usize = 64 << 20;
/// How long a refused body is read and thrown away.
const LINGER_TIME: Duration = Duration::from_secs(5);

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Closed by either side.
    Closed,
    /// The client did not read for too long.
    Stalled,
}

/// Serves one connection. `answer` is called for each request.
pub(crate) async fn serve<F, R>(socket: TcpStream, open: Open, patience: Patience, answer: F) -> End
where
    F: Fn(Request<Incoming>, Exchange) -> R,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let state = &open.connection;
    let io = ClientIo::new(socket, state.clone(), patience);
    let service = service_fn(|request: Request<Incoming>| {
        let exchange = state.begin(!request.body().is_end_stream());
        let response = answer(request, exchange);
        Box::pin(async move { Ok::<_, Infallible>(response.await) })
    });
    let mut http = http1::Builder::new();
    http.max_buf_size(BUFFER)
        .max_headers(MAX_HEADERS)
        .header_read_timeout(None);
    let mut connection = http.serve_connection(io, service);
    if run(&mut connection, &open).await {
        close(connection.into_parts().io.into_inner(), state.has_unread_body()).await;
    }
    if state.stalled() {
        End::Stalled
    } else {
        End::Closed
    }
}

/// Polls the connection to its end; false if it is to be dropped as it is.
async fn run<S>(connection: &mut http1::Connection<ClientIo, S>, open: &Open) -> bool
where
    S: HttpService<Incoming, ResBody = Body> + Unpin,
    S::Future: Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut registered, mut finishing) = (false, false);
    poll_fn(|cx| {
        if !registered {
            registered = true;
            open.connection.register(cx.waker());
        }
        match open.connection.wish() {
            Wish::Open => {}
            Wish::Finish if finishing => {}
            Wish::Finish => {
                finishing = true;
                Pin::new(&mut *connection).graceful_shutdown();
            }
            Wish::Abort => return Poll::Ready(false),
        }
        connection.poll_without_shutdown(cx).map(|result| {
            if let Err(error) = &result {
                tracing::trace!(%error, "connection ended");
            }
            result.is_ok()
        })
    })
    .await
}

/// Closes the socket. A client that is still sending would get a reset before it reads the answer, so what it sends
/// is thrown away for a while.
async fn close(mut socket: TcpStream, linger: bool) {
    if socket.shutdown().await.is_err() || !linger {
        return;
    }
    let discard = async {
        let mut buffer = vec![0; 64 * 1024];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match socket.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) => left = left.saturating_sub(read),
            }
        }
    };
    // Running out of time is one of the two ways this ends.
    let _ = tokio::time::timeout(LINGER_TIME, discard).await;
}
