//! The engine behind a worker: requests come from any thread, one thread runs the passes and pushes tokens into sinks.
//!
//! A stream whose sink is full holds its last token and sits out until its consumer took it; the others go on. A consumer
//! that went away frees its memory before the next pass. While there is nothing to do the thread sleeps.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;

use weir_engine::contract::{
    Demand, Emitted, Engine, EngineError, EngineStats, FinishReason, ModelCard, Refusal, Request, TokenEvent,
    TokenSink, Usage,
};

use crate::arch::Arch;
use crate::batch::{self, Batcher, End, Event, Limits};
use crate::model::Model;
use crate::sample::Sampling;
use crate::tokenizer::Tokenizer;

/// Tokens made when a request does not say how many.
const DEFAULT_MAX_TOKENS: usize = 256;

/// A model in this process as an [`Engine`].
#[derive(Debug)]
pub struct LocalEngine {
    card: ModelCard,
    arch: Arch,
    limits: Limits,
    ends: Vec<u32>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A request on its way to the thread. Dropping it frees its place, so the sink goes first.
struct Submitted {
    request: batch::Request,
    sink: Box<dyn TokenSink>,
    place: Place,
}

/// One of the open requests; dropped once its sink has ended.
struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Shared {
    inbox: Mutex<Vec<Submitted>>,
    changed: Condvar,
    woken: AtomicBool,
    stop: AtomicBool,
    /// Requests whose sink is still held.
    open: AtomicU64,
    /// Of those, how many wait in the batcher.
    waiting: AtomicU64,
    tokens: AtomicU64,
    requests: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

impl Shared {
    fn notify(&self) {
        self.woken.store(true, Ordering::SeqCst);
        // Taking the lock orders this after the sleeper's look at `woken`.
        drop(self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

/// Lets nothing more in once the thread has ended, even by a panic, and drops what it had not taken.
struct Closed(Arc<Shared>);

impl Drop for Closed {
    fn drop(&mut self) {
        let mut inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.stop.store(true, Ordering::SeqCst);
        let left = std::mem::take(&mut *inbox);
        drop(inbox);
        drop(left);
    }
}

impl LocalEngine {
    /// Starts the thread that runs the model. `card` says what is served.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        model: Model,
        tokenizer: Arc<Tokenizer>,
        limits: Limits,
        card: ModelCard,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            inbox: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            woken: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            open: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let (arch, ends) = (model.arch().clone(), tokenizer.ends().to_vec());
        let batcher = Batcher::new(model, limits);
        let mut driver = Driver {
            batcher,
            tokenizer,
            shared: Arc::clone(&shared),
            streams: HashMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("weir-model".to_owned())
            .spawn(move || {
                let _closed = Closed(Arc::clone(&driver.shared));
                driver.serve();
            })?;
        Ok(Self {
            card,
            arch,
            limits,
            ends,
            shared,
            thread: Some(thread),
        })
    }

    fn request(&self, request: &Request) -> batch::Request {
        let context = usize::try_from(self.card.context_length).unwrap_or(usize::MAX);
        let room = context.saturating_sub(request.prompt.len());
        let asked = request.max_tokens.and_then(|most| usize::try_from(most).ok());
        let ends = if request.ignore_eos {
            Vec::new()
        } else {
            self.ends.clone()
        };
        let wanted = &request.sampling;
        // Choices of one request differ by their seed, in a fixed way.
        let seed = wanted
            .seed
            .unwrap_or(0)
            .wrapping_add(u64::from(request.choice).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        batch::Request {
            prompt: request.prompt.clone(),
            max_tokens: asked.unwrap_or_else(|| DEFAULT_MAX_TOKENS.min(room).max(1)),
            min_tokens: usize::try_from(request.min_tokens).unwrap_or(usize::MAX),
            sampling: Sampling {
                temperature: wanted.temperature,
                top_k: usize::try_from(wanted.top_k).unwrap_or(0),
                top_p: wanted.top_p,
                min_p: wanted.min_p,
                repetition_penalty: 1.0,
                frequency_penalty: wanted.frequency_penalty,
                presence_penalty: wanted.presence_penalty,
                logit_bias: wanted.logit_bias.clone(),
                seed,
            },
            ends: ends
                .into_iter()
                .chain(request.stop_token_ids.iter().copied())
                .collect(),
        }
    }
}

impl Engine for LocalEngine {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn submit(&self, request: Request, sink: Box<dyn TokenSink>) -> Result<(), Refusal> {
        let request = self.request(&request);
        batch::check(&self.arch, &self.limits, &request)
            .map_err(|fault| Refusal::Invalid(fault.to_string()))?;
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        // Only submitting adds to it, and that under the lock.
        let open = self.shared.open.load(Ordering::SeqCst);
        if open >= self.limits.open() as u64 {
            return Err(Refusal::Busy(format!(
                "{open} requests are running or waiting already"
            )));
        }
        if self.shared.stop.load(Ordering::SeqCst) {
            return Err(Refusal::Draining);
        }
        self.shared.open.fetch_add(1, Ordering::SeqCst);
        let place = Place(Arc::clone(&self.shared));
        inbox.push(Submitted { request, sink, place });
        drop(inbox);
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.notify();
        Ok(())
    }

    fn stats(&self) -> EngineStats {
        let inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.shared.open.load(Ordering::SeqCst);
        let waiting = inbox.len() as u64 + self.shared.waiting.load(Ordering::Relaxed);
        drop(inbox);
        // Whatever is open and does not wait runs, so that both together never miss a request.
        let waiting = waiting.min(open);
        EngineStats {
            running: open - waiting,
            waiting,
            tokens: self.shared.tokens.load(Ordering::Relaxed),
            requests: self.shared.requests.load(Ordering::Relaxed),
        }
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.notify();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported by its hook.
            let _ = thread.join();
        }
    }
}

/// One request's way out.
struct Stream {
    sink: Box<dyn TokenSink>,
    usage: Usage,
    /// A token the sink had no room for.
    held: Option<u32>,
    /// Set once the model is done with it.
    ended: Option<FinishReason>,
    _place: Place,
}

/// The thread's state.
struct Driver {
    batcher: Batcher,
    tokenizer: Arc<Tokenizer>,
    shared: Arc<Shared>,
    streams: HashMap<u64, Stream>,
}

impl Driver {
    fn serve(&mut self) {
        let mut events = Vec::new();
        while !self.shared.stop.load(Ordering::SeqCst) {
            self.take_in();
            self.look_at_consumers();
            if !self.batcher.can_step() {
                self.sleep();
                continue;
            }
            self.batcher.step(&mut events);
            for event in events.drain(..) {
                self.deliver(&event);
            }
            self.publish();
        }
    }

    fn take_in(&mut self) {
        self.shared.woken.store(false, Ordering::SeqCst);
        let new = std::mem::take(&mut *self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for Submitted { request, sink, place } in new {
            let prompt_tokens = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
            match self.batcher.submit(request) {
                Ok(id) => {
                    let usage = Usage {
                        prompt_tokens,
                        ..Usage::default()
                    };
                    self.streams.insert(
                        id,
                        Stream {
                            sink,
                            usage,
                            held: None,
                            ended: None,
                            _place: place,
                        },
                    );
                }
                Err(fault) => {
                    sink.fail(EngineError {
                        message: fault.to_string(),
                    });
                    drop(place);
                }
            }
        }
        self.publish();
    }

    /// Asks every consumer what it wants; pushes held tokens again.
    fn look_at_consumers(&mut self) {
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            match stream.sink.demand() {
                Demand::Cancelled => self.forget(id),
                Demand::Stop => {
                    if let Some(stream) = self.forget_but_keep(id) {
                        stream.sink.finish(FinishReason::Stop, stream.usage);
                    }
                }
                Demand::More => {
                    if let Some(token) = stream.held.take() {
                        self.push(id, token);
                        self.finish_if_done(id);
                    }
                }
            }
        }
    }

    fn forget(&mut self, id: u64) {
        drop(self.forget_but_keep(id));
    }

    fn forget_but_keep(&mut self, id: u64) -> Option<Stream> {
        self.batcher.cancel(id);
        self.streams.remove(&id)
    }

    fn deliver(&mut self, event: &Event) {
        match event {
            Event::Token { request, id } => self.push(*request, *id),
            Event::Ended { request, end, reused } => {
                if let Some(stream) = self.streams.get_mut(request) {
                    stream.usage.cached_tokens = u32::try_from(*reused).unwrap_or(u32::MAX);
                    stream.ended = Some(match end {
                        End::Stop => FinishReason::Stop,
                        End::Length => FinishReason::Length,
                    });
                }
                self.finish_if_done(*request);
            }
            Event::Failed { request, fault } => {
                if let Some(stream) = self.streams.remove(request) {
                    stream.sink.fail(EngineError {
                        message: fault.to_string(),
                    });
                }
            }
        }
    }

    fn push(&mut self, id: u64, token: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let mut bytes = Vec::new();
        self.tokenizer.piece(token, false, &mut bytes);
        match stream.sink.emit(TokenEvent {
            id: token,
            bytes: &bytes,
        }) {
            Emitted::Taken => {
                stream.usage.completion_tokens += 1;
                self.shared.tokens.fetch_add(1, Ordering::Relaxed);
                self.batcher.pause(id, false);
            }
            Emitted::Full => {
                stream.held = Some(token);
                self.batcher.pause(id, true);
            }
            Emitted::Gone => self.forget(id),
        }
    }

    fn finish_if_done(&mut self, id: u64) {
        let done = self
            .streams
            .get(&id)
            .filter(|stream| stream.held.is_none())
            .and_then(|stream| stream.ended);
        if let (Some(reason), Some(stream)) = (done, done.and_then(|_| self.streams.remove(&id))) {
            stream.sink.finish(reason, stream.usage);
        }
    }

    /// Sleeps until a request comes, a consumer moves, or the engine stops.
    fn sleep(&mut self) {
        let waker = Waker::from(Arc::clone(&self.shared));
        for stream in self.streams.values_mut() {
            stream.sink.wake_on_change(&waker);
        }
        // A consumer may have moved before its waker was set.
        self.look_at_consumers();
        self.publish();
        if self.batcher.can_step() {
            return;
        }
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        while inbox.is_empty()
            && !self.shared.woken.load(Ordering::SeqCst)
            && !self.shared.stop.load(Ordering::SeqCst)
        {
            inbox = self
                .shared
                .changed
                .wait(inbox)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn publish(&self) {
        let (_, waiting) = self.batcher.load();
        self.shared.waiting.store(waiting as u64, Ordering::Relaxed);
    }
}
