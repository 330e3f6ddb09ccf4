//! A handle to the link to one peer, and the futures of calls.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use weir_proto::{CALL_BYTES_IN_FLIGHT, CALLS_IN_FLIGHT, CallFailure, MAX_CALL, wire::ReplyStatus};

use crate::{CallError, CallOptions, NodeId, link::Link};

/// The link to one peer. Clones share it; the link lives until it breaks or the node closes.
#[derive(Debug, Clone)]
pub struct Peer {
    pub(crate) link: Arc<Link>,
}

/// State of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It carries streams and calls.
    Up,
    /// It is gone for good; connect again for a new one.
    Gone,
}

impl Peer {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// The peer's id.
    pub fn id(&self) -> NodeId {
        self.link.peer.node
    }

    /// The remote address of the link's connection.
    pub fn addr(&self) -> SocketAddr {
        self.link.remote
    }

    /// State of the link now.
    pub fn health(&self) -> Health {
        if self.link.is_gone() {
            Health::Gone
        } else {
            Health::Up
        }
    }

    /// Resolves when the link is gone; says why.
    pub async fn gone(&self) -> String {
        self.link.wait_gone().await
    }

    /// Calls handler `name` of the peer and waits for its reply. Dropping the future cancels the call.
    ///
    /// # Errors
    /// [`CallError`] tells whether the call may have run.
    pub async fn call(&self, name: &str, body: Bytes, options: CallOptions) -> Result<Bytes, CallError> {
        let deadline_ms = u32::try_from(options.deadline.as_millis()).unwrap_or(u32::MAX);
        let id = self.start(name, deadline_ms, body, false)?;
        let call = Call {
            link: &self.link,
            id,
            over: false,
        };
        let Ok(reply) = tokio::time::timeout(options.deadline, call).await else {
            return Err(CallError::Deadline(options.deadline));
        };
        match reply.map_err(|failure| call_error(failure, 0))? {
            (ReplyStatus::Ok, body) => Ok(body),
            (ReplyStatus::NoHandler, _) => Err(CallError::NoHandler(name.to_owned())),
            (ReplyStatus::Failed, message) => {
                Err(CallError::Failed(String::from_utf8_lossy(&message).into_owned()))
            }
        }
    }

    /// Sends `body` to handler `name` of the peer; no reply.
    ///
    /// # Errors
    /// [`CallError::NotSent`] if the link is gone, [`CallError::Busy`], [`CallError::TooLarge`].
    pub fn cast(&self, name: &str, body: Bytes) -> Result<(), CallError> {
        self.start(name, 0, body, true).map(|_| ())
    }

    /// Resolves when the peer has a handler of that name; costs nothing when that is known.
    ///
    /// # Errors
    /// [`CallError::NotSent`] when the link ends first.
    pub async fn wait_for_handler(&self, name: &str) -> Result<(), CallError> {
        if self.link.wait_for_handler(name).await {
            Ok(())
        } else {
            Err(CallError::NotSent)
        }
    }

    fn start(&self, name: &str, deadline_ms: u32, body: Bytes, cast: bool) -> Result<u64, CallError> {
        let size = body.len();
        let started = self
            .link
            .stage(|outbox| outbox.call(name, deadline_ms, body, cast));
        started.map_err(|failure| call_error(failure, size))
    }
}

fn call_error(failure: CallFailure, size: usize) -> CallError {
    match failure {
        CallFailure::NotSent => CallError::NotSent,
        CallFailure::Unknown => CallError::Unknown,
        CallFailure::Busy => CallError::Busy {
            calls: CALLS_IN_FLIGHT,
            bytes: CALL_BYTES_IN_FLIGHT,
        },
        CallFailure::TooLarge => CallError::TooLarge {
            size,
            limit: MAX_CALL,
        },
    }
}

struct Call<'a> {
    link: &'a Arc<Link>,
    id: u64,
    over: bool,
}

impl Future for Call<'_> {
    type Output = Result<(ReplyStatus, Bytes), CallFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.link.outbox.lock().reply_to(self.id, || cx.waker().clone());
        let reply = match reply {
            Ok(None) => return Poll::Pending,
            Ok(Some(reply)) => Ok(reply),
            Err(failure) => Err(failure),
        };
        self.over = true;
        Poll::Ready(reply)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.link.stage(|outbox| outbox.abandon_call(self.id));
        }
    }
}
