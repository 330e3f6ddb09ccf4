//! Unary calls: options, context and the handler trait.

use std::{future::Future, time::Duration};

use bytes::Bytes;

use crate::Peer;

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
