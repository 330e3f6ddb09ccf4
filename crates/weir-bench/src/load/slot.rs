//! One slot of the closed loop: its connection, and one request after the other until none is left.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout_at},
};

use super::{
    clock::Clock,
    config::{LoadConfig, Target},
    connection::Connection,
    exchange::{self, Seen},
    record::{Failure, Record},
};

/// What all slots share.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) config: LoadConfig,
    pub(super) target: Target,
    pub(super) clock: Clock,
    pub(super) next: AtomicU64,
}

impl Loop {
    fn take_index(&self) -> Option<u64> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.config.requests).then_some(index)
    }
}

/// One slot; consumed by [`Slot::run`].
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) shared: Arc<Loop>,
    pub(super) connection: Option<Connection>,
    pub(super) records: mpsc::Sender<Record>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Slot {
    /// Runs until no request is left or the run is stopped.
    pub(super) async fn run(mut self) {
        while !*self.stop.borrow() {
            let Some(index) = self.shared.take_index() else {
                return;
            };
            let record = self.attempt(index).await;
            if self.records.send(record).await.is_err() {
                return;
            }
        }
    }

    async fn attempt(&mut self, index: u64) -> Record {
        let shared = Arc::clone(&self.shared);
        let mut record = Record {
            index,
            slot: self.number,
            request_id: format!("weir-load-{}-{index}", shared.config.seed),
            t_intended: shared.clock.now(),
            ..Record::default()
        };
        let deadline = Instant::now() + shared.config.request_timeout;
        let mut seen = Seen::default();
        self.connection.iter().for_each(Connection::arm);
        let cut = tokio::select! {
            biased;
            _ = self.stop.wait_for(|&stop| stop) => Some(Failure::Cancelled),
            ended = timeout_at(deadline, exchange(&shared, &mut self.connection, &mut record, &mut seen)) => {
                ended.is_err().then_some(Failure::Timeout)
            }
        };
        record.t_send = self.connection.as_ref().and_then(Connection::sent);
        record.t_done = shared.clock.now();
        exchange::settle(&mut record, seen, cut, shared.config.osl);
        if record
            .failure
            .is_some_and(|failure| failure != Failure::WrongTokenCount)
        {
            self.connection = None;
        }
        record
    }
}

/// Sends the request on the slot's connection, or on a new one if that has gone: a request that was written is never
/// sent again.
async fn exchange(shared: &Loop, connection: &mut Option<Connection>, record: &mut Record, seen: &mut Seen) {
    if let Some(open) = connection
        && !open.is_ready().await
    {
        *connection = None;
    }
    if connection.is_none() {
        let begin = shared.clock.now();
        match Connection::open(&shared.target.authority, shared.clock).await {
            Ok(opened) => *connection = Some(opened),
            Err(error) => seen.lost = Some(format!("{error:#}")),
        }
        record.connect_ns = Some(shared.clock.now() - begin);
    }
    let Some(connection) = connection else { return };
    match exchange::request(&shared.config, &shared.target, record) {
        Ok(request) => exchange::run(connection, request, shared.clock, record, seen).await,
        Err(error) => seen.lost = Some(format!("the request cannot be built: {error}")),
    }
}
