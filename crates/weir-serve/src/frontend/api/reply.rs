//! Whole answers as JSON: completions that were not streamed, and the list of models.
//!
//! Invariant: an answer has exactly the choices that were asked for, in order of their index.

use weir_engine::{FinishReason, Usage};

use super::{Endpoint, json, sse};

/// One whole answer.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) endpoint: Endpoint,
    pub(crate) id: &'a str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    /// Text and end of each choice, by index.
    pub(crate) choices: &'a [(String, FinishReason)],
    pub(crate) usage: Usage,
}

impl Answer<'_> {
    /// The answer as a JSON object.
    pub(crate) fn render(&self) -> Vec<u8> {
        let text: usize = self
            .choices
            .iter()
            .map(|(text, _)| text.len().saturating_add(128))
            .sum();
        let mut out = Vec::with_capacity(text.saturating_add(512));
        out.extend_from_slice(b"{\"id\":");
        json::string(&mut out, self.id);
        let (object, created) = (self.endpoint.object(), self.created);
        out.extend_from_slice(
            format!(",\"object\":\"{object}\",\"created\":{created},\"model\":").as_bytes(),
        );
        json::string(&mut out, self.model);
        out.extend_from_slice(b",\"choices\":[");
        for (index, (text, reason)) in self.choices.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(format!("{{\"index\":{index},").as_bytes());
            self.render_text(&mut out, text);
            out.extend_from_slice(b",\"logprobs\":null,\"finish_reason\":");
            json::string(&mut out, sse::reason_name(*reason));
            out.push(b'}');
        }
        out.extend_from_slice(b"],\"usage\":");
        sse::render_usage(&mut out, self.usage);
        out.push(b'}');
        out
    }

    fn render_text(&self, out: &mut Vec<u8>, text: &str) {
        match self.endpoint {
            Endpoint::Chat => {
                out.extend_from_slice(b"\"message\":{\"role\":\"assistant\",\"content\":");
                json::string(out, text);
                out.extend_from_slice(b",\"refusal\":null}");
            }
            Endpoint::Completions => {
                out.extend_from_slice(b"\"text\":");
                json::string(out, text);
            }
        }
    }
}

/// The body of `/v1/models/{name}`. `context_length` is an addition of ours that other servers have too.
pub(crate) fn model(out: &mut Vec<u8>, name: &str, created: u64, context_length: u32) {
    out.extend_from_slice(b"{\"id\":");
    json::string(out, name);
    out.extend_from_slice(
        format!(",\"object\":\"model\",\"created\":{created},\"owned_by\":\"weir\",\"context_length\":{context_length}}}")
            .as_bytes(),
    );
}

/// The body of `/v1/models`.
pub(crate) fn models<'a>(models: impl Iterator<Item = (&'a str, u64, u32)>) -> Vec<u8> {
    let mut out = b"{\"object\":\"list\",\"data\":[".to_vec();
    for (index, (name, created, context_length)) in models.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        model(&mut out, name, created, context_length);
    }
    out.extend_from_slice(b"]}");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_answer_holds_every_choice_with_its_index_and_end() {
        let choices = [
            ("a\n".to_owned(), FinishReason::Stop),
            (String::new(), FinishReason::Length),
        ];
        let usage = Usage {
            prompt_tokens: 4,
            cached_tokens: 1,
            completion_tokens: 9,
        };
        let answer = Answer {
            endpoint: Endpoint::Chat,
            id: "chatcmpl-x",
            created: 5,
            model: "m",
            choices: &choices,
            usage,
        };
        let body: Value = serde_json::from_slice(&answer.render()).unwrap();
        assert_eq!(body["object"], "chat.completion");
        assert_eq!(body["choices"][0]["message"]["content"], "a\n");
        assert_eq!(body["choices"][1]["index"], 1);
        assert_eq!(body["choices"][1]["finish_reason"], "length");
        assert_eq!(body["usage"]["total_tokens"], 13);
        let answer = Answer {
            endpoint: Endpoint::Completions,
            ..answer
        };
        let body: Value = serde_json::from_slice(&answer.render()).unwrap();
        assert_eq!(body["choices"][0]["text"], "a\n");
    }

    #[test]
    fn models_are_a_list() {
        let body: Value = serde_json::from_slice(&models([("a", 1, 2), ("b", 3, 4)].into_iter())).unwrap();
        assert_eq!(body["object"], "list");
        assert_eq!(
            body["data"][1],
            json!({"id": "b", "object": "model", "created": 3, "owned_by": "weir", "context_length": 4})
        );
    }
}
