//! A model file made ready to serve requests: memory is divided before anything of it is loaded.
//!
//! Weights are what they are; keys and values get what the operator says, or half of what is left. The context that is
//! promised is the longest that fits there. Invariant: a model whose weights and one useful context do not fit is
//! refused with the numbers, and nothing was reserved.

use std::sync::Arc;

use weir_engine::ModelCard;

use crate::arch::Arch;
use crate::batch::Limits;
use crate::engine::LocalEngine;
use crate::gguf::{Gguf, GgufError};
use crate::model::Model;
use crate::stage::{Stage, StageSpec, Threads};
use crate::tokenizer::{Tokenizer, TokenizerError, fingerprint};
use crate::weights::LoadError;

/// Requests running at once, memory permitting.
const RUNNING: usize = 64;
/// Requests waiting.
const WAITING: usize = 256;
/// A context shorter than this (or than the model's own) is of no use.
const LEAST_CONTEXT: usize = 256;

/// Why a model is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The file is of an architecture that is not run.
    #[error(transparent)]
    File(#[from] GgufError),
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is not enough memory.
    #[error(
        "the model needs {weights} MiB for weights and {caches} MiB for keys and values ({what}); {free} MiB are free"
    )]
    Memory {
        /// MiB of weights.
        weights: usize,
        /// MiB for keys and values.
        caches: usize,
        /// Where that comes from.
        what: &'static str,
        /// MiB that can be reserved.
        free: usize,
    },
    /// The memory given for keys and values is of no use.
    #[error(
        "{given} MiB for keys and values hold {holds} tokens; at least {least} tokens, {need} MiB, are needed"
    )]
    Caches {
        /// MiB given.
        given: usize,
        /// Tokens of context they hold.
        holds: usize,
        /// Tokens they have to hold.
        least: usize,
        /// MiB these take.
        need: usize,
    },
    /// The system refused a thread.
    #[error("cannot start the model's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// How a model is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Name clients ask for.
    pub name: String,
    /// Threads that compute. Default: one a core.
    pub threads: Option<usize>,
    /// Bytes for keys and values of all requests. Default: half of the memory that is free beside the weights.
    pub kv_memory: Option<usize>,
}

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Bytes for keys and values.
    caches: usize,
    /// Longest context, in tokens.
    context: usize,
}

/// Loads a whole model and starts its engine.
///
/// # Errors
/// [`ServeError`] says what is missing, with the numbers.
pub fn serve(gguf: &Arc<Gguf>, options: &ServeOptions) -> Result<LocalEngine, ServeError> {
    let arch = Arch::from_gguf(gguf)?;
    let weights = Stage::weight_bytes(gguf, &arch, &StageSpec::whole(arch.layers));
    let plan = divide(&arch, weights, crate::memory::free_bytes(), options.kv_memory)?;
    let tokenizer = Arc::new(Tokenizer::from_gguf(gguf)?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = Threads::new(options.threads.unwrap_or(cores))?;
    let model = Model::load(gguf, 1, &threads)?;
    let card = ModelCard {
        name: options.name.clone(),
        context_length: u32::try_from(plan.context).unwrap_or(u32::MAX),
        tokenizer: fingerprint(gguf),
    };
    let limits = Limits {
        memory: plan.caches,
        running: RUNNING,
        waiting: WAITING,
    };
    Ok(LocalEngine::start(model, tokenizer, limits, card)?)
}

fn divide(arch: &Arch, weights: usize, free: usize, given: Option<usize>) -> Result<Plan, ServeError> {
    let bytes = |context| crate::cache::bytes(arch, 0..arch.layers, context);
    let least = LEAST_CONTEXT.min(arch.context);
    let left = free.saturating_sub(weights);
    let (caches, what) = match given {
        Some(given) => (given, "as given"),
        None => {
            let most = RUNNING.saturating_mul(bytes(arch.context));
            ((left / 2).min(most).max(bytes(least)), "at least")
        }
    };
    if caches >= left {
        return Err(ServeError::Memory {
            weights: weights.div_ceil(1 << 20),
            caches: caches.div_ceil(1 << 20),
            what,
            free: free >> 20,
        });
    }
    let context = longest(arch.context, |context| bytes(context) <= caches);
    if context < least {
        return Err(ServeError::Caches {
            given: caches >> 20,
            holds: context,
            least,
            need: bytes(least).div_ceil(1 << 20),
        });
    }
    Ok(Plan { caches, context })
}

/// The largest number up to `most` that fits, where all smaller ones do too.
fn longest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut beyond) = (0, most.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Family;
    use crate::gguf::TensorType;
    use crate::tiny::TinyModel;

    /// Three layers, 512 tokens of context, 3 KiB for each.
    fn arch() -> Arch {
        let tiny = TinyModel::new(Family::Llama, TensorType::named("F32").unwrap());
        Arch::from_gguf(&Gguf::from_bytes(tiny.to_bytes().unwrap()).unwrap()).unwrap()
    }

    const TOKEN: usize = 3 * 2 * 2 * 64 * 4;

    #[test]
    fn half_of_what_is_left_is_for_contexts_up_to_all_that_can_run() {
        let plan = |free| divide(&arch(), 1000, free, None).unwrap();
        assert_eq!(
            plan(1000 + 600 * TOKEN),
            Plan {
                caches: 300 * TOKEN,
                context: 300
            }
        );
        assert_eq!(
            plan(1 << 40),
            Plan {
                caches: RUNNING * 512 * TOKEN,
                context: 512
            }
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let mib = 1 << 20;
        let fault = divide(&arch(), 300 * mib, 200 * mib, None)
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("300 MiB for weights") && fault.contains("200 MiB are free"),
            "{fault}"
        );
        let fault = divide(&arch(), 100 * mib, 200 * mib, Some(150 * mib))
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("150 MiB for keys and values (as given)"),
            "{fault}"
        );
        let fault = divide(&arch(), 0, 200 * mib, Some(9 * TOKEN))
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("hold 9 tokens; at least 256 tokens, 1 MiB"),
            "{fault}"
        );
    }
}
