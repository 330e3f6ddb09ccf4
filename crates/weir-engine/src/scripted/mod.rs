//! The scripted engine: each request brings its own tokens, delays and fault.
//!
//! It drives acceptance tests. Invariant: one task per engine; a fault happens only after the plane has handed the
//! token before it to the kernel, and only on a request's first attempt.

mod play;
mod script;
mod stage;

pub use script::{MAX_BYTES, MAX_DELAY, MAX_STEPS, MAX_TOKEN_BYTES, Script, ScriptError};

use play::Play;

use crate::{Engine, EngineStats, FaultKind, ModelCard, Refusal, Request, TokenSink, intake::Front};

/// How a scripted engine behaves.
#[derive(Debug, Clone)]
pub struct ScriptedConfig {
    /// Model name. Default `scripted`.
    pub model: String,
    /// Longest prompt plus generation, in tokens. Default 16,384.
    pub context_length: u32,
    /// Requests at once; beyond that the engine is busy. Default 8,192.
    pub max_requests: u32,
}

impl Default for ScriptedConfig {
    fn default() -> Self {
        Self {
            model: "scripted".to_owned(),
            context_length: 16_384,
            max_requests: 8_192,
        }
    }
}

/// An engine that plays the script of each request.
#[derive(Debug)]
pub struct ScriptedEngine {
    front: Front<Play>,
}

impl ScriptedEngine {
    /// Starts the engine's task on the current tokio runtime; it ends when the engine is dropped.
    pub fn start(config: &ScriptedConfig) -> Self {
        let card = ModelCard::builtin(&config.model, config.context_length);
        Self {
            front: Front::start(card, config.max_requests, stage::run),
        }
    }
}

impl Engine for ScriptedEngine {
    fn card(&self) -> &ModelCard {
        &self.front.card
    }

    fn submit(&self, request: Request, sink: Box<dyn TokenSink>) -> Result<(), Refusal> {
        self.front.card.admit(&request)?;
        let Some(steps) = &request.script else {
            return Err(Refusal::Invalid(
                "model scripted needs weir_script, a list of tokens".to_owned(),
            ));
        };
        let script = Script::parse(steps).map_err(|error| Refusal::Invalid(error.to_string()))?;
        match play::fault_of(&request) {
            Some(fault) if fault.at == 0 && fault.kind == FaultKind::Refuse => {
                Err(Refusal::Busy("refused as its script says".to_owned()))
            }
            _ => self
                .front
                .intake
                .accept(Play::new(&request, script, sink, &self.front.card)),
        }
    }

    fn stats(&self) -> EngineStats {
        self.front.intake.stats()
    }
}
