//! All choices of one answer, and the answer that is not streamed.
//!
//! Invariant: however an answer ends, the tokens of its choices are counted once, when they are dropped.

use std::{future::poll_fn, task::Poll};

use weir_engine::{FinishReason, Usage};

use super::{Choice, Step};
use crate::frontend::{api::ApiError, observe::Observed};

/// The choices of one answer, with what is noted of it.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(crate) list: Vec<Choice>,
    /// Choices of each prompt: they share its tokens.
    per_prompt: usize,
    pub(crate) observed: Observed,
}

impl Choices {
    pub(crate) fn new(list: Vec<Choice>, per_prompt: u32, observed: Observed) -> Self {
        Self {
            list,
            per_prompt: usize::try_from(per_prompt).unwrap_or(usize::MAX).max(1),
            observed,
        }
    }

    /// The usage of all: each prompt counts once.
    pub(crate) fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for (at, usage) in self.list.iter().map(Choice::usage).enumerate() {
            sum.completion_tokens = sum.completion_tokens.saturating_add(usage.completion_tokens);
            if at % self.per_prompt == 0 {
                sum.prompt_tokens = sum.prompt_tokens.saturating_add(usage.prompt_tokens);
                sum.cached_tokens = sum.cached_tokens.saturating_add(usage.cached_tokens);
            }
        }
        sum
    }

    /// Text and end of each choice once all have ended; the first error of any otherwise.
    pub(crate) async fn collect(&mut self) -> Result<Vec<(String, FinishReason)>, ApiError> {
        let mut answers = vec![(String::new(), FinishReason::Stop); self.list.len()];
        poll_fn(|cx| {
            let mut waiting = false;
            for (choice, (text, end)) in self.list.iter_mut().zip(&mut answers) {
                while !choice.is_ended() {
                    match choice.poll_step(cx, text)? {
                        Poll::Ready(Step::End(reason)) => *end = reason,
                        Poll::Ready(Step::Text { .. }) => {}
                        Poll::Pending => {
                            waiting = true;
                            break;
                        }
                    }
                }
            }
            if waiting {
                Poll::Pending
            } else {
                Poll::Ready(Ok(()))
            }
        })
        .await?;
        Ok(answers)
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        self.observed.tokens(self.usage());
    }
}
