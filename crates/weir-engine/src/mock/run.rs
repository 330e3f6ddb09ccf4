//! One request inside the mock engine.

use std::task::Waker;

use super::tokens::Tokens;
use crate::{
    Demand, Emitted, FinishReason, ModelCard, Request, TokenEvent, TokenSink, Usage, admission::prompt_len,
    tokenizer::Tokenizer,
};

/// Tokens of a request that sets no limit.
const DEFAULT_TOKENS: u32 = 64;

/// A request that waits or runs.
pub(super) struct Run {
    sink: Box<dyn TokenSink>,
    tokens: Tokens,
    prompt: u32,
    made: u32,
    limit: u32,
    /// How it ends at its limit.
    at_limit: FinishReason,
    min_tokens: u32,
    stop_token_ids: Vec<u32>,
    /// The sink was full: the token at `made` waits for credit.
    pub(super) stalled: bool,
}

/// What a request did in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Its token is on its way.
    Token,
    /// Its token waits for credit.
    Stalled,
    /// Its last token is on its way; call [`Run::finish`].
    Last(FinishReason),
    /// It ends without another token; call [`Run::finish`].
    Done(FinishReason),
    /// Nobody wants it any more; drop it.
    Gone,
}

impl Run {
    pub(super) fn new(request: &Request, sink: Box<dyn TokenSink>, card: &ModelCard) -> Self {
        let room = card.room(request);
        let wanted = request
            .max_tokens
            .unwrap_or(DEFAULT_TOKENS.max(request.min_tokens));
        let cut = request.max_tokens.is_some() || wanted > room;
        Self {
            sink,
            tokens: Tokens::of(request),
            prompt: prompt_len(request),
            made: 0,
            limit: wanted.min(room),
            at_limit: if cut {
                FinishReason::Length
            } else {
                FinishReason::Stop
            },
            min_tokens: request.min_tokens,
            stop_token_ids: request.stop_token_ids.clone(),
            stalled: false,
        }
    }

    /// Prompt tokens that the request's first pass prefills.
    pub(super) fn prompt_tokens(&self) -> u64 {
        self.prompt.into()
    }

    /// Makes the next token, or tries again to push the one that waits.
    pub(super) fn step(&mut self) -> Step {
        match self.sink.demand() {
            Demand::Cancelled => return Step::Gone,
            Demand::Stop => return Step::Done(FinishReason::Stop),
            Demand::More if self.made >= self.limit => return Step::Done(self.at_limit),
            Demand::More => {}
        }
        let id = self.tokens.id(self.made);
        if self.made >= self.min_tokens && self.stop_token_ids.contains(&id) {
            return Step::Done(FinishReason::Stop);
        }
        let emitted = self.sink.emit(TokenEvent {
            id,
            bytes: Tokenizer::builtin().piece(id),
        });
        self.stalled = emitted == Emitted::Full;
        match emitted {
            Emitted::Full => Step::Stalled,
            Emitted::Gone => Step::Gone,
            Emitted::Taken => {
                self.made += 1;
                if self.made < self.limit {
                    Step::Token
                } else {
                    Step::Last(self.at_limit)
                }
            }
        }
    }

    /// Has `waker` woken at the next change, and says what the consumer wants now.
    pub(super) fn watch(&mut self, waker: &Waker) -> Demand {
        self.sink.wake_on_change(waker);
        self.sink.demand()
    }

    /// Ends the stream well.
    pub(super) fn finish(self, reason: FinishReason) {
        let usage = Usage {
            prompt_tokens: self.prompt,
            cached_tokens: 0,
            completion_tokens: self.made,
        };
        self.sink.finish(reason, usage);
    }
}
