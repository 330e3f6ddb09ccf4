//! Prompts for a model file: its tokenizer and chat template, without its weights.
//!
//! Only the file's metadata is read, and nothing of it stays mapped. Invariant: whatever a message says, it encodes to
//! no control token; those come from the template alone.

use weir_engine::chat::Role;
use weir_engine::prompt::{PromptEncoder, PromptError, check};

use crate::arch::Arch;
use crate::gguf::{Gguf, GgufError};
use crate::template::{ChatTemplate, Message, Source, TemplateError};
use crate::tokenizer::{Encode, Tokenizer, TokenizerError, fingerprint};

/// Why a file's prompts cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PromptsError {
    /// The file is of an architecture that is not run.
    #[error(transparent)]
    File(#[from] GgufError),
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The template does not compile.
    #[error("{0}; give another one with --chat-template")]
    Template(#[from] TemplateError),
}

/// Turns text and chats into ids as a model file wants it.
#[derive(Debug)]
pub struct ModelPrompts {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    fingerprint: String,
    /// Bytes of the longest token.
    longest: usize,
}

/// Characters that no text should hold, one of which keeps control tokens in messages apart.
const MARKS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

impl ModelPrompts {
    /// Reads tokenizer and template of a file; `template` takes the place of the file's.
    ///
    /// # Errors
    /// [`PromptsError`] names the key, or what is wrong with the template.
    pub fn from_gguf(gguf: &Gguf, template: Option<&str>) -> Result<Self, PromptsError> {
        let family = Arch::from_gguf(gguf)?.family;
        let tokenizer = Tokenizer::from_gguf(gguf)?;
        let written = |id: Option<u32>| {
            let mut bytes = Vec::new();
            id.into_iter()
                .for_each(|id| tokenizer.piece(id, true, &mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (bos, eos) = (written(tokenizer.bos()), written(tokenizer.eos()));
        let file = gguf.text("tokenizer.chat_template");
        let template = ChatTemplate::choose(template, file, family, &bos, &eos)?;
        let mut piece = Vec::new();
        let lengths = (0..tokenizer.len()).map(|id| {
            piece.clear();
            tokenizer.piece(id, true, &mut piece);
            piece.len()
        });
        // What is not in the vocabulary goes to at least a token for each character.
        let longest = lengths.max().unwrap_or(0).max(4);
        Ok(Self {
            template,
            fingerprint: fingerprint(gguf),
            longest,
            tokenizer,
        })
    }

    /// Where the template came from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.template.source()
    }

    /// The messages as the template gets them, and the mark that is in their control tokens, when there are any.
    fn messages(&self, turns: &[(Role, &str)]) -> Result<(Vec<Message>, Option<char>), PromptError> {
        let marked = turns.iter().any(|(_, text)| self.tokenizer.has_control(text));
        let mark = marked.then(|| {
            let free = MARKS
                .into_iter()
                .find(|mark| !turns.iter().any(|(_, text)| text.contains(*mark)));
            free.ok_or_else(|| {
                PromptError::Template("the messages hold every noncharacter there is".to_owned())
            })
        });
        let mark = mark.transpose()?;
        let message = |(role, text): &(Role, &str)| Message {
            role: role.name().to_owned(),
            content: match mark {
                Some(mark) => self.tokenizer.mark_control(text, mark),
                None => (*text).to_owned(),
            },
        };
        Ok((turns.iter().map(message).collect(), mark))
    }
}

impl PromptEncoder for ModelPrompts {
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn vocabulary_size(&self) -> u32 {
        self.tokenizer.len()
    }

    fn text(&self, text: &str, most: usize) -> Result<Vec<u32>, PromptError> {
        check(text.len().div_ceil(self.longest), most)?;
        let how = Encode {
            with_bos: true,
            parse_special: false,
        };
        Ok(self.tokenizer.encode(text.as_bytes(), how))
    }

    fn chat(&self, turns: &[(Role, &str)], most: usize) -> Result<Vec<u32>, PromptError> {
        let (messages, mark) = self.messages(turns)?;
        let text = self
            .template
            .render(&messages)
            .map_err(|fault| PromptError::Template(fault.to_string()))?;
        check(text.len().div_ceil(self.longest), most)?;
        let how = Encode {
            with_bos: true,
            parse_special: true,
        };
        let mut ids = self.tokenizer.encode_unmarked(text.as_bytes(), how, mark);
        // Many templates write the beginning of the text themselves.
        if ids.len() > 1 && ids[0] == ids[1] && self.tokenizer.bos() == Some(ids[0]) {
            ids.remove(0);
        }
        Ok(ids)
    }

    fn runs_templates(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Family;
    use crate::gguf::TensorType;
    use crate::tiny::TinyModel;

    fn file(family: Family, template: Option<&str>) -> Gguf {
        let mut tiny = TinyModel::new(family, TensorType::named("Q8_0").unwrap());
        tiny.template = template.map(str::to_owned);
        Gguf::from_bytes(tiny.to_bytes().unwrap()).unwrap()
    }

    fn prompts(family: Family, template: Option<&str>) -> ModelPrompts {
        ModelPrompts::from_gguf(&file(family, None), template).unwrap()
    }

    fn whole(prompts: &ModelPrompts, text: &str) -> Vec<u32> {
        let how = Encode {
            with_bos: true,
            parse_special: true,
        };
        prompts.tokenizer.encode(text.as_bytes(), how)
    }

    #[test]
    fn a_chat_begins_once_and_turns_are_control_tokens() {
        let expected = "<start_of_turn>user\nHi the<end_of_turn>\n<start_of_turn>model\n";
        let plain = prompts(Family::Gemma3, None);
        let found = plain.chat(&[(Role::User, "Hi the")], 100).unwrap();
        assert_eq!(found, whole(&plain, expected));
        assert_eq!(found[0], plain.tokenizer.bos().unwrap());
        let begins = prompts(
            Family::Gemma3,
            Some(
                "{{ bos_token }}<start_of_turn>user\n{{ messages[0].content }}<end_of_turn>\n<start_of_turn>model\n",
            ),
        );
        assert_eq!(begins.chat(&[(Role::User, "Hi the")], 100).unwrap(), found);
    }

    #[test]
    fn no_message_writes_a_control_token() {
        for family in [Family::Gemma3, Family::Qwen3] {
            let prompts = prompts(family, Some("{{ messages[0].content }}"));
            for text in [
                "<end_of_turn>",
                "a<|im_end|>b",
                "<bos>",
                "<<bos><eos>",
                "<|im_start|><|im_start|>system\n\n\n",
                "\u{fdd0}<eos>\u{fdd1}",
                "<unk>",
            ] {
                let ids = prompts.chat(&[(Role::User, text)], 1000).unwrap();
                let begins = usize::from(family == Family::Gemma3);
                assert!(
                    !ids[begins..].iter().any(|id| prompts.tokenizer.is_control(*id)),
                    "{text}: {ids:?}"
                );
                assert_eq!(prompts.tokenizer.decode(&ids), text);
                assert_eq!(ids, prompts.text(text, 1000).unwrap());
            }
        }
    }

    #[test]
    fn templates_fail_with_their_words_and_long_texts_are_not_tokenized() {
        let raising = prompts(Family::Llama, Some("{{ raise_exception('alternate!') }}"));
        let fault = raising.chat(&[(Role::User, "x")], 10).unwrap_err();
        assert!(
            matches!(&fault, PromptError::Template(what) if what.contains("alternate!")),
            "{fault}"
        );
        let long = "x".repeat(100_000);
        let plain = prompts(Family::Llama, None);
        assert!(matches!(plain.text(&long, 100), Err(PromptError::TooLong { fewest }) if fewest > 100));
        assert!(matches!(
            plain.chat(&[(Role::User, &long)], 100),
            Err(PromptError::TooLong { .. })
        ));
        assert!(plain.text(&long, 100_000).unwrap().len() >= long.len().div_ceil(plain.longest));
        let broken = ModelPrompts::from_gguf(&file(Family::Llama, Some("{% for %}")), None).unwrap_err();
        assert!(broken.to_string().contains("--chat-template"), "{broken}");
    }

    #[test]
    fn fingerprints_tell_tokenizers_apart_and_nothing_else() {
        let one = fingerprint(&file(Family::Gemma3, None));
        let template = fingerprint(&file(Family::Gemma3, Some("x")));
        let mut other = TinyModel::new(Family::Gemma3, TensorType::named("F32").unwrap());
        other.seed = 9;
        let weights = fingerprint(&Gguf::from_bytes(other.to_bytes().unwrap()).unwrap());
        assert_eq!((&one, &one), (&template, &weights));
        assert_ne!(one, fingerprint(&file(Family::Qwen3, None)));
    }
}
