//! What every engine checks before it takes a request.

use crate::{ModelCard, Refusal, Request, tokenizer::Tokenizer};

impl ModelCard {
    /// The card of a model that speaks the shipped tokenizer.
    pub fn builtin(name: &str, context_length: u32) -> Self {
        let tokenizer = Tokenizer::builtin().fingerprint().to_owned();
        Self {
            name: name.to_owned(),
            context_length,
            tokenizer,
        }
    }

    /// Whether `request` is for this model, has a prompt, and leaves room in the context for a token.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] names what is wrong.
    pub fn admit(&self, request: &Request) -> Result<(), Refusal> {
        if request.model != self.name {
            return Err(Refusal::Invalid(format!(
                "this worker serves {}, not {}",
                self.name, request.model
            )));
        }
        if request.prompt.is_empty() {
            return Err(Refusal::Invalid("the prompt is empty".to_owned()));
        }
        if self.room(request) == 0 {
            let (len, limit) = (request.prompt.len(), self.context_length);
            return Err(Refusal::Invalid(format!(
                "the prompt has {len} tokens; the context holds {limit}"
            )));
        }
        Ok(())
    }

    /// How many tokens fit into the context behind the request's prompt.
    pub fn room(&self, request: &Request) -> u32 {
        self.context_length.saturating_sub(prompt_len(request))
    }
}

/// Length of the prompt in tokens.
pub(crate) fn prompt_len(request: &Request) -> u32 {
    u32::try_from(request.prompt.len()).unwrap_or(u32::MAX)
}
