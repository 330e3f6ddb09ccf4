//! Continuous batching: several requests share every pass through the model.
//!
//! A pass takes one row of each sequence that is decoding and a chunk of the prompts that are not done. A request waits
//! until its whole context fits the memory for keys and values, and is refused when it never could. The sequence of a
//! finished request is kept while memory lasts, so that the next turn of a chat computes only what is new.
//! Invariant: what a request gets does not depend on what else runs.

use std::collections::VecDeque;

use crate::arch::Arch;
use crate::model::Model;
use crate::sample::{Sampling, SamplingError, sample};
use crate::stage::{Row, StageError};

/// Prompt rows in one pass beside the decoding rows: what bounds how long a long prompt holds up the others.
const PREFILL_ROWS: usize = 64;

/// Bounds of a [`Batcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for keys and values of all sequences.
    pub memory: usize,
    /// Requests running at once.
    pub running: usize,
    /// Requests waiting.
    pub waiting: usize,
}

impl Limits {
    /// Requests running and waiting at most.
    #[must_use]
    pub fn open(&self) -> usize {
        self.running.saturating_add(self.waiting)
    }
}

/// What is asked of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The prompt's ids, at least one.
    pub prompt: Vec<u32>,
    /// Tokens to make at most.
    pub max_tokens: usize,
    /// Tokens before an id may end the answer.
    pub min_tokens: usize,
    /// How to choose them.
    pub sampling: Sampling,
    /// Ids that end the answer; empty to go on to `max_tokens`.
    pub ends: Vec<u32>,
}

/// Why a request was not taken.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The prompt is empty or an id does not exist.
    #[error("the prompt is not usable: {0}")]
    Prompt(String),
    /// Prompt and answer exceed the model's context.
    #[error("{prompt} prompt tokens and {max_tokens} to make exceed the model's context of {context} tokens")]
    Context {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens to make.
        max_tokens: usize,
        /// The model's context.
        context: usize,
    },
    /// The request alone takes more memory than there is.
    #[error("a context of {tokens} tokens takes {need} MiB, this model was given {have} MiB for contexts")]
    Memory {
        /// Tokens of prompt and answer.
        tokens: usize,
        /// MiB they take.
        need: usize,
        /// MiB there are.
        have: usize,
    },
    /// As many requests run and wait as may.
    #[error("{0} requests are running or waiting already; try again later")]
    Busy(usize),
    /// A sampling parameter is out of bounds.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model gave one of the ids that end.
    Stop,
    /// `max_tokens` were made.
    Length,
}

/// What a pass did for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A token was made. Ids that end an answer are not given out.
    Token {
        /// The request.
        request: u64,
        /// The id.
        id: u32,
    },
    /// The answer is complete.
    Ended {
        /// The request.
        request: u64,
        /// Why.
        end: End,
        /// Prompt tokens that were not computed because an earlier sequence had them.
        reused: usize,
    },
    /// The model failed the request; its sequence is gone.
    Failed {
        /// The request.
        request: u64,
        /// What the model said.
        fault: StageError,
    },
}

#[derive(Debug)]
struct Running {
    id: u64,
    sequence: u64,
    request: Request,
    answer: Vec<u32>,
    /// Tokens whose keys and values are stored.
    stored: usize,
    reused: usize,
    context: usize,
    bytes: usize,
    paused: bool,
}

impl Running {
    fn token(&self, position: usize) -> Option<u32> {
        let prompt = self.request.prompt.len();
        self.request
            .prompt
            .get(position)
            .or_else(|| self.answer.get(position.checked_sub(prompt)?))
            .copied()
    }

    fn len(&self) -> usize {
        self.request.prompt.len() + self.answer.len()
    }
}

/// A finished sequence that may serve again.
#[derive(Debug)]
struct Kept {
    sequence: u64,
    ids: Vec<u32>,
    context: usize,
    bytes: usize,
}

/// Runs requests on a model.
#[derive(Debug)]
pub struct Batcher {
    model: Model,
    limits: Limits,
    waiting: VecDeque<(u64, Request)>,
    running: Vec<Running>,
    /// Oldest first.
    kept: VecDeque<Kept>,
    next: u64,
    logits: Vec<f32>,
}

impl Batcher {
    /// A batcher with nothing to do.
    #[must_use]
    pub fn new(model: Model, limits: Limits) -> Self {
        let (waiting, running, kept) = (VecDeque::new(), Vec::new(), VecDeque::new());
        Self {
            model,
            limits,
            waiting,
            running,
            kept,
            next: 0,
            logits: Vec::new(),
        }
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether a pass would do anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether a pass would compute anything: something waits or runs that is not paused.
    #[must_use]
    pub fn can_step(&self) -> bool {
        self.running.iter().any(|run| !run.paused) || self.can_admit()
    }

    /// Makes a running request sit out, or go on. Its memory stays.
    pub fn pause(&mut self, request: u64, paused: bool) {
        if let Some(run) = self.running.iter_mut().find(|run| run.id == request) {
            run.paused = paused;
        }
    }

    /// Requests running and waiting.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Bytes of keys and values in use by running requests, and kept from finished ones.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (
            self.running.iter().map(|run| run.bytes).sum(),
            self.kept.iter().map(|kept| kept.bytes).sum(),
        )
    }

    /// Takes a request and gives it a number.
    ///
    /// # Errors
    /// [`Refusal`]; the request was not taken.
    pub fn submit(&mut self, request: Request) -> Result<u64, Refusal> {
        check(self.model.arch(), &self.limits, &request)?;
        let open = self.running.len() + self.waiting.len();
        if open >= self.limits.open() {
            return Err(Refusal::Busy(open));
        }
        self.next += 1;
        self.waiting.push_back((self.next, request));
        Ok(self.next)
    }

    /// Forgets a request and frees its memory at once. A request that is not known is no fault.
    pub fn cancel(&mut self, request: u64) {
        self.waiting.retain(|(id, _)| *id != request);
        if let Some(at) = self.running.iter().position(|run| run.id == request) {
            let run = self.running.remove(at);
            self.model.close(run.sequence);
        }
    }

    /// One pass through the model. Events are appended in the order of the requests.
    pub fn step(&mut self, events: &mut Vec<Event>) {
        self.admit(events);
        let (mut rows, mut ids, mut wanted, mut owners) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut prefill = PREFILL_ROWS;
        for (index, run) in self.running.iter_mut().enumerate() {
            let left = if run.paused { 0 } else { run.len() - run.stored };
            let take = if left == 1 { 1 } else { left.min(prefill) };
            prefill -= if left == 1 { 0 } else { take };
            for position in run.stored..run.stored + take {
                rows.push(Row {
                    sequence: run.sequence,
                    position,
                });
                ids.extend(run.token(position));
            }
            run.stored += take;
            if take == left && take > 0 {
                wanted.push(rows.len() - 1);
                owners.push(index);
            }
        }
        if rows.is_empty() {
            return;
        }
        if let Err(fault) = self.model.step(&rows, &ids, &wanted, &mut self.logits) {
            self.fail(&fault, events);
            return;
        }
        let vocabulary = self.model.arch().vocabulary;
        let mut ended = Vec::new();
        for (index, logits) in owners.into_iter().zip(self.logits.chunks_exact_mut(vocabulary)) {
            let run = &mut self.running[index];
            if let Some(end) = advance(run, logits, events) {
                ended.push((index, end));
            }
        }
        for (index, end) in ended.into_iter().rev() {
            let run = self.running.remove(index);
            events.push(Event::Ended {
                request: run.id,
                end,
                reused: run.reused,
            });
            self.keep(run);
        }
    }

    /// The model refused a pass, which only a fault of this module can cause: every running request ends.
    fn fail(&mut self, fault: &StageError, events: &mut Vec<Event>) {
        for run in self.running.drain(..) {
            self.model.close(run.sequence);
            events.push(Event::Failed {
                request: run.id,
                fault: fault.clone(),
            });
        }
    }

    /// Starts waiting requests in order, while there is room.
    fn admit(&mut self, events: &mut Vec<Event>) {
        while self.can_admit() {
            let Some((id, request)) = self.waiting.pop_front() else {
                return;
            };
            let in_use = self.memory().0;
            match self.start(id, request, in_use) {
                Ok(run) => self.running.push(run),
                Err(fault) => events.push(Event::Failed { request: id, fault }),
            }
        }
    }

    /// Whether the first of those that wait fits now.
    fn can_admit(&self) -> bool {
        let fits = |request: &Request| {
            let bytes = self.model.sequence_bytes(context_of(request));
            self.memory().0 + bytes <= self.limits.memory
        };
        self.running.len() < self.limits.running
            && self.waiting.front().is_some_and(|(_, request)| fits(request))
    }

    fn start(&mut self, id: u64, request: Request, in_use: usize) -> Result<Running, StageError> {
        let context = context_of(&request);
        let found = self.reusable(&request.prompt);
        let reuse = found.map(|(at, len)| (self.kept.remove(at), len));
        let (sequence, stored, context) = match reuse {
            Some((Some(kept), len)) => (kept.sequence, len, context.max(kept.context)),
            _ => (id, 0, context),
        };
        // A kept sequence may have more room than asked for; give that back by starting anew when it does not fit.
        let fits = in_use + self.model.sequence_bytes(context) <= self.limits.memory;
        let (stored, context) = if fits {
            (stored, context)
        } else {
            (0, context_of(&request))
        };
        if !fits {
            self.model.close(sequence);
        }
        let bytes = self.model.sequence_bytes(context);
        self.make_room(in_use + bytes);
        if stored > 0 {
            self.model.grow(sequence, context)?;
        } else {
            self.model.close(sequence);
            self.model.open(sequence, context)?;
        }
        Ok(Running {
            id,
            sequence,
            request,
            answer: Vec::new(),
            stored,
            reused: stored,
            context,
            bytes,
            paused: false,
        })
    }

    /// The kept sequence with the most tokens in common with a prompt, taken back to those. The last token of a prompt is
    /// always computed: its logits are needed.
    fn reusable(&mut self, prompt: &[u32]) -> Option<(usize, usize)> {
        let common = |kept: &Kept| {
            kept.ids
                .iter()
                .zip(&prompt[..prompt.len() - 1])
                .take_while(|(a, b)| a == b)
                .count()
        };
        let lengths = self.kept.iter().map(common).enumerate();
        let mut best: Vec<(usize, usize)> = lengths
            .filter(|(_, len)| *len > 0)
            .map(|(at, len)| (len, at))
            .collect();
        best.sort_unstable();
        let usable = best
            .into_iter()
            .rev()
            .find(|(len, at)| self.model.truncate(self.kept[*at].sequence, *len));
        usable.map(|(len, at)| (at, len))
    }

    /// Drops kept sequences, the oldest first, until `bytes` fit.
    fn make_room(&mut self, bytes: usize) {
        let mut kept: usize = self.kept.iter().map(|kept| kept.bytes).sum();
        while bytes + kept > self.limits.memory {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            kept -= oldest.bytes;
            self.model.close(oldest.sequence);
        }
    }

    fn keep(&mut self, run: Running) {
        let mut ids = run.request.prompt;
        ids.extend(run.answer);
        ids.truncate(run.stored);
        self.kept.push_back(Kept {
            sequence: run.sequence,
            ids,
            context: run.context,
            bytes: run.bytes,
        });
        while self.kept.len() > self.limits.running {
            if let Some(oldest) = self.kept.pop_front() {
                self.model.close(oldest.sequence);
            }
        }
    }
}

/// Whether a request could ever run.
///
/// # Errors
/// [`Refusal`], with the numbers.
pub fn check(arch: &Arch, limits: &Limits, request: &Request) -> Result<(), Refusal> {
    request.sampling.validate()?;
    if request.prompt.is_empty() {
        return Err(Refusal::Prompt("it has no tokens".to_owned()));
    }
    if let Some(id) = request.prompt.iter().find(|id| **id as usize >= arch.vocabulary) {
        return Err(Refusal::Prompt(format!("token id {id} does not exist")));
    }
    let tokens = context_of(request);
    if tokens > arch.context {
        let (prompt, max_tokens) = (request.prompt.len(), request.max_tokens);
        return Err(Refusal::Context {
            prompt,
            max_tokens,
            context: arch.context,
        });
    }
    let bytes = crate::cache::bytes(arch, 0..arch.layers, tokens);
    if bytes > limits.memory {
        return Err(Refusal::Memory {
            tokens,
            need: bytes >> 20,
            have: limits.memory >> 20,
        });
    }
    Ok(())
}

fn context_of(request: &Request) -> usize {
    request.prompt.len().saturating_add(request.max_tokens)
}

/// Samples a request's next token; says when that ends it.
fn advance(run: &mut Running, logits: &mut [f32], events: &mut Vec<Event>) -> Option<End> {
    if run.answer.len() >= run.request.max_tokens {
        return Some(End::Length);
    }
    if run.answer.len() < run.request.min_tokens {
        for end in &run.request.ends {
            if let Some(logit) = logits.get_mut(*end as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    let id = sample(
        logits,
        &run.request.sampling,
        &run.request.prompt,
        &run.answer,
        run.answer.len(),
    );
    if run.request.ends.contains(&id) {
        return Some(End::Stop);
    }
    events.push(Event::Token { request: run.id, id });
    run.answer.push(id);
    (run.answer.len() >= run.request.max_tokens).then_some(End::Length)
}
