//! A run from its first connection to its summary.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    clock::Clock,
    config::LoadConfig,
    connection::Connection,
    output::Output,
    record::Record,
    slot::{Loop, Slot},
    summary::{Span, State, Summary},
};
use crate::{
    process::{allowed_cores, cpu_time},
    progress,
};

/// Connections opened at a time before the phase: a burst of all of them measures the server's backlog.
const DIALS: usize = 64;
/// Beyond its own deadline a request's record is given this long.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the load; ends early, with records and files written, when `interrupted` resolves.
///
/// # Errors
/// The configuration cannot be used, or the output directory cannot be created or the summary not be written.
/// Failed requests are no error: they are in the summary.
pub async fn run(config: &LoadConfig, interrupted: impl Future<Output = ()>) -> Result<Summary> {
    let target = config.target()?;
    let clock = Clock::start();
    let mut output = Output::create(config, clock)?;
    let shared = Arc::new(Loop {
        config: config.clone(),
        target,
        clock,
        next: AtomicU64::new(0),
    });
    let mut interrupted = std::pin::pin!(interrupted);
    let connections = tokio::select! {
        connections = connect(&shared) => Some(connections),
        () = &mut interrupted => None,
    };
    let (cores, cpu, start) = (allowed_cores()?.len(), cpu_time(), clock.now());
    let (state, records) = match connections {
        None => (
            State::Aborted("interrupted before the first request".to_owned()),
            Vec::new(),
        ),
        Some(connections) => {
            let open = connections.iter().flatten().count();
            output.log(&format!("{open} of {} connections open", config.concurrency));
            let (stop, records) = launch(&shared, connections);
            let bar = progress::bar(config.requests, "requests");
            Collector {
                output: &mut output,
                bar,
                stop,
            }
            .collect(records, config, interrupted)
            .await
        }
    };
    let span = Span {
        wall_origin_ns: clock.wall_ns,
        start,
        end: clock.now(),
        cpu_s: cpu_time().saturating_sub(cpu).as_secs_f64(),
        cores,
    };
    let state = match output.broken() {
        Some(why) if state == State::Complete => State::Degraded(why.to_owned()),
        _ => state,
    };
    output.log(&format!(
        "ended: {state:?}, {} of {} records",
        records.len(),
        config.requests
    ));
    let summary = Summary::new(config, state, &records, span);
    output
        .finish(&summary)
        .context("the run is over but its summary is not written")?;
    Ok(summary)
}

/// One connection a slot, where that succeeds in time; a slot without one tries again with its first request.
async fn connect(shared: &Arc<Loop>) -> Vec<Option<Connection>> {
    let permits = Arc::new(Semaphore::new(DIALS));
    let mut dials = JoinSet::new();
    for _ in 0..shared.config.concurrency {
        let (shared, permits) = (Arc::clone(shared), Arc::clone(&permits));
        dials.spawn(async move {
            let _permit = permits.acquire().await.ok()?;
            let open = Connection::open(&shared.target.authority, shared.clock);
            timeout(shared.config.request_timeout.min(GRACE), open)
                .await
                .ok()?
                .ok()
        });
    }
    dials.join_all().await
}

/// Starts all slots.
fn launch(
    shared: &Arc<Loop>,
    connections: Vec<Option<Connection>>,
) -> (watch::Sender<bool>, mpsc::Receiver<Record>) {
    let (stop, stopped) = watch::channel(false);
    let (sender, records) = mpsc::channel(1_024);
    for (number, connection) in connections.into_iter().enumerate() {
        let slot = Slot {
            number,
            shared: Arc::clone(shared),
            connection,
            records: sender.clone(),
            stop: stopped.clone(),
        };
        tokio::spawn(slot.run());
    }
    (stop, records)
}

/// Takes records as they come. Dropping `stop` ends slots that are left.
struct Collector<'a> {
    output: &'a mut Output,
    bar: ProgressBar,
    stop: watch::Sender<bool>,
}

impl Collector<'_> {
    async fn collect(
        mut self,
        mut records: mpsc::Receiver<Record>,
        config: &LoadConfig,
        mut interrupted: impl Future<Output = ()> + Unpin,
    ) -> (State, Vec<Record>) {
        let mut taken: Vec<Record> = Vec::new();
        let mut patience = config.request_timeout + GRACE;
        let mut ended = None;
        loop {
            let next = tokio::select! {
                next = timeout(patience, records.recv()) => next,
                () = &mut interrupted, if ended.is_none() => {
                    ended = Some(State::Aborted("interrupted".to_owned()));
                    self.output.log("interrupted");
                    patience = GRACE;
                    // No receiver is left when all slots have ended by themselves.
                    let _ = self.stop.send(true);
                    continue;
                }
            };
            match next {
                Ok(Some(record)) => self.take(record, &mut taken, records.is_empty()),
                Ok(None) => break,
                Err(_) => {
                    ended.get_or_insert(State::Degraded(format!("no request ended within {patience:?}")));
                    break;
                }
            }
        }
        self.bar.finish_and_clear();
        let missing = config.requests.saturating_sub(taken.len() as u64);
        let state = match ended {
            Some(State::Aborted(_)) if missing == 0 && !taken.iter().any(is_cancelled) => State::Complete,
            Some(state) => state,
            None if missing > 0 => State::Degraded(format!("{missing} records are missing")),
            None => State::Complete,
        };
        (state, taken)
    }

    fn take(&mut self, record: Record, taken: &mut Vec<Record>, idle: bool) {
        self.output.record(&record);
        if let Some(complaint) = record.complaint() {
            self.output
                .log(&format!("{} failed: {complaint}", record.request_id));
        }
        if idle {
            self.output.flush();
        }
        self.bar.inc(1);
        taken.push(record);
    }
}

fn is_cancelled(record: &Record) -> bool {
    record.failure == Some(super::Failure::Cancelled)
}
