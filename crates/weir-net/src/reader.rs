//! The task that reads a link's lane.
//!
//! Each pass reads once, takes every whole frame, hands each stream its records under one lock, and wakes each
//! consumer once, after unlocking. It never waits for a consumer or for the writer.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::AsyncReadExt,
    net::tcp::OwnedReadHalf,
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use weir_proto::{
    Accept, Amount, CallRequest, Claim, Inbox, Liveness, LivenessVerdict, Mark, Outbox, Received, StreamFate,
    Time, Violation,
    wire::{ClaimToken, Record, Records, RefusedCode, SlotRef},
};

use crate::{
    counters::add,
    link::Link,
    slot_table::{Cell, SlotTable},
    sync::MutexGuard,
};

/// Read buffer; also what a shared record may pin four times over.
const READ: usize = 64 * 1024;
/// Serving tasks are swept for finished ones when there are this many.
const SWEEP: usize = 64;

struct Reader {
    link: Arc<Link>,
    inbox: Inbox,
    wake: Vec<Waker>,
    serving: HashMap<u64, AbortHandle>,
    sweep_at: usize,
}

/// Why the link ends.
enum Stop {
    Violation(Violation),
    Bye(String),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Reads until the link ends.
pub(crate) async fn run(link: Arc<Link>, mut half: OwnedReadHalf) {
    let mut reader = Reader {
        link: link.clone(),
        inbox: Inbox::default(),
        wake: Vec::new(),
        serving: HashMap::new(),
        sweep_at: SWEEP,
    };
    let mut buf = BytesMut::with_capacity(READ);
    let mut liveness = Liveness::new(link.node.config.peer_timeout, link.node.now());
    let reason = loop {
        match read(&link, &mut half, &mut buf, &mut liveness).await {
            Ok(0) => break "closed by the peer".to_owned(),
            Ok(bytes) => {
                let now = link.node.now();
                liveness.heard(now);
                add(&link.counters.bytes_in, bytes as u64);
                add(&link.counters.reads, 1);
                match reader.pass(&mut buf, now) {
                    Ok(()) => {}
                    Err(Stop::Bye(reason)) => break reason,
                    Err(Stop::Violation(violation)) => {
                        link.node.count_violation(violation);
                        link.accuse(violation.code(), violation.to_string()).await;
                        break format!("protocol violation: {violation}");
                    }
                }
            }
            Err(error) => break error.to_string(),
        }
    };
    for (_, task) in reader.serving.drain() {
        task.abort();
    }
    link.lose(&reason);
}

/// One read. Silence past the peer timeout, judged only after one more look at the socket, is an error.
async fn read(
    link: &Link,
    half: &mut OwnedReadHalf,
    buf: &mut BytesMut,
    liveness: &mut Liveness,
) -> io::Result<usize> {
    loop {
        let deadline = match liveness.judge(link.node.now()) {
            LivenessVerdict::Alive(deadline) => link.node.instant(deadline),
            LivenessVerdict::ReadFirst => Instant::now() + link.node.config.reply_linger,
            LivenessVerdict::Silent => {
                let timeout = link.node.config.peer_timeout;
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("silent for {timeout:?}"),
                ));
            }
        };
        buf.reserve(READ);
        if let Ok(read) = timeout_at(deadline, half.read_buf(buf)).await {
            return read;
        }
    }
}

/// At most one lock at a time: a slot's, or the outbox.
enum Held<'a> {
    None,
    Slot(u32, MutexGuard<'a, Cell>),
    Outbox(MutexGuard<'a, Outbox<Waker>>),
}

impl Reader {
    fn pass(&mut self, buf: &mut BytesMut, now: Time) -> Result<(), Stop> {
        let result = self.frames(buf, now);
        add(&self.link.counters.wakes, self.wake.len() as u64);
        self.wake.drain(..).for_each(Waker::wake);
        result
    }

    fn frames(&mut self, buf: &mut BytesMut, now: Time) -> Result<(), Stop> {
        let link = self.link.clone();
        let before = self.inbox.taken();
        let mut records = 0;
        while let Some(received) = self.inbox.next(buf)? {
            match received {
                Received::Batch(frame) => records += self.batch(&link, &frame, now)?,
                Received::Keepalive => {}
                Received::Ack(number) => {
                    if number > link.sent.load(Ordering::Acquire) {
                        return Err(Violation::AckUnsent(number).into());
                    }
                    link.acked.fetch_max(number, Ordering::AcqRel);
                }
                Received::Bye(code, message) => {
                    return Err(Stop::Bye(format!("the peer said bye ({code:#x}): {message}")));
                }
            }
        }
        let taken = self.inbox.taken();
        if taken > before {
            add(&link.counters.frames_in, taken - before);
            add(&link.counters.records_in, records);
            link.took(taken);
        }
        Ok(())
    }

    fn batch(&mut self, link: &Arc<Link>, frame: &Bytes, now: Time) -> Result<u64, Violation> {
        let table = &link.node.slots;
        let mut held = Held::None;
        let mut count = 0;
        for record in Records::new(frame) {
            count += 1;
            match record? {
                Record::Item(slot, body) => self.item(link, &mut held, slot, body, frame, true, now)?,
                Record::Part(slot, body) => self.item(link, &mut held, slot, body, frame, false, now)?,
                Record::Open(slot, token, item) => {
                    self.open(link, &mut held, slot, token, now)?;
                    if let Some(body) = item {
                        self.item(link, &mut held, slot, body, frame, true, now)?;
                    }
                }
                Record::End(slot, code, failure, message) => {
                    let cell = in_slot(table, &mut held, slot.index)?;
                    let (accept, event) = cell.slot.end(slot.generation, link.lane, code, failure, message);
                    table.settle(slot.index, cell, event);
                    self.accepted(link, accept);
                }
                other => self.control(link, &mut held, other)?,
            }
        }
        Ok(count)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the hot path's state, split further it would be copied about"
    )]
    #[inline]
    fn item<'a>(
        &mut self,
        link: &'a Link,
        held: &mut Held<'a>,
        slot: SlotRef,
        body: &[u8],
        frame: &Bytes,
        last: bool,
        now: Time,
    ) -> Result<(), Violation> {
        let cell = in_slot(&link.node.slots, held, slot.index)?;
        let accept = cell
            .slot
            .item(slot.generation, link.lane, body, frame, last, now)?;
        self.accepted(link, accept);
        Ok(())
    }

    #[inline]
    fn accepted(&mut self, link: &Link, accept: Accept<Waker>) {
        match accept {
            Accept::Taken(waker) => self.wake.extend(waker),
            Accept::Stale => add(&link.counters.stale_in, 1),
        }
    }

    fn open<'a>(
        &mut self,
        link: &'a Link,
        held: &mut Held<'a>,
        slot: SlotRef,
        token: ClaimToken,
        now: Time,
    ) -> Result<(), Violation> {
        let cell = in_slot(&link.node.slots, held, slot.index)?;
        match cell
            .slot
            .claim(slot.generation, token, link.peer.node, link.lane, now)
        {
            Claim::Claimed => link.mark(slot.index, Mark::Soon),
            Claim::Repeated => add(&link.counters.stale_in, 1),
            Claim::Refused(code) => {
                *held = Held::None;
                add(&link.counters.claims_refused, 1);
                link.stage(|outbox| outbox.refuse(slot, code))?;
            }
        }
        Ok(())
    }

    /// Records of the consumer's side, and calls.
    fn control<'a>(
        &mut self,
        link: &'a Arc<Link>,
        held: &mut Held<'a>,
        record: Record<'_>,
    ) -> Result<(), Violation> {
        let outbox = in_outbox(link, held);
        match record {
            Record::Grant(slot, records, bytes) => {
                add(&link.counters.grants_in, 1);
                self.wake.extend(outbox.grant(slot, Amount { records, bytes })?);
            }
            Record::Stop(slot) => self.wake.extend(outbox.stop(slot)),
            Record::Cancel(slot) => self.over(link, held, slot, StreamFate::Cancelled),
            Record::Closed(slot, taken) => self.over(link, held, slot, StreamFate::Closed(taken)),
            Record::Refused(slot, code) => self.refused(link, held, slot, code),
            Record::Call {
                id,
                cast,
                deadline_ms,
                len,
                name,
                bytes,
            } => {
                let head = CallRequest {
                    id,
                    cast,
                    deadline_ms,
                    name: name.to_owned(),
                    body: Bytes::new(),
                };
                let request = outbox.call_begins(head, len, bytes)?;
                self.serve(link, held, request);
            }
            Record::CallPart(id, bytes) => {
                let request = outbox.call_arrives(id, bytes)?;
                self.serve(link, held, request);
            }
            Record::Reply(id, status, len, bytes) => {
                self.wake.extend(outbox.reply_begins(id, status, len, bytes)?)
            }
            Record::ReplyPart(id, bytes) => self.wake.extend(outbox.reply_arrives(id, bytes)?),
            Record::CallCancel(id) => {
                *held = Held::None;
                if let Some(task) = self.serving.remove(&id) {
                    task.abort();
                }
                let cancelled = Bytes::from_static(b"cancelled");
                link.stage(|outbox| outbox.reply(id, weir_proto::wire::ReplyStatus::Failed, cancelled));
            }
            Record::Handlers(changes) => link.announced(changes)?,
            Record::Item(..) | Record::Part(..) | Record::Open(..) | Record::End(..) => {}
        }
        Ok(())
    }

    /// The consumer's half of a close. A cancelled stream is answered by the writer, which may have to be woken.
    fn over<'a>(&mut self, link: &'a Link, held: &mut Held<'a>, slot: SlotRef, fate: StreamFate) {
        *held = Held::None;
        self.wake.extend(link.stage(|outbox| outbox.over(slot, fate)));
    }

    fn refused<'a>(&mut self, link: &'a Link, held: &mut Held<'a>, slot: SlotRef, code: RefusedCode) {
        add(&link.counters.opens_refused, 1);
        self.over(link, held, slot, StreamFate::Refused(code));
    }

    fn serve<'a>(&mut self, link: &'a Arc<Link>, held: &mut Held<'a>, request: Option<CallRequest>) {
        let Some(request) = request else { return };
        *held = Held::None;
        let id = request.id;
        if let Some(task) = crate::call::serve(link, request) {
            self.serving.insert(id, task);
        }
        if self.serving.len() >= self.sweep_at {
            self.serving.retain(|_, task| !task.is_finished());
            self.sweep_at = SWEEP.max(self.serving.len() * 2);
        }
    }
}

/// The slot's cell, locked; other locks are let go first.
#[inline]
fn in_slot<'h, 'a>(
    table: &'a SlotTable,
    held: &'h mut Held<'a>,
    index: u32,
) -> Result<&'h mut Cell, Violation> {
    if !matches!(held, Held::Slot(at, _) if *at == index) {
        *held = Held::None;
        *held = Held::Slot(
            index,
            table.get(index).ok_or(Violation::SlotOutOfTable(index))?.lock(),
        );
    }
    match held {
        Held::Slot(_, cell) => Ok(cell),
        _ => Err(Violation::SlotOutOfTable(index)),
    }
}

/// The outbox, locked; other locks are let go first.
fn in_outbox<'h, 'a>(link: &'a Link, held: &'h mut Held<'a>) -> &'h mut Outbox<Waker> {
    if !matches!(held, Held::Outbox(_)) {
        *held = Held::None;
        *held = Held::Outbox(link.outbox.lock());
    }
    match held {
        Held::Outbox(outbox) => outbox,
        _ => unreachable!("set just above"),
    }
}
