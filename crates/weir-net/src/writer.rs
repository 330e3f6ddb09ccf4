//! The task that writes a link's lane.
//!
//! Once woken it yields once, so that everything else that is ready stages first, and only then takes the batches:
//! one write carries a whole pass. Grants and acks ride with whatever leaves, or leave on their own after the linger.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::tcp::OwnedWriteHalf,
    time::{Instant, Sleep},
};
use weir_proto::{
    Batch, Mark, Piece, Turn,
    wire::{FRAME_HEADER, FrameHeader, FrameKind},
};

use crate::{
    counters::add,
    link::Link,
    staging::{self, Due},
};

/// Bulk is written in pieces of at most this size, everything urgent before each.
const PIECE: usize = 64 * 1024;
/// An ack leaves within this time.
const ACK_WITHIN: Duration = Duration::from_millis(25);

#[derive(Debug, PartialEq, Eq)]
enum Cause {
    Work,
    Keepalive,
    Close,
}

struct Writer {
    link: Arc<Link>,
    half: OwnedWriteHalf,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    /// When what is marked leaves on its own, and the urgency that is known of.
    linger: Option<Instant>,
    lingering: Option<Mark>,
    /// When an ack leaves on its own.
    ack: Option<Instant>,
    keepalive: Instant,
    control: Batch,
    turn: Turn<Waker>,
    next_number: u64,
    acked: u64,
}

/// Writes until the link ends or closes.
pub(crate) async fn run(link: Arc<Link>, half: OwnedWriteHalf) {
    let first = Instant::now() + link.node.config.peer_timeout / 4;
    let mut writer = Writer {
        half,
        timer: Box::pin(tokio::time::sleep_until(first)),
        timer_at: first,
        linger: None,
        lingering: None,
        ack: None,
        keepalive: first,
        control: Batch::new(usize::MAX),
        turn: Turn::default(),
        next_number: 1,
        acked: 0,
        link,
    };
    if let Err(error) = writer.run().await {
        writer.link.lose(&format!("write failed: {error}"));
    }
}

impl Writer {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            let cause = poll_fn(|cx| self.poll_cause(cx)).await;
            if self.link.is_gone() {
                return Ok(());
            }
            match cause {
                Cause::Keepalive => self.half.write_all(&header(FrameKind::Keepalive, 0, 0)).await?,
                Cause::Work => {
                    tokio::task::yield_now().await;
                    self.write_turn().await?;
                }
                Cause::Close => return self.close().await,
            }
            self.keepalive = Instant::now() + self.link.node.config.peer_timeout / 4;
        }
    }

    /// Why to write now, or sleep until something is staged, a slot is dirty, or a timer fires.
    fn poll_cause(&mut self, cx: &mut Context<'_>) -> Poll<Cause> {
        let link = &self.link;
        let due = staging::look(&link.outbox, &link.dirty, &link.writer, cx.waker());
        if link.is_closing() || link.is_gone() {
            return Poll::Ready(Cause::Close);
        }
        if due == Due::Work {
            return Poll::Ready(Cause::Work);
        }
        if let Due::Replies(mark) = due
            && self.note(mark).is_ready()
        {
            return Poll::Ready(Cause::Work);
        }
        let ack = self.link.ack_due.load(Ordering::Acquire);
        if ack && self.ack.is_none() {
            self.ack = Some(Instant::now() + ACK_WITHIN);
        }
        let replies = [self.linger, self.ack].into_iter().flatten().min();
        let at = replies.map_or(self.keepalive, |at| at.min(self.keepalive));
        if at != self.timer_at {
            self.timer.as_mut().reset(at);
            self.timer_at = at;
        }
        std::task::ready!(self.timer.as_mut().poll(cx));
        if replies == Some(at) {
            Poll::Ready(Cause::Work)
        } else {
            Poll::Ready(Cause::Keepalive)
        }
    }

    /// Sets the moment by which marked slots must be visited; ready if that is now.
    fn note(&mut self, mark: Mark) -> Poll<()> {
        if Some(mark) <= self.lingering {
            return Poll::Pending;
        }
        self.lingering = Some(mark);
        let config = &self.link.node.config;
        let linger = match mark {
            Mark::Lazy => config.grant_linger,
            Mark::Soon => config.reply_linger,
            Mark::Now => Duration::ZERO,
        };
        if linger.is_zero() {
            return Poll::Ready(());
        }
        let by = Instant::now() + linger;
        self.linger = Some(self.linger.map_or(by, |known| known.min(by)));
        Poll::Pending
    }

    /// Takes everything that is due and writes it.
    async fn write_turn(&mut self) -> io::Result<()> {
        self.linger = None;
        self.lingering = None;
        self.ack = None;
        let ack = self.take_ack();
        self.render_control();
        self.link.outbox.lock().take(&mut self.turn);
        self.turn.wake.drain(..).for_each(Waker::wake);
        self.write_pieces(ack).await?;
        self.link.sent.store(self.next_number - 1, Ordering::Release);
        let mut wake = std::mem::take(&mut self.turn.wake);
        self.link.outbox.lock().turn_written(&mut wake);
        wake.drain(..).for_each(Waker::wake);
        self.turn.wake = wake;
        self.control.clear();
        self.turn.bulk.clear();
        Ok(())
    }

    /// Writes control, urgent and the first piece of bulk at once, then piece by piece, all urgent before each.
    async fn write_pieces(&mut self, ack: Option<[u8; FRAME_HEADER]>) -> io::Result<()> {
        let mut head: &[u8] = ack.as_ref().map_or(&[], |ack| ack.as_slice());
        loop {
            let number = &mut self.next_number;
            let control = self.control.piece(usize::MAX, number);
            let urgent = self.turn.urgent.piece(usize::MAX, number);
            let bulk = self.turn.bulk.piece(PIECE, number);
            // Published before the bytes are: the peer may ack them before this task runs again.
            self.link.sent.store(*number - 1, Ordering::Release);
            let parts = [
                (&self.control, &control),
                (&self.turn.urgent, &urgent),
                (&self.turn.bulk, &bulk),
            ];
            let (slices, bytes) = gather(head, &parts);
            if bytes > 0 {
                let records = if control.is_some() {
                    self.control.records()
                } else {
                    0
                };
                let staged = if urgent.is_some() {
                    self.turn.urgent.records()
                } else {
                    0
                };
                let counters = &self.link.counters;
                add(
                    &counters.writes,
                    u64::from(control.is_some() || urgent.is_some() || bulk.is_some()),
                );
                add(&counters.bytes_out, bytes as u64);
                add(&counters.records_out, records + staged);
                write_all(&mut self.half, slices).await?;
            }
            if bulk.is_none() {
                add(&self.link.counters.records_out, self.turn.bulk.records());
                self.turn.urgent.clear();
                return Ok(());
            }
            head = &[];
            self.turn.urgent.clear();
            if self.turn.bulk.has_more() {
                self.link.outbox.lock().take_urgent(&mut self.turn);
                self.turn.wake.drain(..).for_each(Waker::wake);
            }
        }
    }

    fn take_ack(&mut self) -> Option<[u8; FRAME_HEADER]> {
        self.link.ack_due.swap(false, Ordering::AcqRel);
        let taken = self.link.taken.load(Ordering::Acquire);
        if taken == self.acked {
            return None;
        }
        self.acked = taken;
        Some(header(FrameKind::Ack, 0, taken))
    }

    fn render_control(&mut self) {
        let (link, control) = (&self.link, &mut self.control);
        let now = link.node.now();
        let (mut visits, mut grants) = (0, 0);
        link.dirty.drain(|index| {
            let Some(cell) = link.node.slots.get(index) else {
                return;
            };
            let mut cell = cell.lock();
            let rendered = cell.slot.render(index, link.lane, control, now);
            visits += 1;
            grants += u64::from(rendered.granted);
            let event = weir_proto::ConsumerEvent {
                mark: None,
                freed: rendered.freed,
            };
            link.node.slots.settle(index, &mut cell, event);
        });
        add(&link.counters.dirty_visits, visits);
        add(&link.counters.grants_out, grants);
    }

    /// Says why and stops; what was staged goes out first, unless the peer broke the protocol.
    async fn close(&mut self) -> io::Result<()> {
        let (code, message) = match self.link.farewell() {
            Some(accusation) => accusation,
            None => {
                self.write_turn().await?;
                (0, "closing".to_owned())
            }
        };
        self.half.write_all(&bye(code, &message)).await?;
        self.half.shutdown().await?;
        self.link.said_bye();
        Ok(())
    }
}

/// A `Bye` frame.
fn bye(code: u16, message: &str) -> Vec<u8> {
    let mut cut = message.len().min(256);
    while !message.is_char_boundary(cut) {
        cut -= 1;
    }
    let message = message.as_bytes().get(..cut).unwrap_or_default();
    let mut frame = header(FrameKind::Bye, message.len() + 2, 0).to_vec();
    frame.extend_from_slice(&code.to_le_bytes());
    frame.extend_from_slice(message);
    frame
}

fn header(kind: FrameKind, payload: usize, number: u64) -> [u8; FRAME_HEADER] {
    FrameHeader {
        payload: u32::try_from(payload).unwrap_or(0),
        kind,
        number,
    }
    .encode()
}

fn gather<'a>(head: &'a [u8], parts: &[(&'a Batch, &Option<Piece>)]) -> (Vec<IoSlice<'a>>, usize) {
    let mut slices = Vec::with_capacity(4);
    let mut bytes = head.len();
    if !head.is_empty() {
        slices.push(IoSlice::new(head));
    }
    for (batch, piece) in parts {
        let Some(piece) = piece else { continue };
        bytes += piece.bytes;
        slices.extend(batch.slices(piece).map(IoSlice::new));
    }
    (slices, bytes)
}

async fn write_all(half: &mut OwnedWriteHalf, mut slices: Vec<IoSlice<'_>>) -> io::Result<()> {
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *half).poll_write_vectored(cx, rest)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}
