//! The producing end: one listener and one connection a node, credit in a fixed table.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
};

use anyhow::{Context as _, Result, bail};
use bytes::BytesMut;
use futures_util::task::AtomicWaker;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, tcp::OwnedReadHalf},
};

use super::{
    super::{
        Shape,
        arm::{Outbound, WorkerNode, Written},
        worker::Starter,
    },
    frame::{self, Kind},
    outbox::Outbox,
};

const READ: usize = 64 * 1024;

#[derive(Debug)]
struct Credit {
    limit: AtomicU32,
    waker: AtomicWaker,
}

/// One worker node.
#[derive(Debug, Clone)]
pub(in super::super) struct Worker {
    address: String,
    outbox: Arc<Outbox>,
    credits: Arc<[Credit]>,
}

impl WorkerNode for Worker {
    type Ticket = u32;
    type Outbound = Stream;

    async fn bind(shape: &Shape, starter: Starter) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot listen on 127.0.0.1")?;
        let credit = |_| Credit {
            limit: AtomicU32::new(Shape::WINDOW),
            waker: AtomicWaker::new(),
        };
        let worker = Self {
            address: listener.local_addr()?.to_string(),
            outbox: Arc::new(Outbox::new()),
            credits: (0..shape.streams).map(credit).collect(),
        };
        let node = worker.clone();
        tokio::spawn(async move {
            if let Ok((connection, _)) = listener.accept().await
                && connection.set_nodelay(true).is_ok()
            {
                let (reader, writer) = connection.into_split();
                let outbox = Arc::clone(&node.outbox);
                tokio::spawn(async move { outbox.write(writer).await });
                node.read(reader, starter).await;
            }
        });
        Ok(worker)
    }

    fn card(&self) -> Result<String> {
        Ok(self.address.clone())
    }

    fn meet(&self, _frontend: &str) -> Result<()> {
        Ok(())
    }

    async fn open(&self, slot: u32) -> Result<Stream> {
        if self.credits.len() <= slot as usize {
            bail!("slot {slot} is outside the table");
        }
        let (outbox, credits) = (Arc::clone(&self.outbox), Arc::clone(&self.credits));
        Ok(Stream {
            slot,
            sent: 0,
            outbox,
            credits,
        })
    }

    fn written(&self) -> Option<Written> {
        Some(self.outbox.written())
    }
}

impl Worker {
    async fn read(self, mut connection: OwnedReadHalf, starter: Starter) {
        let mut buffer = BytesMut::with_capacity(READ);
        loop {
            buffer.reserve(READ);
            let open = matches!(connection.read_buf(&mut buffer).await, Ok(1..));
            if !open || self.take_all(&mut buffer, &starter).is_err() {
                return;
            }
        }
    }

    fn take_all(&self, buffer: &mut BytesMut, starter: &Starter) -> Result<()> {
        while let Some(frame) = frame::take(buffer)? {
            match frame.kind {
                Kind::Start => starter.start(self.clone(), &frame.body),
                Kind::Grant => {
                    let credit = self
                        .credits
                        .get(frame.slot as usize)
                        .context("a slot outside the table")?;
                    credit.limit.store(frame.number, Ordering::Release);
                    credit.waker.wake();
                }
                Kind::Record | Kind::End => bail!("a frame that only a worker sends"),
            }
        }
        Ok(())
    }
}

/// The producing end of one stream.
#[derive(Debug)]
pub(in super::super) struct Stream {
    slot: u32,
    sent: u32,
    outbox: Arc<Outbox>,
    credits: Arc<[Credit]>,
}

impl Outbound for Stream {
    async fn send(&mut self, record: &[u8]) -> Result<()> {
        let credit = self
            .credits
            .get(self.slot as usize)
            .context("a slot outside the table")?;
        std::future::poll_fn(|context| {
            for registered in [false, true] {
                if self.sent < credit.limit.load(Ordering::Acquire) {
                    return Poll::Ready(());
                }
                if !registered {
                    credit.waker.register(context.waker());
                }
            }
            Poll::Pending
        })
        .await;
        self.outbox.push(Kind::Record, self.slot, record);
        self.sent += 1;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.outbox.push(Kind::End, self.slot, &[]);
        Ok(())
    }
}
