//! From the bytes of a request to what workers are asked: parse, find the model, tokenize, check against its limits.
//!
//! Pure but for reading the fleet's snapshot. Invariant: a prompt that comes out fits the model's context together
//! with the tokens asked for, and every token id in it is in the vocabulary.

use weir_engine::{ModelCard, chat, tokenizer::Tokenizer};

use super::api::{ApiError, ChatRequest, CompletionRequest, Endpoint, Params, Prompt};
use crate::router::{self, Fleet, Snapshot};

/// A request that workers can be asked.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) params: Params,
    /// Token ids of each prompt.
    pub(crate) prompts: Vec<Vec<u32>>,
}

/// Reads `body` for `endpoint`. Takes time linear in its length.
pub(crate) fn prepare(
    endpoint: Endpoint,
    body: &[u8],
    fleet: &Fleet,
    tokenizer: &Tokenizer,
) -> Result<Prepared, ApiError> {
    let snapshot = fleet.snapshot();
    let (params, prompts, param) = match endpoint {
        Endpoint::Chat => {
            let ChatRequest { params, messages } = ChatRequest::parse(body)?;
            let card = card(&snapshot, &params.model)?;
            let bytes = messages.iter().map(|message| message.content.len()).sum();
            check_bytes(bytes, card, tokenizer, "messages")?;
            let turns = messages
                .iter()
                .map(|message| (message.role, message.content.as_str()));
            (params, vec![chat::prompt(tokenizer, turns)], "messages")
        }
        Endpoint::Completions => {
            let CompletionRequest { params, prompts } = CompletionRequest::parse(body)?;
            let card = card(&snapshot, &params.model)?;
            let prompts = prompts
                .into_iter()
                .map(|prompt| tokens(prompt, card, tokenizer))
                .collect::<Result<_, _>>()?;
            (params, prompts, "prompt")
        }
    };
    let card = card(&snapshot, &params.model)?;
    check_ids(&params, tokenizer)?;
    prompts
        .iter()
        .try_for_each(|prompt| check_context(prompt.len(), &params, card, param))?;
    Ok(Prepared { params, prompts })
}

/// The card of a model that somebody serves.
fn card<'a>(snapshot: &'a Snapshot, model: &str) -> Result<&'a ModelCard, ApiError> {
    match snapshot.model(model) {
        Some(model) if model.is_served() => Ok(&model.card),
        Some(_) => Err(router::no_workers(model)),
        None if snapshot.is_empty() => Err(router::no_workers(model)),
        None => Err(ApiError::no_model(model)),
    }
}

fn tokens(prompt: Prompt, card: &ModelCard, tokenizer: &Tokenizer) -> Result<Vec<u32>, ApiError> {
    match prompt {
        Prompt::Text(text) => {
            check_bytes(text.len(), card, tokenizer, "prompt")?;
            Ok(tokenizer.encode(text))
        }
        Prompt::Tokens(ids) => match ids.iter().find(|id| **id >= tokenizer.vocabulary_size()) {
            Some(id) => Err(unknown_id("prompt", *id, tokenizer)),
            None => Ok(ids),
        },
    }
}

fn unknown_id(param: &'static str, id: u32, tokenizer: &Tokenizer) -> ApiError {
    let last = tokenizer.vocabulary_size().saturating_sub(1);
    ApiError::invalid(
        param,
        format!("{param} has token id {id}; the model's ids are 0 to {last}"),
    )
}

fn check_ids(params: &Params, tokenizer: &Tokenizer) -> Result<(), ApiError> {
    let biased = params
        .sampling
        .logit_bias
        .iter()
        .map(|(id, _)| ("logit_bias", *id));
    let stops = params.stop_token_ids.iter().map(|id| ("stop_token_ids", *id));
    match stops
        .chain(biased)
        .find(|(_, id)| *id >= tokenizer.vocabulary_size())
    {
        Some((param, id)) => Err(unknown_id(param, id, tokenizer)),
        None => Ok(()),
    }
}

/// Refuses what cannot fit before time is spent on it.
fn check_bytes(
    bytes: usize,
    card: &ModelCard,
    tokenizer: &Tokenizer,
    param: &'static str,
) -> Result<(), ApiError> {
    let fewest = tokenizer.fewest_tokens(bytes);
    let context = card.context_length;
    if fewest > usize::try_from(context).unwrap_or(usize::MAX) {
        let message = format!("the model's context is {context} tokens; the prompt has at least {fewest}");
        return Err(ApiError::context_length(param, message));
    }
    Ok(())
}

fn check_context(
    prompt: usize,
    params: &Params,
    card: &ModelCard,
    param: &'static str,
) -> Result<(), ApiError> {
    let context = u64::from(card.context_length);
    let prompt = u64::try_from(prompt).unwrap_or(u64::MAX);
    let wanted = u64::from(params.max_tokens.unwrap_or(1).max(params.min_tokens));
    if prompt.saturating_add(wanted) <= context {
        return Ok(());
    }
    let message = match params.max_tokens {
        Some(_) => format!("{prompt} tokens of prompt and {wanted} to generate"),
        None => format!("{prompt} tokens of prompt and room for at least {wanted}"),
    };
    let message = format!("the model's context is {context} tokens; the request needs {message}");
    Err(ApiError::context_length(param, message))
}
