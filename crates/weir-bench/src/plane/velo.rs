//! The published velo crate by its public API: one messenger over TCP per node, multiplexed, zero-RTT tickets.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use velo::{
    Handler, PeerInfo, Velo,
    streaming::{
        MuxConfig, StreamAnchor, StreamAnchorHandle, StreamFrame, StreamSender, control::StreamOpenTicket,
    },
    transports::tcp::TcpTransportBuilder,
};

use super::{
    Shape,
    arm::{FrontendEnd, Inbound, Outbound, PlaneArm, WorkerNode, Written},
    worker::Starter,
};

const START: &str = "start";

/// The arm `velo`.
#[derive(Debug)]
pub(super) struct VeloArm;

impl PlaneArm for VeloArm {
    type Ticket = Ticket;
    type Frontend = Frontend;
    type Worker = Worker;
}

/// What a producer needs to open a stream with no round trip.
#[derive(Serialize, Deserialize)]
pub(super) struct Ticket {
    handle: StreamAnchorHandle,
    ticket: StreamOpenTicket,
}

async fn node() -> Result<Velo> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let transport = TcpTransportBuilder::new().from_listener(listener)?.build()?;
    Velo::builder()
        .add_transport(Arc::new(transport))
        .mux_only()
        .messenger_mux(MuxConfig {
            initial_credit: Shape::WINDOW,
            ..MuxConfig::default()
        })?
        .build()
        .await
}

/// The frontend's node and what the workers told of themselves.
#[derive(Clone)]
pub(super) struct Frontend {
    node: Velo,
    workers: Arc<[PeerInfo]>,
}

impl FrontendEnd for Frontend {
    type Ticket = Ticket;
    type Inbound = StreamAnchor<Bytes>;

    async fn bind(_shape: &Shape, workers: &[String]) -> Result<Self> {
        let node = node().await?;
        let workers: Vec<PeerInfo> = workers
            .iter()
            .map(|card| serde_json::from_str(card))
            .collect::<Result<_, _>>()?;
        workers
            .iter()
            .try_for_each(|worker| node.register_peer(worker.clone()).map(drop))?;
        Ok(Self {
            node,
            workers: workers.into(),
        })
    }

    fn card(&self) -> Result<String> {
        Ok(serde_json::to_string(&self.node.peer_info())?)
    }

    async fn settle(&self) -> Result<()> {
        for worker in self.workers.iter() {
            self.node.wait_for_handler(worker.instance_id(), START).await?;
        }
        Ok(())
    }

    fn mint(&self, _worker: usize) -> Result<(StreamAnchor<Bytes>, Ticket)> {
        let anchor = self.node.create_anchor::<Bytes>();
        let handle = anchor.handle();
        let ticket = self.node.prebind_anchor(handle).context("no ticket")?;
        Ok((anchor, Ticket { handle, ticket }))
    }

    async fn request(&self, worker: usize, body: Bytes) -> Result<()> {
        let instance = self.workers.get(worker).context("no such worker")?.instance_id();
        self.node
            .am_send(START)?
            .raw_payload(body)
            .instance(instance)
            .send()
            .await
    }
}

impl Inbound for StreamAnchor<Bytes> {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        match self.next_bytes().await {
            Some(Ok(StreamFrame::Item(item))) => Ok(Some(item)),
            Some(Ok(StreamFrame::Finalized)) => Ok(None),
            Some(Ok(other)) => bail!("the stream ended as {other:?}"),
            Some(Err(error)) => Err(anyhow!("{error:?}")),
            None => bail!("the stream ended without an end"),
        }
    }
}

/// One worker node.
#[derive(Clone)]
pub(super) struct Worker(Velo);

impl WorkerNode for Worker {
    type Ticket = Ticket;
    type Outbound = StreamSender<Bytes>;

    async fn bind(_shape: &Shape, starter: Starter) -> Result<Self> {
        let node = node().await?;
        let weak = node.downgrade();
        let handler = Handler::am_handler_async(START, move |context: velo::Context| {
            let (weak, starter) = (weak.clone(), starter.clone());
            async move {
                starter.start(
                    Self(weak.upgrade().context("the node is gone")?),
                    &context.payload,
                );
                Ok(())
            }
        })
        .build();
        node.register_handler(handler)?;
        Ok(Self(node))
    }

    fn card(&self) -> Result<String> {
        Ok(serde_json::to_string(&self.0.peer_info())?)
    }

    fn meet(&self, frontend: &str) -> Result<()> {
        self.0.register_peer(serde_json::from_str(frontend)?)?;
        Ok(())
    }

    async fn open(&self, Ticket { handle, ticket }: Ticket) -> Result<StreamSender<Bytes>> {
        self.0
            .open_anchor_stream::<Bytes>(handle, ticket)
            .await
            .map_err(|error| anyhow!("{error:?}"))
    }

    fn written(&self) -> Option<Written> {
        None
    }
}

impl Outbound for StreamSender<Bytes> {
    async fn send(&mut self, record: &[u8]) -> Result<()> {
        self.send_bytes(record)
            .await
            .map_err(|error| anyhow!("{error:?}"))
    }

    fn finish(self) -> Result<()> {
        self.finalize().map_err(|error| anyhow!("{error:?}"))
    }
}
