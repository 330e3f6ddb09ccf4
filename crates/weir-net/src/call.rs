//! Unary calls: options, context, the handler trait, and serving.

use std::{
    collections::HashMap,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use tokio::task::AbortHandle;
use weir_proto::{CallRequest, wire::ReplyStatus};

use crate::{Peer, link::Link, sync::Mutex};

/// Requests up to this size may be answered by the link's reader itself.
const INLINE: usize = 16 * 1024;

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub struct CallOptions {
    /// From the call to its reply. Default 30 s.
    pub deadline: Duration,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
        }
    }
}

/// What a handler is given.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallContext {
    /// Who calls.
    pub peer: Peer,
    /// The request, at most 16 MiB.
    pub body: Bytes,
}

/// Answers calls. Implemented for `Fn(CallContext) -> impl Future<Output = Result<Bytes, String>>`; the future is
/// dropped when the caller cancels or its link ends. An `Err` reaches the caller as [`crate::CallError::Failed`].
///
/// The first poll of a request up to 16 KiB runs on the link's reader, so that an answer that waits for nothing costs
/// no task: a handler that computes for longer than about 100 us must yield or use a blocking thread first.
pub trait Handler: Send + Sync + 'static {
    /// Answers one call. A cast's answer is discarded.
    fn call(&self, context: CallContext) -> impl Future<Output = Result<Bytes, String>> + Send + 'static;
}

impl<F, R> Handler for F
where
    F: Fn(CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Bytes, String>> + Send + 'static,
{
    fn call(&self, context: CallContext) -> impl Future<Output = Result<Bytes, String>> + Send + 'static {
        self(context)
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;
type Serve = Arc<dyn Fn(CallContext) -> Answer + Send + Sync>;

/// A node's handlers by name.
#[derive(Default)]
pub(crate) struct Handlers(Mutex<HashMap<String, Serve>>);

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Handlers {
    pub(crate) fn insert(&self, name: &str, handler: impl Handler) {
        let handler = Arc::new(handler);
        let serve: Serve = Arc::new(move |context| {
            let handler = handler.clone();
            // Nothing of the handler runs before the first poll, where a panic is caught.
            Box::pin(async move { handler.call(context).await })
        });
        self.0.lock().insert(name.to_owned(), serve);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    fn find(&self, name: &str) -> Option<Serve> {
        self.0.lock().get(name).cloned()
    }
}

/// Owes the peer one reply, whatever becomes of the handler: a handler that panics answers with a failure.
struct Owed {
    link: Arc<Link>,
    id: u64,
    cast: bool,
}

impl Owed {
    fn pay(&self, answer: Result<Bytes, String>) {
        let (status, body) = match answer {
            _ if self.cast => (ReplyStatus::Ok, Bytes::new()),
            Ok(body) => (ReplyStatus::Ok, body),
            Err(message) => (ReplyStatus::Failed, message.into()),
        };
        self.link.stage(|outbox| outbox.reply(self.id, status, body));
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let failed = Bytes::from_static(b"the handler ended without an answer");
        self.link
            .stage(|outbox| outbox.reply(self.id, ReplyStatus::Failed, failed));
    }
}

/// Starts serving a call. A small one whose handler does not wait is answered at once; `None` then, and if there is
/// no handler of that name. Otherwise a task serves it.
pub(crate) fn serve(link: &Arc<Link>, request: CallRequest) -> Option<AbortHandle> {
    let CallRequest {
        id, cast, name, body, ..
    } = request;
    let Some(serve) = link.node.handlers.find(&name) else {
        link.stage(|outbox| outbox.reply(id, ReplyStatus::NoHandler, Bytes::new()));
        return None;
    };
    let owed = Owed {
        link: link.clone(),
        id,
        cast,
    };
    let small = body.len() <= INLINE;
    let mut answer = serve(CallContext {
        peer: Peer::new(link.clone()),
        body,
    });
    if small {
        let mut cx = Context::from_waker(Waker::noop());
        match std::panic::catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(answer)) => {
                owed.pay(answer);
                return None;
            }
            // Its message is on stderr already; `owed` answers with a failure.
            Err(_panic) => return None,
        }
    }
    let task = tokio::spawn(async move { owed.pay(answer.await) });
    Some(task.abort_handle())
}
