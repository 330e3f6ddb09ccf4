//! A client's socket with the three limits on how long it may do nothing.
//!
//! While no request is being answered it must send one: the first byte within the idle limit, the whole head within
//! the head limit (past either, the socket looks closed). While there is something to write it must read: a write
//! that stays pending past the stall limit fails. One timer per connection, made when something first has to wait and
//! moved only when it fires too early or too late, so a token that is written at once costs no timer. Invariant: any
//! byte that the client takes ends a stall.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};

use super::Connection;

/// How long a client may do nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Between two requests, and before the first.
    pub(crate) idle: Duration,
    /// From a request's first byte to the end of its head.
    pub(crate) head: Duration,
    /// Without taking a byte of what waits for it.
    pub(crate) stall: Duration,
}

/// The socket of one client.
#[derive(Debug)]
pub(crate) struct ClientIo {
    socket: TokioIo<TcpStream>,
    connection: Arc<Connection>,
    patience: Patience,
    timer: Option<Pin<Box<Sleep>>>,
    read_by: Option<Instant>,
    write_by: Option<Instant>,
    /// Bytes of a request that is not being answered yet have come.
    head_begun: bool,
    /// Requests of this connection when that was last looked at.
    requests: u64,
}

impl ClientIo {
    pub(crate) fn new(socket: TcpStream, connection: Arc<Connection>, patience: Patience) -> Self {
        Self {
            socket: TokioIo::new(socket),
            connection,
            patience,
            timer: None,
            read_by: None,
            write_by: None,
            head_begun: false,
            requests: 0,
        }
    }

    /// The bare socket, for tests that wait for it.
    #[cfg(test)]
    pub(crate) fn socket(&self) -> &TcpStream {
        self.socket.inner()
    }

    /// The bare socket.
    pub(crate) fn into_inner(self) -> TcpStream {
        self.socket.into_inner()
    }

    /// Forgets what was known of the head when a request has come in the meantime.
    fn note_requests(&mut self) {
        let requests = self.connection.requests();
        if requests != self.requests {
            self.requests = requests;
            self.head_begun = false;
            self.read_by = None;
        }
    }

    fn note_read(&mut self) {
        self.note_requests();
        if !self.head_begun && !self.connection.is_busy() {
            self.head_begun = true;
            self.read_by = None;
        }
    }

    /// Ready once the client has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.note_requests();
        if self.connection.is_busy() {
            return Poll::Pending;
        }
        let patience = if self.head_begun {
            self.patience.head
        } else {
            self.patience.idle
        };
        let by = *self.read_by.get_or_insert_with(|| Instant::now() + patience);
        self.poll_past(by, cx)
    }

    /// Turns a write that has been pending for too long into an error.
    fn limited<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_by = None;
            return written;
        }
        let by = *self
            .write_by
            .get_or_insert_with(|| Instant::now() + self.patience.stall);
        self.poll_past(by, cx).map(|()| {
            self.connection.note_stall();
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not read",
            ))
        })
    }

    fn poll_past(&mut self, by: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(by)));
        if timer.deadline() > by {
            timer.as_mut().reset(by);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= by {
                return Poll::Ready(());
            }
            timer.as_mut().reset(by);
        }
        Poll::Pending
    }
}

impl Read for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.note_read();
                Poll::Ready(read)
            }
            Poll::Pending => self.poll_silence(cx).map(Ok),
        }
    }
}

impl Write for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.limited(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.limited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
