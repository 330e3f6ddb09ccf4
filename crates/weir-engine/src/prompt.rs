//! From what a client says to prompt ids: the seam between a frontend and the tokenizer of the models it serves.
//!
//! A frontend holds one [`PromptEncoder`] and routes to no worker whose [`ModelCard`](crate::ModelCard) names another
//! fingerprint. Invariant: plain text and the texts of messages never encode to tokens that steer the model.

use crate::{
    chat::{self, Role},
    tokenizer::Tokenizer,
};

/// Why there are no prompt ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// It was not tokenized, for it cannot fit.
    #[error("the prompt has at least {fewest} tokens")]
    TooLong {
        /// It has no fewer tokens than this.
        fewest: usize,
    },
    /// The chat template refused the conversation, or failed.
    #[error("{0}")]
    Template(String),
}

/// Turns text and conversations into prompt ids.
pub trait PromptEncoder: std::fmt::Debug + Send + Sync + 'static {
    /// Names the tokenizer; equal fingerprints encode alike.
    fn fingerprint(&self) -> &str;
    /// Number of token ids.
    fn vocabulary_size(&self) -> u32;
    /// The ids of a text that is to be continued. Takes time linear in its length.
    ///
    /// # Errors
    /// [`PromptError::TooLong`] when it obviously has more than `most` tokens; whoever asks still has to count.
    fn text(&self, text: &str, most: usize) -> Result<Vec<u32>, PromptError>;
    /// The ids of a conversation, up to where the model's next turn begins.
    ///
    /// # Errors
    /// As [`text`](Self::text), and [`PromptError::Template`].
    fn chat(&self, turns: &[(Role, &str)], most: usize) -> Result<Vec<u32>, PromptError>;
    /// Whether a short conversation may take long, because a template of unknown origin is run. Default: no.
    fn runs_templates(&self) -> bool {
        false
    }
}

impl PromptEncoder for &'static Tokenizer {
    fn fingerprint(&self) -> &str {
        (**self).fingerprint()
    }

    fn vocabulary_size(&self) -> u32 {
        (**self).vocabulary_size()
    }

    fn text(&self, text: &str, most: usize) -> Result<Vec<u32>, PromptError> {
        check(self.fewest_tokens(text.len()), most)?;
        Ok(self.encode(text))
    }

    fn chat(&self, turns: &[(Role, &str)], most: usize) -> Result<Vec<u32>, PromptError> {
        let bytes = turns.iter().map(|(_, text)| text.len()).sum();
        check(self.fewest_tokens(bytes), most)?;
        Ok(chat::prompt(self, turns.iter().copied()))
    }
}

/// Whether a prompt of at least `fewest` tokens may be tried.
///
/// # Errors
/// [`PromptError::TooLong`].
pub fn check(fewest: usize, most: usize) -> Result<(), PromptError> {
    if fewest > most {
        return Err(PromptError::TooLong { fewest });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_fit_is_not_tokenized() {
        let encoder = Tokenizer::builtin();
        let long = "x".repeat(100_000);
        let fewest = encoder.fewest_tokens(long.len());
        let expected = Err(PromptError::TooLong { fewest });
        assert_eq!(encoder.text(&long, fewest - 1), expected);
        assert_eq!(encoder.chat(&[(Role::User, &long)], fewest - 1), expected);
        assert_eq!(encoder.text("hello", 1), Ok(Tokenizer::builtin().encode("hello")));
    }
}
