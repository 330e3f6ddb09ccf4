//! The event stream of one answer: it polls its anchors itself.
//!
//! One event for each token that has text, never merged; the events of the tokens that are there now go out in one
//! buffer. Order: text, the end of each choice as it comes, usage, `[DONE]`; or an error event, and nothing after it.
//! Invariant: `[DONE]` is sent once, and only if every choice ended well.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::StatusCode;

use super::{Choices, Step};
use crate::frontend::api::{ApiError, Endpoint, sse};

/// A buffer this full goes out before more events are added to it.
const FULL: usize = 32 * 1024;

/// The choices of an answer, once a worker has begun each of them.
pub(crate) type Starting = Pin<Box<dyn Future<Output = Result<Choices, ApiError>> + Send>>;

/// An answer as server-sent events.
pub(crate) struct EventStream {
    page: Page,
    state: State,
}

enum State {
    /// The answer begins before its workers have: with the roles.
    Early(Starting),
    Waiting(Starting),
    Running(Choices),
    Over,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

impl EventStream {
    /// The events of choices that have begun.
    pub(crate) fn new(page: Page, choices: Choices) -> Self {
        Self {
            page,
            state: State::Running(choices),
        }
    }

    /// The events of choices that have not begun: their roles come first.
    pub(crate) fn early(page: Page, starting: Starting) -> Self {
        Self {
            page,
            state: State::Early(starting),
        }
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The next events, at least one.
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.page.out.clear();
        while self.page.out.is_empty() {
            self.state = match std::mem::replace(&mut self.state, State::Over) {
                State::Early(starting) => {
                    self.page.roles();
                    State::Waiting(starting)
                }
                State::Waiting(mut starting) => match starting.as_mut().poll(cx) {
                    Poll::Ready(Ok(choices)) => State::Running(choices),
                    Poll::Ready(Err(error)) => self.page.error(&error),
                    Poll::Pending => {
                        self.state = State::Waiting(starting);
                        return Poll::Pending;
                    }
                },
                State::Running(mut choices) => match self.page.poll_choices(&mut choices, cx) {
                    Poll::Ready(Ok(())) => self.page.end(&mut choices),
                    Poll::Ready(Err(error)) => {
                        choices.observed.finish(error.status);
                        self.page.error(&error)
                    }
                    Poll::Pending if self.page.out.is_empty() => {
                        self.state = State::Running(choices);
                        return Poll::Pending;
                    }
                    Poll::Pending => State::Running(choices),
                },
                State::Over => return Poll::Ready(None),
            };
        }
        Poll::Ready(Some(Bytes::copy_from_slice(&self.page.out)))
    }
}

/// Where the events of one answer are written.
#[derive(Debug)]
pub(crate) struct Page {
    encoder: sse::Encoder,
    include_usage: bool,
    /// A choice's first text still has to carry the role.
    role_due: bool,
    /// Which choice is asked first.
    turn: usize,
    text: String,
    out: Vec<u8>,
}

impl Page {
    pub(crate) fn new(encoder: sse::Encoder, include_usage: bool) -> Self {
        let role_due = encoder.endpoint() == Endpoint::Chat;
        Self {
            encoder,
            include_usage,
            role_due,
            turn: 0,
            text: String::new(),
            out: Vec::new(),
        }
    }

    fn roles(&mut self) {
        if std::mem::take(&mut self.role_due) {
            (0..self.encoder.choices()).for_each(|choice| self.encoder.role(&mut self.out, choice, ""));
        }
    }

    /// Writes what is there. Ready when all choices have ended.
    fn poll_choices(&mut self, choices: &mut Choices, cx: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        let count = choices.list.len();
        let mut left = 0;
        for at in 0..count {
            let Some(choice) = choices.list.get_mut((self.turn + at) % count) else {
                continue;
            };
            while !choice.is_ended() {
                if self.out.len() >= FULL {
                    self.turn = (self.turn + at) % count;
                    return Poll::Pending;
                }
                self.text.clear();
                match choice.poll_step(cx, &mut self.text)? {
                    Poll::Ready(step) => self.write(choice.index(), step),
                    Poll::Pending => {
                        left += 1;
                        break;
                    }
                }
            }
        }
        if left == 0 {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn write(&mut self, choice: u32, step: Step) {
        match step {
            Step::Text { first: true } if self.role_due => {
                self.encoder.role(&mut self.out, choice, &self.text)
            }
            Step::Text { .. } if self.text.is_empty() => {}
            Step::Text { .. } => self.encoder.token(&mut self.out, choice, &self.text),
            Step::End(reason) => self.encoder.finish(&mut self.out, choice, reason),
        }
    }

    fn end(&mut self, choices: &mut Choices) -> State {
        if self.include_usage {
            self.encoder.usage(&mut self.out, choices.usage());
        }
        sse::done(&mut self.out);
        choices.observed.finish(StatusCode::OK);
        State::Over
    }

    fn error(&mut self, error: &ApiError) -> State {
        sse::error(&mut self.out, error);
        State::Over
    }
}
