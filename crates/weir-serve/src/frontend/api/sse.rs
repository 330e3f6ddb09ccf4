//! The events of one answer: chunks, usage, error, `[DONE]`.
//!
//! All bytes of a chunk that do not change with the token are rendered once per answer; a token costs its escaped
//! text and a few copies into the frame that is being filled. It decides nothing about order. Invariant: each method
//! appends exactly one complete event, `data: ...` and an empty line.

use weir_engine::{FinishReason, Usage};

use super::{ApiError, Endpoint, json};

/// Renders the events of one answer.
#[derive(Debug)]
pub(crate) struct Encoder {
    endpoint: Endpoint,
    /// Up to and including `"choices":[`.
    head: Box<[u8]>,
    /// Up to the text of a chunk that is not the first, by choice.
    token_heads: Box<[Box<[u8]>]>,
    /// After the closing `]` of `choices`.
    tail: &'static [u8],
}

impl Encoder {
    /// An encoder for `choices` choices. With `usage` every chunk says `"usage":null`, as clients that ask for usage
    /// expect.
    pub(crate) fn new(
        endpoint: Endpoint,
        id: &str,
        created: u64,
        model: &str,
        choices: u32,
        usage: bool,
    ) -> Self {
        let mut head = b"data: {\"id\":".to_vec();
        json::string(&mut head, id);
        head.extend_from_slice(
            format!(",\"object\":\"{}\",\"created\":{created},", endpoint.chunk()).as_bytes(),
        );
        head.extend_from_slice(b"\"model\":");
        json::string(&mut head, model);
        head.extend_from_slice(b",\"choices\":[");
        let token_heads = (0..choices)
            .map(|index| {
                let mut bytes = head.clone();
                bytes.extend_from_slice(format!("{{\"index\":{index},").as_bytes());
                bytes.extend_from_slice(match endpoint {
                    Endpoint::Chat => b"\"delta\":{\"content\":\"",
                    Endpoint::Completions => b"\"text\":\"",
                });
                bytes.into()
            })
            .collect();
        let tail: &[u8] = if usage { b",\"usage\":null}\n\n" } else { b"}\n\n" };
        Self {
            endpoint,
            head: head.into(),
            token_heads,
            tail,
        }
    }

    /// Whose answer it is.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Number of choices.
    pub(crate) fn choices(&self) -> u32 {
        u32::try_from(self.token_heads.len()).unwrap_or(u32::MAX)
    }

    /// One token's text.
    pub(crate) fn token(&self, out: &mut Vec<u8>, choice: u32, text: &str) {
        let index = usize::try_from(choice).unwrap_or(usize::MAX);
        out.extend_from_slice(self.token_heads.get(index).map_or(&[], |head| head));
        json::escaped(out, text);
        out.extend_from_slice(match self.endpoint {
            Endpoint::Chat => b"\"},\"logprobs\":null,\"finish_reason\":null}]",
            Endpoint::Completions => b"\",\"logprobs\":null,\"finish_reason\":null}]",
        });
        out.extend_from_slice(self.tail);
    }

    /// A choice's first text in a chat, with the role beside it.
    pub(crate) fn role(&self, out: &mut Vec<u8>, choice: u32, text: &str) {
        self.open(out, choice);
        out.extend_from_slice(b"\"delta\":{\"role\":\"assistant\",\"content\":");
        json::string(out, text);
        out.extend_from_slice(b"},\"logprobs\":null,\"finish_reason\":null}]");
        out.extend_from_slice(self.tail);
    }

    /// The end of one choice.
    pub(crate) fn finish(&self, out: &mut Vec<u8>, choice: u32, reason: FinishReason) {
        self.open(out, choice);
        out.extend_from_slice(match self.endpoint {
            Endpoint::Chat => b"\"delta\":{}",
            Endpoint::Completions => b"\"text\":\"\"",
        });
        out.extend_from_slice(b",\"logprobs\":null,\"finish_reason\":\"");
        out.extend_from_slice(reason_name(reason).as_bytes());
        out.extend_from_slice(b"\"}]");
        out.extend_from_slice(self.tail);
    }

    /// The usage of all choices together.
    pub(crate) fn usage(&self, out: &mut Vec<u8>, usage: Usage) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"],\"usage\":");
        render_usage(out, usage);
        out.extend_from_slice(b"}\n\n");
    }

    fn open(&self, out: &mut Vec<u8>, choice: u32) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(format!("{{\"index\":{choice},").as_bytes());
    }
}

/// The error event; nothing follows it.
pub(crate) fn error(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(b"data: ");
    error.render(out);
    out.extend_from_slice(b"\n\n");
}

/// The last event of an answer that ended well.
pub(crate) fn done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: [DONE]\n\n");
}

/// OpenAI's name for `reason`.
pub(crate) fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// Appends the usage object.
pub(crate) fn render_usage(out: &mut Vec<u8>, usage: Usage) {
    let total = u64::from(usage.prompt_tokens).saturating_add(u64::from(usage.completion_tokens));
    out.extend_from_slice(
        format!(
            "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{total},\
             \"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}",
            usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
        )
        .as_bytes(),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(out: &[u8]) -> Value {
        let text = std::str::from_utf8(out).unwrap();
        let payload = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        assert!(!payload.contains(['\n', '\r']), "{payload}");
        serde_json::from_str(payload).unwrap()
    }

    fn rendered(render: impl FnOnce(&mut Vec<u8>)) -> Value {
        let mut out = Vec::new();
        render(&mut out);
        event(&out)
    }

    fn chat(usage: bool) -> Encoder {
        Encoder::new(
            Endpoint::Chat,
            "chatcmpl-1",
            1_700_000_000,
            "a \"model\"",
            2,
            usage,
        )
    }

    #[test]
    fn a_chat_token_is_one_whole_chunk() {
        assert_eq!(
            rendered(|out| chat(false).token(out, 1, "li\u{2028}ne\n")),
            json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000,
                "model": "a \"model\"",
                "choices": [{"index": 1, "delta": {"content": "li\u{2028}ne\n"}, "logprobs": null, "finish_reason": null}],
            })
        );
    }

    #[test]
    fn the_role_comes_with_text_and_only_there() {
        let first = rendered(|out| chat(false).role(out, 0, "Hi"));
        assert_eq!(
            first["choices"][0]["delta"],
            json!({"role": "assistant", "content": "Hi"})
        );
        let next = rendered(|out| chat(false).token(out, 0, "!"));
        assert_eq!(next["choices"][0]["delta"], json!({"content": "!"}));
    }

    #[test]
    fn the_end_of_a_choice_has_its_reason_and_an_empty_delta() {
        let end = rendered(|out| chat(false).finish(out, 1, FinishReason::Length));
        assert_eq!(
            end["choices"],
            json!([{"index": 1, "delta": {}, "logprobs": null, "finish_reason": "length"}])
        );
    }

    #[test]
    fn usage_is_null_in_chunks_and_whole_at_the_end_when_asked_for() {
        assert!(
            rendered(|out| chat(false).token(out, 0, "x"))
                .get("usage")
                .is_none()
        );
        assert_eq!(
            rendered(|out| chat(true).token(out, 0, "x")).get("usage"),
            Some(&Value::Null)
        );
        let usage = Usage {
            prompt_tokens: 7,
            cached_tokens: 3,
            completion_tokens: 5,
        };
        let last = rendered(|out| chat(true).usage(out, usage));
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["total_tokens"], 12);
        assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    }

    #[test]
    fn a_completion_has_text_and_no_delta() {
        let encoder = Encoder::new(Endpoint::Completions, "cmpl-1", 1, "m", 1, false);
        let token = rendered(|out| encoder.token(out, 0, "a\"b"));
        assert_eq!(token["object"], "text_completion");
        assert_eq!(
            token["choices"][0],
            json!({"index": 0, "text": "a\"b", "logprobs": null, "finish_reason": null})
        );
        let end = rendered(|out| encoder.finish(out, 0, FinishReason::Stop));
        assert_eq!(end["choices"][0]["text"], "");
    }

    #[test]
    fn an_error_event_has_a_top_level_error() {
        let value = rendered(|out| error(out, &ApiError::worker_lost("gone")));
        assert_eq!(value["error"]["code"], "worker_lost");
    }
}
