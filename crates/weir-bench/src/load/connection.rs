//! One keep-alive HTTP/1.1 connection of one slot, polled by the slot's own task.
//!
//! The socket stamps the first byte of a request as the kernel takes it, which is what "sent" means here.

use std::{
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::clock::Clock;

type Driver = http1::Connection<TokioIo<Stamped>, Full<Bytes>>;

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    driver: Option<Driver>,
    sent: Arc<AtomicU64>,
}

impl Connection {
    /// Connects; no deadline of its own.
    pub(super) async fn open(authority: &str, clock: Clock) -> Result<Self> {
        let socket = TcpStream::connect(authority)
            .await
            .with_context(|| format!("cannot connect to {authority}"))?;
        socket.set_nodelay(true)?;
        let sent = Arc::new(AtomicU64::new(0));
        let stamped = Stamped {
            socket,
            clock,
            sent: Arc::clone(&sent),
        };
        let (sender, driver) = http1::handshake(TokioIo::new(stamped))
            .await
            .context("cannot start HTTP")?;
        Ok(Self {
            sender,
            driver: Some(driver),
            sent,
        })
    }

    /// Forgets the last request's stamp: the next byte written is the next request's first.
    pub(super) fn arm(&self) {
        self.sent.store(0, Ordering::Relaxed);
    }

    /// When the first byte since [`arm`](Self::arm) was taken by the kernel.
    pub(super) fn sent(&self) -> Option<u64> {
        Some(self.sent.load(Ordering::Relaxed)).filter(|&sent| sent > 0)
    }

    /// Whether another request can be sent.
    pub(super) async fn is_ready(&mut self) -> bool {
        let Self { sender, driver, .. } = self;
        drive(driver, sender.ready()).await.is_ok()
    }

    /// Sends a request; the response's head.
    pub(super) async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> hyper::Result<hyper::Response<hyper::body::Incoming>> {
        let response = self.sender.send_request(request);
        drive(&mut self.driver, response).await
    }

    /// Resolves `work`, which waits for this connection, while the connection makes progress.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        drive(&mut self.driver, work).await
    }
}

async fn drive<T>(driver: &mut Option<Driver>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // How the connection ended reaches `work` too: as the end of its body or as its error.
        if driver
            .as_mut()
            .is_some_and(|driver| Pin::new(driver).poll(context).is_ready())
        {
            *driver = None;
        }
        work.as_mut().poll(context)
    })
    .await
}

/// A socket that stamps the first byte written.
#[derive(Debug)]
struct Stamped {
    socket: TcpStream,
    clock: Clock,
    sent: Arc<AtomicU64>,
}

impl Stamped {
    fn stamp(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) && self.sent.load(Ordering::Relaxed) == 0 {
            self.sent.store(self.clock.now(), Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.stamp(written)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.stamp(written)
    }
    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
