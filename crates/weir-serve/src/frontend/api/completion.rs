//! The body of `/v1/completions`.
//!
//! A prompt is text or token ids, alone or several of them; each prompt makes `n` choices. Invariant: there is at
//! least one prompt, none is empty, and prompts times `n` stay within the limit of choices.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    ApiError, Params,
    fields::{Field, object},
    params::{MAX_CHOICES, RawParams},
};

/// Prompts to continue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompletionRequest {
    pub(crate) params: Params,
    pub(crate) prompts: Vec<Prompt>,
}

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// To be tokenized.
    Text(String),
    /// Token ids, not yet checked against a vocabulary.
    Tokens(Vec<u32>),
}

#[derive(Deserialize)]
struct RawCompletion<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    suffix: Option<&'a RawValue>,
    echo: Option<&'a RawValue>,
    best_of: Option<&'a RawValue>,
}

impl CompletionRequest {
    /// Reads the body of a request.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let params = object::<RawParams<'_>>(body)?.read()?;
        let raw: RawCompletion<'_> = object(body)?;
        Field::new("suffix", raw.suffix)
            .unsupported(&["\"\""], "is not available: engines here only continue")?;
        Field::new("echo", raw.echo).unsupported(&["false"], "is not available")?;
        let best_of = Field::new("best_of", raw.best_of);
        if best_of.count(1)?.is_some_and(|best_of| best_of != params.n) {
            return Err(best_of.error("must be absent or equal to n"));
        }
        let field = Field::new("prompt", raw.prompt);
        let prompts = read_prompts(&field)?;
        let choices = prompts
            .len()
            .saturating_mul(usize::try_from(params.n).unwrap_or(usize::MAX));
        if choices > MAX_CHOICES as usize {
            return Err(field.error(format_args!(
                "makes {choices} choices with n; at most {MAX_CHOICES} are taken"
            )));
        }
        Ok(Self { params, prompts })
    }
}

fn read_prompts(field: &Field<'_>) -> Result<Vec<Prompt>, ApiError> {
    let what = "a string, an array of strings, an array of token ids or an array of such arrays";
    let text = field.text().ok_or_else(|| field.error("is missing"))?;
    let prompts = match text.as_bytes() {
        [b'"', ..] => vec![Prompt::Text(field.string()?.unwrap_or_default())],
        [b'[', rest @ ..] => match rest.trim_ascii_start() {
            [b'"', ..] => read_array(field, what)?.into_iter().map(Prompt::Text).collect(),
            [b'[', ..] => read_array(field, what)?.into_iter().map(Prompt::Tokens).collect(),
            _ => vec![Prompt::Tokens(read_array(field, what)?)],
        },
        _ => return Err(field.expected(what)),
    };
    match prompts.iter().any(Prompt::is_empty) {
        true => Err(field.error("must not be empty")),
        false => Ok(prompts),
    }
}

fn read_array<T: DeserializeOwned>(field: &Field<'_>, what: &str) -> Result<Vec<T>, ApiError> {
    Ok(field.parse(what)?.unwrap_or_default())
}

impl Prompt {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Tokens(ids) => ids.is_empty(),
        }
    }
}
