//! From the bytes of a request to what workers are asked: parse, find the model, tokenize, check against its limits.
//!
//! Pure but for reading the fleet's snapshot. Invariant: a prompt that comes out fits the model's context together
//! with the tokens asked for, and every token id in it is in the vocabulary.

use weir_engine::{ModelCard, PromptEncoder, PromptError};

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
    encoder: &dyn PromptEncoder,
) -> Result<Prepared, ApiError> {
    let snapshot = fleet.snapshot();
    let (params, prompts, param) = match endpoint {
        Endpoint::Chat => {
            let ChatRequest { params, messages } = ChatRequest::parse(body)?;
            let card = card(&snapshot, &params.model)?;
            let turns: Vec<_> = messages
                .iter()
                .map(|message| (message.role, message.content.as_str()))
                .collect();
            let prompt = encoder.chat(&turns, most(card));
            let prompt = prompt.map_err(|error| no_prompt(&error, card, "messages"))?;
            (params, vec![prompt], "messages")
        }
        Endpoint::Completions => {
            let CompletionRequest { params, prompts } = CompletionRequest::parse(body)?;
            let card = card(&snapshot, &params.model)?;
            let prompts = prompts
                .into_iter()
                .map(|prompt| tokens(prompt, card, encoder))
                .collect::<Result<_, _>>()?;
            (params, prompts, "prompt")
        }
    };
    let card = card(&snapshot, &params.model)?;
    check_ids(&params, encoder)?;
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

fn tokens(prompt: Prompt, card: &ModelCard, encoder: &dyn PromptEncoder) -> Result<Vec<u32>, ApiError> {
    match prompt {
        Prompt::Text(text) => encoder
            .text(&text, most(card))
            .map_err(|error| no_prompt(&error, card, "prompt")),
        Prompt::Tokens(ids) => match ids.iter().find(|id| **id >= encoder.vocabulary_size()) {
            Some(id) => Err(unknown_id("prompt", *id, encoder)),
            None => Ok(ids),
        },
    }
}

fn unknown_id(param: &'static str, id: u32, encoder: &dyn PromptEncoder) -> ApiError {
    let last = encoder.vocabulary_size().saturating_sub(1);
    ApiError::invalid(
        param,
        format!("{param} has token id {id}; the model's ids are 0 to {last}"),
    )
}

fn check_ids(params: &Params, encoder: &dyn PromptEncoder) -> Result<(), ApiError> {
    let biased = params
        .sampling
        .logit_bias
        .iter()
        .map(|(id, _)| ("logit_bias", *id));
    let stops = params.stop_token_ids.iter().map(|id| ("stop_token_ids", *id));
    match stops
        .chain(biased)
        .find(|(_, id)| *id >= encoder.vocabulary_size())
    {
        Some((param, id)) => Err(unknown_id(param, id, encoder)),
        None => Ok(()),
    }
}

/// Tokens of a prompt that could fit the model.
fn most(card: &ModelCard) -> usize {
    usize::try_from(card.context_length).unwrap_or(usize::MAX)
}

fn no_prompt(error: &PromptError, card: &ModelCard, param: &'static str) -> ApiError {
    match error {
        PromptError::TooLong { .. } => {
            let message = format!("the model's context is {} tokens; {error}", card.context_length);
            ApiError::context_length(param, message)
        }
        PromptError::Template(what) => ApiError::invalid(param, what),
    }
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
