//! The chat template of models that bring none: every turn is a role token, its text and an end token.
//!
//! Roles are special tokens, so no message can pretend to be another's turn.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::tokenizer::{Special, Tokenizer};

/// Who speaks in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions; OpenAI's `developer` is the same.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool.
    Tool,
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        match name {
            "system" | "developer" => Ok(Self::System),
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            "tool" => Ok(Self::Tool),
            _ => Err(UnknownRole),
        }
    }
}

/// A role that is none of system, developer, user, assistant and tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("role must be system, developer, user, assistant or tool")]
pub struct UnknownRole;

impl Role {
    /// The role as chat templates call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    fn token(self) -> Special {
        match self {
            Self::System => Special::System,
            Self::User => Special::User,
            Self::Assistant => Special::Assistant,
            Self::Tool => Special::Tool,
        }
    }
}

/// The prompt tokens of a conversation, up to where the model's next turn begins. A conversation of `n` turns has
/// `2 n + 2` tokens more than its texts.
pub fn prompt<'a>(tokenizer: &Tokenizer, turns: impl IntoIterator<Item = (Role, &'a str)>) -> Vec<u32> {
    let mut out = vec![tokenizer.special(Special::Begin)];
    for (role, text) in turns {
        out.push(tokenizer.special(role.token()));
        tokenizer.encode_into(text.as_bytes(), &mut out);
        out.push(tokenizer.special(Special::End));
    }
    out.push(tokenizer.special(Special::Assistant));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_role_text_end() {
        let tokenizer = Tokenizer::builtin();
        let prompt = prompt(tokenizer, [(Role::System, "Be brief."), (Role::User, "Hi")]);
        let texts = [tokenizer.encode("Be brief."), tokenizer.encode("Hi")];
        let special = |token| vec![tokenizer.special(token)];
        let expected = [
            special(Special::Begin),
            special(Special::System),
            texts[0].clone(),
            special(Special::End),
            special(Special::User),
            texts[1].clone(),
            special(Special::End),
            special(Special::Assistant),
        ];
        assert_eq!(prompt, expected.concat());
    }

    #[test]
    fn developer_is_system_and_others_are_refused() {
        assert_eq!("developer".parse(), Ok(Role::System));
        assert_eq!("root".parse::<Role>(), Err(UnknownRole));
    }
}
