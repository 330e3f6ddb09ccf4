//! What lies between an engine's handle and its one task: arrivals, gauges, and the wake that both need.
//!
//! Invariant: a request is counted as waiting or running from its acceptance until the task says that it ended, and
//! no more than `limit` are counted at once.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
};

use tokio::{sync::Notify, task::JoinHandle};

use crate::{EngineStats, ModelCard, Refusal};

/// What an engine's handle holds; its task is aborted when it is dropped.
pub(crate) struct Front<T> {
    pub(crate) card: ModelCard,
    pub(crate) intake: Arc<Intake<T>>,
    task: JoinHandle<()>,
}

impl<T: Send + 'static> Front<T> {
    /// Spawns an engine's task on the current tokio runtime.
    pub(crate) fn start<F>(card: ModelCard, limit: u32, task: impl FnOnce(Arc<Intake<T>>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let intake = Intake::new(limit);
        let task = tokio::spawn(task(Arc::clone(&intake)));
        Self { card, intake, task }
    }
}

impl<T> std::fmt::Debug for Front<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("card", &self.card)
            .field("stats", &self.intake.stats())
            .finish()
    }
}

impl<T> Drop for Front<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Shared by the handle, the task and every sink's waker.
pub(crate) struct Intake<T> {
    state: Mutex<State<T>>,
    limit: u64,
    wake: Notify,
}

struct State<T> {
    arrivals: Vec<T>,
    /// Keys of the wakers that were woken since the task last looked; a waker is woken once for each time it is
    /// registered, so there are no more than sinks.
    touched: Vec<u64>,
    stats: EngineStats,
}

/// What a task did since it last reported.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Requests that went from waiting to running.
    pub(crate) began: u64,
    /// Tokens pushed.
    pub(crate) tokens: u64,
    /// Requests that ended while waiting.
    pub(crate) ended_waiting: u64,
    /// Requests that ended while running.
    pub(crate) ended_running: u64,
}

impl<T> Intake<T> {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        let state = Mutex::new(State {
            arrivals: Vec::new(),
            touched: Vec::new(),
            stats: EngineStats::default(),
        });
        Arc::new(Self {
            state,
            limit: limit.into(),
            wake: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn accept(&self, arrival: T) -> Result<(), Refusal> {
        {
            let mut state = self.state();
            if state.stats.running + state.stats.waiting >= self.limit {
                return Err(Refusal::Busy(format!("all {} places are taken", self.limit)));
            }
            state.stats.waiting += 1;
            state.stats.requests += 1;
            state.arrivals.push(arrival);
        }
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) fn stats(&self) -> EngineStats {
        self.state().stats
    }

    /// What arrived since the last call; still counted as waiting.
    pub(crate) fn arrivals(&self) -> Vec<T> {
        std::mem::take(&mut self.state().arrivals)
    }

    pub(crate) fn report(&self, progress: Progress) {
        let stats = &mut self.state().stats;
        stats.waiting -= progress.began + progress.ended_waiting;
        stats.running = stats.running + progress.began - progress.ended_running;
        stats.tokens += progress.tokens;
    }

    /// Resolves when something arrived or a sink changed since the last call.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Keys of the sinks that changed since the last call.
    pub(crate) fn take_touched(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().touched)
    }
}

impl<T: Send + 'static> Intake<T> {
    /// A waker to register with sinks; [`take_touched`](Self::take_touched) tells `key` once it was woken.
    pub(crate) fn waker(self: &Arc<Self>, key: u64) -> Waker {
        Waker::from(Arc::new(Touch {
            intake: Arc::clone(self),
            key,
        }))
    }
}

/// Wakes an engine's task on behalf of one sink, or of many under one key.
struct Touch<T> {
    intake: Arc<Intake<T>>,
    key: u64,
}

impl<T: Send + 'static> Wake for Touch<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.intake.state().touched.push(self.key);
        self.intake.wake.notify_one();
    }
}
