//! The body of `/v1/chat/completions`.
//!
//! Text only: parts of other kinds are refused by name. Invariant: there is at least one message, and each has a role
//! and a text that is empty only where that is legal.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_engine::chat::Role;

use super::{
    ApiError, Params, cut,
    fields::{Field, object},
    params::RawParams,
};

/// A chat to continue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChatRequest {
    pub(crate) params: Params,
    pub(crate) messages: Vec<Message>,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) content: String,
}

#[derive(Deserialize)]
struct RawChat<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawPart<'a> {
    #[serde(rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    text: Option<String>,
}

impl ChatRequest {
    /// Reads the body of a request.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let params = object::<RawParams<'_>>(body)?.read()?;
        let field = Field::new("messages", object::<RawChat<'_>>(body)?.messages);
        let text = field
            .text()
            .ok_or_else(|| field.error("must be an array of messages"))?;
        let raw: Vec<RawMessage<'_>> = match field.first() {
            Some(b'[') => {
                serde_json::from_str(text).map_err(|_| field.error("must hold objects with a role"))?
            }
            _ => return Err(field.expected("an array of messages")),
        };
        if raw.is_empty() {
            return Err(field.error("must hold at least one message"));
        }
        let messages = raw
            .iter()
            .enumerate()
            .map(|(index, raw)| read_message(index, raw))
            .collect::<Result<_, _>>()?;
        Ok(Self { params, messages })
    }
}

fn read_message(index: usize, raw: &RawMessage<'_>) -> Result<Message, ApiError> {
    let error = |member: &str, message: &str| {
        let param = format!("messages[{index}].{member}");
        ApiError::invalid(param.clone(), format!("{param} {message}"))
    };
    let role = raw
        .role
        .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let role: Option<Role> = role.and_then(|role| role.parse().ok());
    let role = role.ok_or_else(|| error("role", "must be system, developer, user, assistant or tool"))?;
    let content = raw.content.map(RawValue::get).unwrap_or("null");
    let content = match content.as_bytes() {
        [b'"', ..] => serde_json::from_str(content).map_err(|_| error("content", "is not valid text"))?,
        [b'[', ..] => read_parts(content).map_err(|message| error("content", &message))?,
        b"null" if role == Role::Assistant && raw.tool_calls.is_some() => String::new(),
        b"null" => {
            return Err(error(
                "content",
                "must be text; it may be null only beside tool_calls",
            ));
        }
        _ => return Err(error("content", "must be a string or an array of text parts")),
    };
    Ok(Message { role, content })
}

fn read_parts(content: &str) -> Result<String, String> {
    let parts: Vec<RawPart<'_>> = serde_json::from_str(content)
        .map_err(|_| "must hold parts like {\"type\": \"text\", \"text\": \"...\"}")?;
    let mut text = String::new();
    for part in &parts {
        match (part.kind.as_ref(), &part.text) {
            ("text", Some(more)) => text.push_str(more),
            ("text", None) => return Err("has a text part without text".to_owned()),
            (other, _) => return Err(format!("has a part of type '{}'; only text is taken", cut(other))),
        }
    }
    Ok(text)
}
