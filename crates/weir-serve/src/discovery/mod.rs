//! How frontends find workers.
//!
//! A worker process registers itself; a frontend watches the set of registrations. Invariant: a registration says
//! where to dial, never that the worker is healthy; a worker is routable only over a live link.

use std::{future::Future, net::SocketAddr};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use weir_engine::ModelCard;

/// What a worker process says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Name of the process, unique in the fleet; the prefix of its workers' names (`NAME/0`, `NAME/1`, ...).
    pub name: String,
    /// Where its node listens.
    pub addr: SocketAddr,
    /// Process id on its host, for logs.
    pub pid: u32,
    /// Its workers (engines), by index.
    pub workers: Vec<ModelCard>,
}

/// A way for frontends to find workers.
pub trait Discovery: Send + Sync + 'static {
    /// Keeps a registration alive until the returned lease is dropped.
    type Lease: Send + 'static;

    /// Publishes `registration`.
    ///
    /// # Errors
    /// A line that names the place and what to do.
    fn register(
        &self,
        registration: &Registration,
    ) -> impl Future<Output = Result<Self::Lease, DiscoveryError>> + Send;

    /// The registrations that are published now, and every change.
    ///
    /// # Errors
    /// A line that names the place and what to do.
    fn watch(
        &self,
    ) -> impl Future<Output = Result<watch::Receiver<Vec<Registration>>, DiscoveryError>> + Send;
}

/// Discovery does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiscoveryError(pub String);
