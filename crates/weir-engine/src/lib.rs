//! The engine contract with the mock and the scripted engine, and the tokenizer.
//!
//! An engine takes a [`Request`] and pushes [`TokenEvent`]s into the [`TokenSink`] that came with it. It knows
//! nothing of planes, links or HTTP. Invariant: every accepted request ends its sink exactly once.

mod admission;
pub mod chat;
pub mod contract;
mod intake;
pub mod mock;
pub mod prompt;
pub mod scripted;
pub mod text;
pub mod tokenizer;

pub use contract::{
    Demand, Emitted, Engine, EngineError, EngineStats, Fault, FaultKind, FinishReason, ModelCard, Refusal,
    Request, Sampling, ScriptStep, TokenEvent, TokenSink, Usage,
};
pub use prompt::{PromptEncoder, PromptError};
