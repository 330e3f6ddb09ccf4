//! The mock engine: no model, but the passes, queues and backpressure of one.
//!
//! Time passes as if prompts were prefilled and a token for every running request came out of each pass. Which
//! tokens come out depends on the request alone. Invariant: one task per engine, however many requests it has.

mod pass;
mod run;
mod timing;
mod tokens;

use std::time::Duration;

use run::Run;

use crate::{Engine, EngineStats, ModelCard, Refusal, Request, TokenSink, intake::Front};

/// How a mock engine behaves.
#[derive(Debug, Clone)]
pub struct MockConfig {
    /// Model name. Default `mock`.
    pub model: String,
    /// Longest prompt plus generation, in tokens. Default 16,384.
    pub context_length: u32,
    /// Time of a pass without prefill. Default 8 ms.
    pub pass: Duration,
    /// Time that each prompt token adds to its pass. Default 15 us.
    pub prefill_per_token: Duration,
    /// Divides all times; infinite: no waiting at all. Default 1.
    pub speedup: f64,
    /// Requests that run at once; the others wait. Default 256.
    pub max_running: u32,
    /// Requests that run or wait at once; beyond that the engine is busy. Default 8,192.
    pub max_requests: u32,
}

impl Default for MockConfig {
    fn default() -> Self {
        Self {
            model: "mock".to_owned(),
            context_length: 16_384,
            pass: Duration::from_millis(8),
            prefill_per_token: Duration::from_micros(15),
            speedup: 1.0,
            max_running: 256,
            max_requests: 8_192,
        }
    }
}

/// An engine that makes its tokens up.
#[derive(Debug)]
pub struct MockEngine {
    front: Front<Run>,
}

impl MockEngine {
    /// Starts the engine's task on the current tokio runtime; it ends when the engine is dropped.
    pub fn start(config: &MockConfig) -> Self {
        let card = ModelCard::builtin(&config.model, config.context_length);
        Self {
            front: Front::start(card, config.max_requests, |intake| {
                pass::run(intake, config.clone())
            }),
        }
    }
}

impl Engine for MockEngine {
    fn card(&self) -> &ModelCard {
        &self.front.card
    }

    fn submit(&self, request: Request, sink: Box<dyn TokenSink>) -> Result<(), Refusal> {
        self.front.card.admit(&request)?;
        self.front
            .intake
            .accept(Run::new(&request, sink, &self.front.card))
    }

    fn stats(&self) -> EngineStats {
        self.front.intake.stats()
    }
}
