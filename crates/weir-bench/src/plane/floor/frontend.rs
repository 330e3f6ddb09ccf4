//! The consuming end: a fixed table of mailboxes, one reader a connection.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpStream, tcp::OwnedReadHalf},
};

use super::{
    super::{
        Shape,
        arm::{FrontendEnd, Inbound},
    },
    frame::{self, Kind},
    outbox::{Outbox, lock},
};

const READ: usize = 64 * 1024;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Ending {
    #[default]
    Open,
    Finished,
    Lost,
}

#[derive(Debug, Default)]
struct Mail {
    items: VecDeque<Bytes>,
    ending: Ending,
}

#[derive(Debug, Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    waker: AtomicWaker,
}

impl Mailbox {
    /// Whether the consumer must be woken.
    fn deliver(&self, item: Bytes) -> bool {
        let mut mail = lock(&self.mail);
        mail.items.push_back(item);
        mail.items.len() == 1
    }

    fn end(&self, ending: Ending) {
        lock(&self.mail).ending = ending;
        self.waker.wake();
    }
}

/// All connections and the mailboxes of all streams.
#[derive(Debug, Clone)]
pub(in super::super) struct Frontend {
    workers: Arc<[Arc<Outbox>]>,
    mailboxes: Arc<[Mailbox]>,
    minted: Arc<AtomicU32>,
}

impl FrontendEnd for Frontend {
    type Ticket = u32;
    type Inbound = Stream;

    async fn bind(shape: &Shape, workers: &[String]) -> Result<Self> {
        let mailboxes: Arc<[Mailbox]> = (0..shape.streams).map(|_| Mailbox::default()).collect();
        let mut outboxes = Vec::with_capacity(workers.len());
        for card in workers {
            let connection = TcpStream::connect(card)
                .await
                .with_context(|| format!("cannot reach {card}"))?;
            connection.set_nodelay(true)?;
            let (reader, writer) = connection.into_split();
            let outbox = Arc::new(Outbox::new());
            outboxes.push(Arc::clone(&outbox));
            tokio::spawn(async move { outbox.write(writer).await });
            tokio::spawn(read(reader, Arc::clone(&mailboxes)));
        }
        Ok(Self {
            workers: outboxes.into(),
            mailboxes,
            minted: Arc::default(),
        })
    }

    fn card(&self) -> Result<String> {
        Ok(String::new())
    }

    async fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn mint(&self, worker: usize) -> Result<(Stream, u32)> {
        let slot = self.minted.fetch_add(1, Ordering::Relaxed);
        let outbox = Arc::clone(self.workers.get(worker).context("no such worker")?);
        let mailboxes = Arc::clone(&self.mailboxes);
        if mailboxes.len() <= slot as usize {
            bail!("all {} slots are in use", mailboxes.len());
        }
        Ok((
            Stream {
                slot,
                mailboxes,
                outbox,
                items: VecDeque::new(),
                taken: 0,
            },
            slot,
        ))
    }

    async fn request(&self, worker: usize, body: Bytes) -> Result<()> {
        self.workers
            .get(worker)
            .context("no such worker")?
            .push(Kind::Start, 0, &body);
        Ok(())
    }
}

/// Delivers what comes until the connection breaks; then every open stream is lost, whichever worker it is of.
async fn read(mut connection: OwnedReadHalf, mailboxes: Arc<[Mailbox]>) {
    let mut buffer = BytesMut::with_capacity(READ);
    let mut woken = Vec::new();
    loop {
        buffer.reserve(READ);
        let open = matches!(connection.read_buf(&mut buffer).await, Ok(1..));
        if !open || deliver(&mut buffer, &mailboxes, &mut woken).is_err() {
            mailboxes.iter().for_each(|mailbox| mailbox.end(Ending::Lost));
            return;
        }
        for slot in woken.drain(..) {
            mailboxes.get(slot).inspect(|mailbox| mailbox.waker.wake());
        }
    }
}

fn deliver(buffer: &mut BytesMut, mailboxes: &[Mailbox], woken: &mut Vec<usize>) -> Result<()> {
    while let Some(frame) = frame::take(buffer)? {
        let slot = frame.slot as usize;
        let mailbox = mailboxes.get(slot).context("a slot outside the table")?;
        match frame.kind {
            Kind::Record if mailbox.deliver(frame.body) => woken.push(slot),
            Kind::Record => {}
            Kind::End => mailbox.end(Ending::Finished),
            Kind::Start | Kind::Grant => bail!("a frame that only a frontend sends"),
        }
    }
    Ok(())
}

/// The receiving end of one stream.
#[derive(Debug)]
pub(in super::super) struct Stream {
    slot: u32,
    mailboxes: Arc<[Mailbox]>,
    outbox: Arc<Outbox>,
    items: VecDeque<Bytes>,
    taken: u32,
}

impl Stream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let Some(mailbox) = self.mailboxes.get(self.slot as usize) else {
            return Poll::Ready(Ok(None));
        };
        for registered in [false, true] {
            if self.items.is_empty() {
                let mut mail = lock(&mailbox.mail);
                std::mem::swap(&mut self.items, &mut mail.items);
                match mail.ending {
                    Ending::Finished if self.items.is_empty() => return Poll::Ready(Ok(None)),
                    Ending::Lost if self.items.is_empty() => {
                        return Poll::Ready(Err(anyhow::anyhow!("a connection to a worker broke")));
                    }
                    _ => {}
                }
            }
            if let Some(item) = self.items.pop_front() {
                self.taken += 1;
                if self.taken.is_multiple_of(Shape::WINDOW / 2) {
                    self.outbox.grant(self.slot, self.taken + Shape::WINDOW);
                }
                return Poll::Ready(Ok(Some(item)));
            }
            if !registered {
                mailbox.waker.register(context.waker());
            }
        }
        Poll::Pending
    }
}

impl Inbound for Stream {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}
