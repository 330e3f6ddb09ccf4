//! A sink that records what an engine does with it, and a consumer's side to control it.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Poll, Waker},
};

use tokio::{
    sync::Notify,
    time::{Duration, Instant},
};
use weir_engine::{
    Demand, Emitted, Engine, EngineError, FinishReason, Request, Sampling, TokenEvent, TokenSink, Usage,
};

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Finished(FinishReason, Usage),
    Failed(String),
    Dropped,
}

#[derive(Debug)]
struct State {
    ids: Vec<u32>,
    bytes: Vec<u8>,
    at: Vec<Duration>,
    credit: usize,
    demand: Demand,
    flushed: usize,
    flush_asked: bool,
    wakers: Vec<Waker>,
    flush_wakers: VecDeque<Waker>,
    end: Option<End>,
}

/// The consumer's side of a recorded stream.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    start: Instant,
}

impl Recorder {
    /// A sink with credit for `credit` tokens, and its record.
    pub(crate) fn with_credit(credit: usize) -> (Box<dyn TokenSink>, Self) {
        let state = State {
            ids: Vec::new(),
            bytes: Vec::new(),
            at: Vec::new(),
            credit,
            demand: Demand::More,
            flushed: usize::MAX,
            flush_asked: false,
            wakers: Vec::new(),
            flush_wakers: VecDeque::new(),
            end: None,
        };
        let recorder = Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(Notify::new()),
            start: Instant::now(),
        };
        (Box::new(Sink(recorder.clone())), recorder)
    }

    pub(crate) fn new() -> (Box<dyn TokenSink>, Self) {
        Self::with_credit(usize::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.state().ids.clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.state().bytes.clone()).expect("whole characters")
    }

    /// When each token came, after this recorder was made.
    pub(crate) fn times(&self) -> Vec<Duration> {
        self.state().at.clone()
    }

    pub(crate) fn ended(&self) -> Option<End> {
        self.state().end.clone()
    }

    pub(crate) fn flush_asked(&self) -> bool {
        self.state().flush_asked
    }

    pub(crate) fn grant(&self, tokens: usize) {
        self.state().credit += tokens;
        self.wake();
    }

    pub(crate) fn set_demand(&self, demand: Demand) {
        self.state().demand = demand;
        self.wake();
    }

    /// Lets flushes resolve once no more than `tokens` tokens have been pushed.
    pub(crate) fn hold_flush(&self) {
        self.state().flushed = 0;
    }

    pub(crate) fn release_flush(&self) {
        self.state().flushed = usize::MAX;
        let wakers: Vec<Waker> = self.state().flush_wakers.drain(..).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wake(&self) {
        let wakers: Vec<Waker> = self.state().wakers.drain(..).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until `holds` is true of this stream.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) async fn end(&self) -> End {
        self.until(|recorder| recorder.ended().is_some()).await;
        self.ended().expect("it ended")
    }

    pub(crate) async fn tokens(&self, count: usize) {
        self.until(|recorder| recorder.ids().len() >= count).await;
    }

    fn record_end(&self, end: End) {
        self.state().end.get_or_insert(end);
        self.changed.notify_waiters();
    }
}

struct Sink(Recorder);

impl TokenSink for Sink {
    fn emit(&mut self, event: TokenEvent<'_>) -> Emitted {
        let mut state = self.0.state();
        if state.demand == Demand::Cancelled {
            return Emitted::Gone;
        }
        if state.credit == 0 {
            return Emitted::Full;
        }
        state.credit -= 1;
        state.ids.push(event.id);
        state.bytes.extend_from_slice(event.bytes);
        state.at.push(self.0.start.elapsed());
        drop(state);
        self.0.changed.notify_waiters();
        Emitted::Taken
    }

    fn demand(&self) -> Demand {
        self.0.state().demand
    }

    fn wake_on_change(&mut self, waker: &Waker) {
        self.0.state().wakers = vec![waker.clone()];
    }

    fn flush(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let recorder = self.0.clone();
        recorder.state().flush_asked = true;
        recorder.changed.notify_waiters();
        Box::pin(poll_fn(move |cx| {
            let mut state = recorder.state();
            if state.flushed >= state.ids.len() && state.flushed > 0 {
                return Poll::Ready(());
            }
            state.flush_wakers.push_back(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn finish(self: Box<Self>, reason: FinishReason, usage: Usage) {
        self.0.record_end(End::Finished(reason, usage));
    }

    fn fail(self: Box<Self>, error: EngineError) {
        self.0.record_end(End::Failed(error.message));
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.0.record_end(End::Dropped);
    }
}

/// A request for `model` with a prompt of `prompt` tokens.
pub(crate) fn request(model: &str, prompt: u32, max_tokens: Option<u32>) -> Request {
    Request {
        id: "test".to_owned(),
        model: model.to_owned(),
        prompt: (0..prompt).collect(),
        max_tokens,
        min_tokens: 0,
        ignore_eos: false,
        stop_token_ids: Vec::new(),
        sampling: Sampling {
            seed: Some(1),
            ..Sampling::default()
        },
        choice: 0,
        attempt: 0,
        script: None,
        fault: None,
    }
}

/// The end of a stream of `completion` tokens after a prompt of `prompt`.
pub(crate) fn finished(reason: FinishReason, prompt: u32, completion: u32) -> End {
    End::Finished(
        reason,
        Usage {
            prompt_tokens: prompt,
            cached_tokens: 0,
            completion_tokens: completion,
        },
    )
}

/// Submits a request with credit for `credit` tokens.
pub(crate) fn submit(engine: &impl Engine, request: Request, credit: usize) -> Recorder {
    let (sink, recorder) = Recorder::with_credit(credit);
    engine.submit(request, sink).expect("the engine takes it");
    recorder
}

/// Runs one request on an engine of its own, to its end.
pub(crate) async fn played(engine: impl Engine, request: Request) -> (End, Recorder) {
    let recorder = submit(&engine, request, usize::MAX);
    (recorder.end().await, recorder)
}
