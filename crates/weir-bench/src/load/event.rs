//! What the data of one event means to a client.

use std::borrow::Cow;

use serde::Deserialize;

use super::record::Usage;

/// The meaning of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// `[DONE]`.
    Done,
    /// An error inside the stream, with what it said.
    Error(String),
    /// Anything else.
    Chunk(Chunk),
}

/// What a chunk carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Text that is not empty, in whatever channel; a role alone is not content.
    pub(super) content: bool,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default, borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reasoning: Option<Cow<'a, str>>,
}

impl Choice<'_> {
    fn has_content(&self) -> bool {
        let delta = self
            .delta
            .iter()
            .flat_map(|delta| [&delta.content, &delta.reasoning_content, &delta.reasoning]);
        delta.chain([&self.text]).flatten().any(|text| !text.is_empty())
    }
}

/// Reads an event. Data that is not JSON is an error: a client could not have used it.
pub(super) fn read(name: &[u8], data: &[u8]) -> Meaning {
    if data == b"[DONE]" {
        return Meaning::Done;
    }
    if name == b"error" {
        return Meaning::Error(shortened(&String::from_utf8_lossy(data)));
    }
    match serde_json::from_slice::<Body<'_>>(data) {
        Err(error) => Meaning::Error(shortened(&format!(
            "not a chunk ({error}): {}",
            String::from_utf8_lossy(data)
        ))),
        Ok(Body {
            error: Some(error), ..
        }) => Meaning::Error(shortened(&error.to_string())),
        Ok(Body { choices, usage, .. }) => Meaning::Chunk(Chunk {
            content: choices.iter().any(Choice::has_content),
            finish_reason: choices.into_iter().find_map(|choice| choice.finish_reason),
            usage,
        }),
    }
}

/// At most 300 characters of `text`.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(data: &str) -> Chunk {
        match read(b"", data.as_bytes()) {
            Meaning::Chunk(chunk) => chunk,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_role_or_empty_text_is_no_content() {
        for data in [
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":null}}]}"#,
            r#"{"choices":[{"text":""}]}"#,
            r#"{"choices":[]}"#,
            "{}",
        ] {
            assert!(!chunk(data).content, "{data}");
        }
    }

    #[test]
    fn text_in_any_channel_is_content() {
        for data in [
            r#"{"choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"content":"\u00e9\n"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"a"}}]}"#,
            r#"{"choices":[{"text":"a","index":0,"unknown":{}}],"usage":null}"#,
        ] {
            assert!(chunk(data).content, "{data}");
        }
    }

    #[test]
    fn usage_and_finish_are_read() {
        let last =
            chunk(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#);
        assert_eq!(
            last.usage,
            Some(Usage {
                prompt_tokens: 3,
                completion_tokens: 4
            })
        );
        let finish = chunk(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#);
        assert_eq!(finish.finish_reason.as_deref(), Some("length"));
    }

    #[test]
    fn errors_come_in_three_forms() {
        let error = |name: &[u8], data: &str| matches!(read(name, data.as_bytes()), Meaning::Error(_));
        assert!(error(b"", r#"{"error":{"message":"x"}}"#));
        assert!(error(b"error", "anything"));
        assert!(error(b"", "not json"));
        assert!(error(b"", r#"{"choices":7}"#));
    }
}
