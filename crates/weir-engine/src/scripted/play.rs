//! One script that is being played.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::time::Instant;

use super::Script;
use crate::{
    Demand, Emitted, EngineError, Fault, FaultKind, FinishReason, ModelCard, Request, TokenEvent, TokenSink,
    Usage, admission::prompt_len, tokenizer::Tokenizer,
};

/// The fault that a request acts out: its own, on the first attempt only.
pub(super) fn fault_of(request: &Request) -> Option<Fault> {
    request.fault.clone().filter(|_| request.attempt == 0)
}

/// A request whose script is being played.
pub(super) struct Play {
    sink: Box<dyn TokenSink>,
    script: Script,
    fault: Option<Fault>,
    prompt: u32,
    made: u32,
    limit: u32,
    at_limit: FinishReason,
    state: State,
}

enum State {
    /// The next token is due at this time.
    Due(Instant),
    /// The next token is due and waits for credit.
    Stalled,
    /// The fault waits until the token before it has gone to the kernel.
    Flushing(FaultKind, Pin<Box<dyn Future<Output = ()> + Send>>),
    /// Nothing more will ever be sent.
    Hanging,
}

/// What became of a play.
pub(super) enum Next {
    /// Look again at this time, or when a sink's waker is woken.
    At(Instant),
    /// Look again when a sink's waker is woken.
    OnWake,
    /// It is over; call [`Play::end`].
    End(Ending),
}

/// How a play ends.
pub(super) enum Ending {
    Finish(FinishReason),
    Fail(EngineError),
    /// Nobody wants it any more.
    Drop,
}

impl Play {
    /// A play that begins now.
    pub(super) fn new(request: &Request, script: Script, sink: Box<dyn TokenSink>, card: &ModelCard) -> Self {
        let length = u32::try_from(script.steps.len()).unwrap_or(u32::MAX);
        let limit = request
            .max_tokens
            .unwrap_or(length)
            .min(card.room(request))
            .min(length);
        let at_limit = if limit < length {
            FinishReason::Length
        } else {
            FinishReason::Stop
        };
        let prompt = prompt_len(request);
        let fault = fault_of(request);
        let mut play = Self {
            sink,
            script,
            fault,
            prompt,
            made: 0,
            limit,
            at_limit,
            state: State::Hanging,
        };
        play.wait_for_next(Instant::now());
        play
    }

    /// Does what is due at `now`, and has `waker` woken at the next change. Adds the tokens it pushed to `tokens`.
    pub(super) fn step(&mut self, now: Instant, waker: &Waker, tokens: &mut u64) -> Next {
        self.sink.wake_on_change(waker);
        loop {
            match self.sink.demand() {
                Demand::Cancelled => return Next::End(Ending::Drop),
                Demand::Stop if !matches!(self.state, State::Hanging) => {
                    return Next::End(Ending::Finish(FinishReason::Stop));
                }
                _ => {}
            }
            match &mut self.state {
                State::Due(_) if self.made >= self.limit => return Next::End(Ending::Finish(self.at_limit)),
                State::Due(due) if *due > now => return Next::At(*due),
                State::Hanging => return Next::OnWake,
                State::Flushing(kind, flush) => {
                    if flush.as_mut().poll(&mut Context::from_waker(waker)) == Poll::Pending {
                        return Next::OnWake;
                    }
                    let kind = *kind;
                    if let Some(error) = self.act(kind) {
                        return Next::End(Ending::Fail(error));
                    }
                }
                State::Due(_) | State::Stalled => match self.push(now) {
                    Emitted::Taken => *tokens += 1,
                    Emitted::Full => return Next::OnWake,
                    Emitted::Gone => return Next::End(Ending::Drop),
                },
            }
        }
    }

    /// Pushes the next token.
    fn push(&mut self, now: Instant) -> Emitted {
        let bytes = self
            .script
            .steps
            .get(self.made as usize)
            .map(|step| step.1.as_slice())
            .unwrap_or_default();
        let emitted = self.sink.emit(TokenEvent {
            id: token_id(bytes),
            bytes,
        });
        match emitted {
            Emitted::Taken => {
                self.made += 1;
                // Delays count from when a token was due, not from when the task woke; a stall starts them anew.
                let base = if let State::Due(due) = self.state {
                    due
                } else {
                    now
                };
                self.wait_for_next(base);
            }
            Emitted::Full => self.state = State::Stalled,
            Emitted::Gone => {}
        }
        emitted
    }

    /// Waits for the next token's delay after `base`, or for the flush before a fault.
    fn wait_for_next(&mut self, base: Instant) {
        let made = self.made;
        self.state = match self.fault.take_if(|fault| fault.at == made) {
            Some(fault) => State::Flushing(fault.kind, self.sink.flush()),
            None => {
                let delay = self
                    .script
                    .steps
                    .get(made as usize)
                    .map(|step| step.0)
                    .unwrap_or_default();
                State::Due(base + delay)
            }
        };
    }

    /// Acts a fault out; the error is for the stream.
    fn act(&mut self, kind: FaultKind) -> Option<EngineError> {
        let error = |what: &str| {
            Some(EngineError {
                message: format!("{what} after token {}", self.made),
            })
        };
        match kind {
            FaultKind::Die => die(),
            FaultKind::Hang => {}
            FaultKind::Error => return error("failed as its script says"),
            FaultKind::Refuse => return error("refused as its script says"),
        }
        self.state = State::Hanging;
        None
    }

    /// Ends the stream.
    pub(super) fn end(self, ending: Ending) {
        let usage = Usage {
            prompt_tokens: self.prompt,
            cached_tokens: 0,
            completion_tokens: self.made,
        };
        match ending {
            Ending::Finish(reason) => self.sink.finish(reason, usage),
            Ending::Fail(error) => self.sink.fail(error),
            Ending::Drop => {}
        }
    }
}

/// The id of the first token that `bytes` encodes to; 0 for no bytes.
fn token_id(bytes: &[u8]) -> u32 {
    Tokenizer::builtin().encode(bytes).first().copied().unwrap_or(0)
}

/// Ends this process as SIGKILL from outside would.
fn die() {
    use rustix::process::{Signal, getpid, kill_process};
    if let Err(error) = kill_process(getpid(), Signal::KILL) {
        tracing::error!(%error, "cannot kill this process as a script asks; aborting");
        std::process::abort();
    }
}
