//! The engine contract with the mock and the scripted engine, and the tokenizer.
//!
//! An engine takes a [`Request`] and pushes [`TokenEvent`]s into the [`TokenSink`] that came with it. It knows
//! nothing of planes, links or HTTP. Invariant: every accepted request ends its sink exactly once.

pub mod contract;

pub use contract::{
    Demand, Emitted, Engine, EngineError, EngineStats, Fault, FaultKind, FinishReason, ModelCard, Refusal,
    Request, Sampling, ScriptStep, TokenEvent, TokenSink, Usage,
};
