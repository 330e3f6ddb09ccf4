//! One choice of an answer: records in, text and an end out.
//!
//! Text leaves with the token that completes it: a token that ends inside a character, or inside what may be a stop
//! string, has no text of its own and still counts. What is held at the end leaves as one last text. Invariant: a
//! choice ends well only after the worker said so or a stop string was found; a stream that merely stops is an error.

use std::task::{Context, Poll};

use weir_engine::{
    FinishReason, Usage,
    text::{Detokenizer, StopMatcher},
};
use weir_net::{Anchor, Extent, StreamError, StreamErrorKind};

use crate::{envelope::Item, frontend::api::ApiError, router::Started};

/// What a choice has for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Text of one token, or the text that was held back at the end. The first one of a choice may be empty.
    Text {
        /// No text of this choice came before.
        first: bool,
    },
    /// The end.
    End(FinishReason),
}

/// One choice that is being generated.
#[derive(Debug)]
pub(crate) struct Choice {
    index: u32,
    source: Option<Source>,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    piece: String,
    usage: Usage,
    /// Some text was handed out.
    begun: bool,
    ending: Option<FinishReason>,
    ended: bool,
}

#[derive(Debug)]
struct Source {
    anchor: Anchor,
    extent: Extent,
}

impl Choice {
    /// A choice that reads `started`; `prompt_tokens` counts its prompt if the worker cannot say it any more.
    pub(crate) fn new(index: u32, started: Started, stops: &[String], prompt_tokens: u32) -> Self {
        Self {
            index,
            source: Some(Source {
                anchor: started.anchor,
                extent: started.first,
            }),
            detokenizer: Detokenizer::default(),
            stops: StopMatcher::new(stops),
            piece: String::new(),
            usage: Usage {
                prompt_tokens,
                ..Usage::default()
            },
            begun: false,
            ending: None,
            ended: false,
        }
    }

    /// Index in the answer.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Tokens of this choice so far, and of its prompt.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether its end was handed out.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// The next step. For [`Step::Text`] the text is appended to `text`. Nothing may be asked after the end.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        text: &mut String,
    ) -> Poll<Result<Step, ApiError>> {
        loop {
            if let Some(reason) = self.ending {
                return Poll::Ready(Ok(if self.begun { self.end(reason) } else { self.text() }));
            }
            let Some(source) = &mut self.source else {
                return Poll::Ready(Err(truncated(self.usage.completion_tokens)));
            };
            let Some(item) = source.extent.next() else {
                match std::task::ready!(source.anchor.poll_extent(cx)) {
                    Ok(Some(extent)) => source.extent = extent,
                    Ok(None) => return Poll::Ready(Err(truncated(self.usage.completion_tokens))),
                    Err(error) => return Poll::Ready(Err(describe(&error))),
                }
                continue;
            };
            let before = text.len();
            self.take(&item, cx, text)?;
            if text.len() > before {
                return Poll::Ready(Ok(self.text()));
            }
        }
    }

    fn text(&mut self) -> Step {
        Step::Text {
            first: !std::mem::replace(&mut self.begun, true),
        }
    }

    fn end(&mut self, reason: FinishReason) -> Step {
        self.ended = true;
        Step::End(reason)
    }

    fn take(&mut self, item: &[u8], cx: &mut Context<'_>, text: &mut String) -> Result<(), ApiError> {
        match Item::decode(item) {
            Ok(Item::Token { bytes, .. }) => {
                self.usage.completion_tokens = self.usage.completion_tokens.saturating_add(1);
                self.piece.clear();
                self.detokenizer.push(bytes, &mut self.piece);
                if self.stops.push(&self.piece, text) {
                    self.ending = Some(FinishReason::Stop);
                    self.source = None;
                }
            }
            Ok(Item::Finish { reason, usage }) => self.finish(reason, usage, cx, text),
            Err(error) => {
                tracing::error!(%error, "a worker sent what is no stream item");
                return Err(ApiError::engine("the worker's answer cannot be read"));
            }
        }
        Ok(())
    }

    fn finish(&mut self, reason: FinishReason, usage: Usage, cx: &mut Context<'_>, text: &mut String) {
        self.usage = usage;
        self.piece.clear();
        self.detokenizer.finish(&mut self.piece);
        let stopped = self.stops.push(&self.piece, text);
        self.stops.finish(text);
        self.ending = Some(if stopped { FinishReason::Stop } else { reason });
        // The end record is here almost always; read, it closes the stream without a cancel.
        if let Some(mut source) = self.source.take() {
            let _ = source.anchor.poll_extent(cx);
        }
    }
}

fn truncated(tokens: u32) -> ApiError {
    ApiError::worker_lost(format!(
        "the answer broke off after {tokens} tokens: the worker ended it without a reason"
    ))
}

/// What a client is told when a stream ends badly.
pub(crate) fn describe(error: &StreamError) -> ApiError {
    let delivered = error.delivered;
    match &error.kind {
        StreamErrorKind::Failed { message, .. } => ApiError::engine(format!("the worker failed: {message}")),
        StreamErrorKind::Stalled(limit) => ApiError::timeout(format!(
            "the worker made no progress within {limit:?}, after {delivered} tokens"
        )),
        StreamErrorKind::PeerLost => {
            ApiError::worker_lost(format!("the worker was lost after {delivered} tokens"))
        }
        other => ApiError::worker_lost(format!("the answer broke off after {delivered} tokens: {other}")),
    }
}
