//! OpenAI's API as pure code: bytes of a request to what it means, what an answer says to bytes.
//!
//! No socket, clock or worker here. Invariant: any bytes give a typed request or an [`ApiError`] below 500, never a
//! panic.

mod chat;
mod completion;
mod error;
mod fields;
pub(crate) mod json;
mod params;
mod reply;
pub(crate) mod sse;
#[cfg(test)]
mod tests;

pub(crate) use chat::ChatRequest;
pub(crate) use completion::{CompletionRequest, Prompt};
pub(crate) use error::{ApiError, cut};
pub(crate) use params::Params;
pub(crate) use reply::{Answer, model, models};

/// The two endpoints that generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Endpoint {
    /// Prefix of its answers' ids.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Completions => "cmpl",
        }
    }

    /// `object` of a chunk.
    fn chunk(self) -> &'static str {
        match self {
            Self::Chat => "chat.completion.chunk",
            Self::Completions => "text_completion",
        }
    }

    /// `object` of a whole answer.
    fn object(self) -> &'static str {
        match self {
            Self::Chat => "chat.completion",
            Self::Completions => "text_completion",
        }
    }
}
