//! What frontend and worker host say to each other over the plane: the `generate` call and the items of its stream.
//!
//! A `generate` body is `u16 ticket length, ticket, u16 worker index, JSON request` (little endian). An item is a tag
//! byte and its fields. Invariant: a stream that ends well carries [`Item::Finish`] as its last item; a clean end
//! without one is a truncation.

use bytes::{BufMut, Bytes, BytesMut};
use weir_engine::{FinishReason, Request, Usage};
use weir_net::Ticket;

/// Handler that takes a request. Its reply is empty; its failure is a JSON [`weir_engine::Refusal`].
pub const GENERATE: &str = "generate";
/// Handler that answers with a JSON array of [`weir_engine::EngineStats`], by worker index.
pub const STATS: &str = "stats";

const TOKEN: u8 = 0;
const FINISH: u8 = 1;

/// Bytes that are no envelope of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what}: {why}")]
pub struct EnvelopeError {
    /// Which message.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

/// One request for one worker of a process.
#[derive(Debug, Clone)]
pub struct Generate {
    /// Opens the stream of the answer.
    pub ticket: Ticket,
    /// Which worker of the process.
    pub worker: u16,
    /// What to generate.
    pub request: Request,
}

impl Generate {
    /// The body of a `generate` call.
    pub fn encode(&self) -> Bytes {
        let ticket = self.ticket.to_bytes();
        let request = serde_json::to_vec(&self.request).unwrap_or_default();
        let mut out = BytesMut::with_capacity(ticket.len() + request.len() + 4);
        out.put_u16_le(u16::try_from(ticket.len()).unwrap_or(0));
        out.put_slice(&ticket);
        out.put_u16_le(self.worker);
        out.put_slice(&request);
        out.freeze()
    }

    /// Parses the body of a `generate` call.
    ///
    /// # Errors
    /// [`EnvelopeError`] says which part is wrong.
    pub fn decode(body: &[u8]) -> Result<Self, EnvelopeError> {
        let fail = |why: &str| EnvelopeError {
            what: "generate call",
            why: why.to_owned(),
        };
        let (len, rest) = body
            .split_first_chunk::<2>()
            .ok_or_else(|| fail("no ticket length"))?;
        let (ticket, rest) = rest
            .split_at_checked(usize::from(u16::from_le_bytes(*len)))
            .ok_or_else(|| fail("ticket cut short"))?;
        let (worker, json) = rest
            .split_first_chunk::<2>()
            .ok_or_else(|| fail("no worker index"))?;
        Ok(Self {
            ticket: Ticket::from_bytes(ticket).map_err(|error| fail(&error.to_string()))?,
            worker: u16::from_le_bytes(*worker),
            request: serde_json::from_slice(json).map_err(|error| fail(&error.to_string()))?,
        })
    }
}

/// One item of an answer's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A token: its id and its bytes, maybe a piece of a character.
    Token {
        /// Token id.
        id: u32,
        /// The token's bytes.
        bytes: &'a [u8],
    },
    /// The last item of a stream that ended well.
    Finish {
        /// Why it ended.
        reason: FinishReason,
        /// Token counts.
        usage: Usage,
    },
}

impl<'a> Item<'a> {
    /// Appends the item's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Token { id, bytes } => {
                out.push(TOKEN);
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Finish { reason, usage } => {
                out.push(FINISH);
                out.push(u8::from(*reason == FinishReason::Length));
                for count in [usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens] {
                    out.extend_from_slice(&count.to_le_bytes());
                }
            }
        }
    }

    /// Parses one item.
    ///
    /// # Errors
    /// [`EnvelopeError`] says what is wrong.
    pub fn decode(item: &'a [u8]) -> Result<Self, EnvelopeError> {
        let fail = |why: &str| EnvelopeError {
            what: "stream item",
            why: why.to_owned(),
        };
        let (tag, rest) = item.split_first().ok_or_else(|| fail("empty"))?;
        match *tag {
            TOKEN => {
                let (id, bytes) = rest
                    .split_first_chunk::<4>()
                    .ok_or_else(|| fail("token cut short"))?;
                Ok(Self::Token {
                    id: u32::from_le_bytes(*id),
                    bytes,
                })
            }
            FINISH => {
                let (reason, counts) = rest.split_first().ok_or_else(|| fail("finish cut short"))?;
                let counts: &[u8; 12] = counts.try_into().map_err(|_| fail("finish of a wrong length"))?;
                let [p, c, g] = std::array::from_fn(|i| {
                    counts
                        .chunks_exact(4)
                        .nth(i)
                        .and_then(|four| four.try_into().ok())
                        .map_or(0, u32::from_le_bytes)
                });
                Ok(Self::Finish {
                    reason: if *reason == 1 {
                        FinishReason::Length
                    } else {
                        FinishReason::Stop
                    },
                    usage: Usage {
                        prompt_tokens: p,
                        cached_tokens: c,
                        completion_tokens: g,
                    },
                })
            }
            other => Err(fail(&format!("unknown tag {other}"))),
        }
    }
}
