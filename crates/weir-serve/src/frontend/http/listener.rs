//! The listening socket and the loop that accepts clients.
//!
//! Invariant: no error of accept ends the loop; when the process is out of file descriptors it waits and goes on.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Connections the kernel keeps until they are accepted.
const BACKLOG: i32 = 4096;
/// Unsent bytes the kernel takes for a client: little, so that a client that does not read is noticed early.
const UNSENT: u32 = 32 * 1024;

/// Listens on `addr`.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts clients one after the other.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    wait: Duration,
    logged: Option<Instant>,
    errors: u64,
}

const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            wait: FIRST_WAIT,
            logged: None,
            errors: 0,
        }
    }

    /// The next client. Cancel safe.
    pub(crate) async fn accept(&mut self, failed: impl Fn()) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    self.wait = FIRST_WAIT;
                    prepare(&socket);
                    return socket;
                }
                // The client went away before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    failed();
                    self.log(&error);
                    tokio::time::sleep(self.wait).await;
                    self.wait = self.wait.saturating_mul(2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// One line a second at most.
    fn log(&mut self, error: &io::Error) {
        self.errors = self.errors.saturating_add(1);
        if self
            .logged
            .is_none_or(|at| at.elapsed() >= Duration::from_secs(1))
        {
            self.logged = Some(Instant::now());
            tracing::warn!(%error, errors = self.errors, "cannot accept connections; retrying");
        }
    }
}

/// Small writes leave at once, and few unsent bytes pile up.
fn prepare(socket: &TcpStream) {
    let reference = SockRef::from(socket);
    let prepared = reference
        .set_tcp_nodelay(true)
        .and_then(|()| reference.set_tcp_notsent_lowat(UNSENT));
    if let Err(error) = prepared {
        // The client is gone already; its first read says so.
        tracing::trace!(%error, "cannot set socket options");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_accepted_socket_sends_small_writes_at_once() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(addr), async {
            Acceptor::new(listener).accept(|| {}).await
        });
        client.unwrap();
        assert!(server.nodelay().unwrap());
        assert_eq!(SockRef::from(&server).tcp_notsent_lowat().unwrap(), UNSENT);
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let first = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
