//! What an engine is asked, what it answers, and the two traits between engine and worker host.
//!
//! A sink is pushed into, not polled: an engine that runs whole passes stages all tokens of a pass and no task
//! exists per stream. Invariant: after `finish` or `fail` a sink is gone; dropping one unfinished tells the consumer
//! that the stream was dropped.

use std::task::Waker;

use serde::{Deserialize, Serialize};

/// One generation request, as it travels from the frontend to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Request id of the frontend, unique over restarts; for logs and joins.
    pub id: String,
    /// Name of the model asked for.
    pub model: String,
    /// Prompt token ids.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; `None`: the engine's default (mock: 64, script: its length).
    pub max_tokens: Option<u32>,
    /// Fewest tokens before an end-of-sequence token may end the stream.
    pub min_tokens: u32,
    /// Generate past end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Tokens that end the stream with [`FinishReason::Stop`].
    pub stop_token_ids: Vec<u32>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Index of the choice this request generates, 0 when `n` is 1. Engines that sample mix it into the seed.
    pub choice: u32,
    /// 0 for the first worker that is tried, then 1, 2, ...
    pub attempt: u32,
    /// The script of the scripted engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Vec<ScriptStep>>,
    /// A fault that the scripted engine acts out on attempt 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Sampling parameters with OpenAI's meanings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0 is greedy. Default 1.
    pub temperature: f32,
    /// Default 1.
    pub top_p: f32,
    /// 0 is off. Default 0.
    pub top_k: u32,
    /// Default 0.
    pub min_p: f32,
    /// Default 0.
    pub frequency_penalty: f32,
    /// Default 0.
    pub presence_penalty: f32,
    /// Added to the logits of the named tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same prompt, same text. `None`: the frontend drew one.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

/// One token of a script: wait, then emit these bytes (they need not be whole characters).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptStep {
    /// Milliseconds to wait before this token.
    #[serde(default)]
    pub delay_ms: u64,
    /// The token's bytes in hexadecimal.
    pub bytes_hex: String,
}

/// A fault the scripted engine acts out once the plane has handed token `at` to the kernel (0: before the first).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// After how many tokens.
    pub at: u32,
    /// What happens.
    pub kind: FaultKind,
}

/// Kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The worker process ends as SIGKILL would end it.
    Die,
    /// Nothing more is ever sent; the stream stays open.
    Hang,
    /// The stream fails with [`EngineError`].
    Error,
    /// The request is refused at submission (with `at` 0) or the stream fails as refused.
    Refuse,
}

/// What an engine pushes for each token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEvent<'a> {
    /// Token id.
    pub id: u32,
    /// The token's bytes, maybe a piece of a character.
    pub bytes: &'a [u8],
}

/// Why a stream ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end-of-sequence or stop token, or the end of a script.
    Stop,
    /// `max_tokens` or the context length was reached.
    Length,
}

/// Token counts of one finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub prompt_tokens: u32,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u32,
    /// Generated tokens.
    pub completion_tokens: u32,
}

/// A stream that fails after it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    /// What happened, for the client; at most 1 KiB.
    pub message: String,
}

/// A request that an engine does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Another worker may take it.
    #[error("worker is busy: {0}")]
    Busy(String),
    /// Another worker may take it.
    #[error("worker is draining")]
    Draining,
    /// No worker of this kind will take it.
    #[error("invalid request: {0}")]
    Invalid(String),
}

/// What happened to a pushed token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Emitted {
    /// It is on its way.
    Taken,
    /// No credit or no room: keep it and push it again after the sink's waker was woken.
    Full,
    /// The consumer is gone or cancelled: stop generating and drop the sink.
    Gone,
}

/// What the consumer wants now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// More tokens.
    More,
    /// Finish with what there is.
    Stop,
    /// Nothing; drop the sink.
    Cancelled,
}

/// Where an engine pushes one stream's tokens. Implemented by the worker host over a plane's sender.
pub trait TokenSink: Send + 'static {
    /// Pushes one token. Never blocks.
    fn emit(&mut self, event: TokenEvent<'_>) -> Emitted;
    /// What the consumer wants now. Cheap enough to ask once per pass.
    fn demand(&self) -> Demand;
    /// Wakes `waker` once when credit returns, or when the consumer stops or cancels.
    fn wake_on_change(&mut self, waker: &Waker);
    /// Resolves once all tokens pushed so far have been handed to the kernel. Only faults need it.
    fn flush(&mut self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Ends the stream well.
    fn finish(self: Box<Self>, reason: FinishReason, usage: Usage);
    /// Ends the stream with an error.
    fn fail(self: Box<Self>, error: EngineError);
}

/// What a worker serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCard {
    /// Name clients ask for.
    pub name: String,
    /// Longest prompt plus generation, in tokens.
    pub context_length: u32,
    /// Fingerprint of the tokenizer; frontends refuse a worker whose tokenizer is not theirs.
    pub tokenizer: String,
}

/// Gauges and counters of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EngineStats {
    /// Requests that generate or prefill now.
    pub running: u64,
    /// Requests accepted and not yet running.
    pub waiting: u64,
    /// Tokens pushed since the start.
    pub tokens: u64,
    /// Requests accepted since the start.
    pub requests: u64,
}

/// A generator of tokens. Cancel is by the sink: an engine asks [`TokenSink::demand`] at least once per pass, for
/// waiting requests too, and is woken when it changes.
pub trait Engine: Send + Sync + 'static {
    /// What this engine serves.
    fn card(&self) -> &ModelCard;
    /// Takes a request; its tokens go to `sink`.
    ///
    /// # Errors
    /// [`Refusal`]: the request was not taken and the sink is dropped unused.
    fn submit(&self, request: Request, sink: Box<dyn TokenSink>) -> Result<(), Refusal>;
    /// Gauges and counters now.
    fn stats(&self) -> EngineStats;
}
