//! Unary calls: options, context, the handler trait, and serving.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task::AbortHandle;
use weir_proto::{CallRequest, wire::ReplyStatus};

use crate::{Peer, link::Link, sync::Mutex};

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
        let serve: Serve = Arc::new(move |context| Box::pin(handler.call(context)));
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
}

impl Drop for Owed {
    fn drop(&mut self) {
        let failed = Bytes::from_static(b"the handler ended without an answer");
        self.link
            .stage(|outbox| outbox.reply(self.id, ReplyStatus::Failed, failed));
    }
}

/// Starts serving a call; `None` if there is no handler of that name.
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
    };
    let task = tokio::spawn(async move {
        let answer = serve(CallContext {
            peer: Peer::new(owed.link.clone()),
            body,
        })
        .await;
        let (status, body) = match answer {
            _ if cast => (ReplyStatus::Ok, Bytes::new()),
            Ok(body) => (ReplyStatus::Ok, body),
            Err(message) => (ReplyStatus::Failed, message.into()),
        };
        owed.link.stage(|outbox| outbox.reply(id, status, body));
    });
    Some(task.abort_handle())
}
