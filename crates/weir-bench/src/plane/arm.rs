//! What a plane must supply to be measured, and the names of those that do.
//!
//! The harness owns the clocks, the start request's body, the payloads and the pace. An arm owns how a ticket is
//! minted, how the start request and the records travel, and how many records shared a write.

use std::str::FromStr;

use anyhow::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Shape, worker::Starter};

/// A plane under measurement: two processes' ends of it.
pub(super) trait PlaneArm: Send + Sync + 'static {
    /// What lets a worker open a stream; travels inside the start request.
    type Ticket: Serialize + DeserializeOwned + Send + 'static;
    /// The frontend process's end.
    type Frontend: FrontendEnd<Ticket = Self::Ticket>;
    /// One node of the worker process.
    type Worker: WorkerNode<Ticket = Self::Ticket>;
}

/// The consuming process: one node, peers with all worker nodes.
pub(super) trait FrontendEnd: Clone + Send + Sync + 'static {
    type Ticket;
    type Inbound: Inbound;
    /// Starts the node and meets the workers, whose cards come in order.
    fn bind(shape: &Shape, workers: &[String]) -> impl Future<Output = Result<Self>> + Send;
    /// What a worker needs to know of this node.
    fn card(&self) -> Result<String>;
    /// Resolves when a start request can reach every worker.
    fn settle(&self) -> impl Future<Output = Result<()>> + Send;
    /// A stream to come from `worker`, and its ticket.
    fn mint(&self, worker: usize) -> Result<(Self::Inbound, Self::Ticket)>;
    /// Sends a start request; resolves when the plane has taken it.
    fn request(&self, worker: usize, body: Bytes) -> impl Future<Output = Result<()>> + Send;
}

/// The receiving end of one stream.
pub(super) trait Inbound: Send + 'static {
    /// The next record; nothing after a clean end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>>> + Send;
}

/// One producing node.
pub(super) trait WorkerNode: Clone + Send + Sync + 'static {
    type Ticket;
    type Outbound: Outbound;
    /// Starts the node; start requests go to `starter`.
    fn bind(shape: &Shape, starter: Starter) -> impl Future<Output = Result<Self>> + Send;
    /// What the frontend needs to know of this node.
    fn card(&self) -> Result<String>;
    /// Meets the frontend.
    fn meet(&self, frontend: &str) -> Result<()>;
    /// Opens the stream that `ticket` names.
    fn open(&self, ticket: Self::Ticket) -> impl Future<Output = Result<Self::Outbound>> + Send;
    /// Records and writes so far, if the plane counts them.
    fn written(&self) -> Option<Written>;
}

/// The producing end of one stream.
pub(super) trait Outbound: Send + 'static {
    /// Sends one record, waiting for credit.
    fn send(&mut self, record: &[u8]) -> impl Future<Output = Result<()>> + Send;
    /// Ends the stream cleanly.
    fn finish(self) -> Result<()>;
}

/// Records and the writes that carried them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) records: u64,
    pub(super) writes: u64,
}

impl std::iter::Sum for Written {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            records: sum.records + part.records,
            writes: sum.writes + part.writes,
        })
    }
}

/// The planes that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Ours over TCP; also spelled `weir/tcp`.
    Weir,
    /// A bare loop that stages, writes, reads, frames and wakes.
    Floor,
    /// The published velo crate, 0.21.0; needs the cargo feature `peers`.
    Velo,
}

impl Arm {
    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Floor => "floor",
            Self::Velo => "velo",
        }
    }
}

/// No arm of this build has that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownArm(String);

impl std::fmt::Display for UnknownArm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == "velo" {
            return write!(f, "this build has no arm velo: build with `--features peers`");
        }
        write!(
            f,
            "no arm is named {:?}; there are weir (or weir/tcp), floor, velo",
            self.0
        )
    }
}

impl std::error::Error for UnknownArm {}

impl FromStr for Arm {
    type Err = UnknownArm;
    fn from_str(name: &str) -> Result<Self, UnknownArm> {
        match name {
            "weir" | "weir/tcp" => Ok(Self::Weir),
            "floor" => Ok(Self::Floor),
            "velo" if cfg!(feature = "peers") => Ok(Self::Velo),
            _ => Err(UnknownArm(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_and_weir_tcp_are_one_arm() {
        assert_eq!("weir".parse(), Ok(Arm::Weir));
        assert_eq!("weir/tcp".parse(), Ok(Arm::Weir));
    }

    #[test]
    fn an_arm_that_this_build_lacks_says_what_to_do() {
        let error = "quic".parse::<Arm>().unwrap_err().to_string();
        assert!(error.contains("quic") && error.contains("floor"), "{error}");
        if !cfg!(feature = "peers") {
            let error = "velo".parse::<Arm>().unwrap_err().to_string();
            assert!(error.contains("--features peers"), "{error}");
        }
    }
}
