//! Ours: `weir-net` over TCP, one frontend node and a link to every worker node.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use weir_net::{Anchor, CallContext, Node, NodeConfig, Peer, Sender, Ticket};

use super::{
    Shape,
    arm::{FrontendEnd, Inbound, Outbound, PlaneArm, WorkerNode, Written},
    worker::Starter,
};

const START: &str = "start";

/// The arm `weir`.
#[derive(Debug)]
pub(super) struct Weir;

impl PlaneArm for Weir {
    type Ticket = String;
    type Frontend = Frontend;
    type Worker = Worker;
}

/// The frontend's node and its links, in the order of the workers' cards.
#[derive(Debug, Clone)]
pub(super) struct Frontend {
    node: Node,
    workers: Arc<[Peer]>,
}

fn config() -> NodeConfig {
    NodeConfig {
        window_records: Shape::WINDOW,
        ..NodeConfig::default()
    }
}

impl FrontendEnd for Frontend {
    type Ticket = String;
    type Inbound = Anchor;

    async fn bind(_shape: &Shape, workers: &[String]) -> Result<Self> {
        let node = Node::bind(config()).await?;
        let mut peers = Vec::with_capacity(workers.len());
        for card in workers {
            let addr: SocketAddr = card
                .parse()
                .with_context(|| format!("not an address: {card:?}"))?;
            peers.push(node.connect(addr).await?);
        }
        Ok(Self {
            node,
            workers: peers.into(),
        })
    }

    fn card(&self) -> Result<String> {
        Ok(self.node.addr().to_string())
    }

    async fn settle(&self) -> Result<()> {
        for worker in self.workers.iter() {
            worker.wait_for_handler(START).await?;
        }
        Ok(())
    }

    fn mint(&self, worker: usize) -> Result<(Anchor, String)> {
        let mut anchor = self.node.anchor();
        let peer = self.workers.get(worker).context("no such worker")?;
        let ticket = to_hex(&anchor.mint(peer)?.to_bytes());
        Ok((anchor, ticket))
    }

    async fn request(&self, worker: usize, body: Bytes) -> Result<()> {
        Ok(self
            .workers
            .get(worker)
            .context("no such worker")?
            .cast(START, body)?)
    }
}

impl Inbound for Anchor {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(Self::next(self).await?)
    }
}

/// One worker node.
#[derive(Debug, Clone)]
pub(super) struct Worker(Node);

impl WorkerNode for Worker {
    type Ticket = String;
    type Outbound = Sender;

    async fn bind(_shape: &Shape, starter: Starter) -> Result<Self> {
        let node = Node::bind(config()).await?;
        let worker = Self(node.clone());
        node.handle(START, move |context: CallContext| {
            starter.start(worker.clone(), &context.body);
            std::future::ready(Ok(Bytes::new()))
        });
        Ok(Self(node))
    }

    fn card(&self) -> Result<String> {
        Ok(self.0.addr().to_string())
    }

    fn meet(&self, _frontend: &str) -> Result<()> {
        Ok(())
    }

    async fn open(&self, ticket: String) -> Result<Sender> {
        Ok(self.0.open(&Ticket::from_bytes(&from_hex(&ticket)?)?)?)
    }

    fn written(&self) -> Option<Written> {
        let metrics = self.0.metrics();
        Some(Written {
            records: metrics.records_out,
            writes: metrics.writes,
        })
    }
}

impl Outbound for Sender {
    async fn send(&mut self, record: &[u8]) -> Result<()> {
        Ok(Self::send(self, record).await?)
    }

    fn finish(self) -> Result<()> {
        drop(Self::finish(self));
        Ok(())
    }
}

/// A ticket as text: as a JSON array of numbers it would cost both sides more than the stream's start itself.
fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    anyhow::ensure!(rest.is_empty(), "a ticket of {} digits", text.len());
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|value| u8::try_from(value).ok())
    };
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect::<Option<_>>()
        .context("a ticket that is not hexadecimal")
}
