//! Request bodies: a different prompt for each request, a pure function of seed and index.

use serde_json::{Value, json};

use super::config::{Endpoint, LoadConfig};
use crate::rng::Rng;

/// Token ids are drawn from here: byte-level vocabularies have ordinary tokens there, and special ones do not begin
/// before.
const FIRST_TOKEN: u32 = 32;
const TOKENS: u32 = 224;
const WORDS: [&str; 16] = [
    "river", "stone", "light", "after", "seven", "under", "paper", "green", "north", "table", "water",
    "cloud", "early", "field", "voice", "night",
];

/// The body of request `index`.
pub(super) fn body(config: &LoadConfig, index: u64) -> Vec<u8> {
    let mut rng = Rng::new(config.seed ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut body = json!({
        "model": config.model,
        "stream": true,
        "stream_options": {"include_usage": true},
        "ignore_eos": true,
    });
    match config.endpoint {
        Endpoint::Completions => {
            let ids = (0..config.isl).map(|_| Value::from(FIRST_TOKEN + rng.below(TOKENS)));
            body["prompt"] = ids.collect();
            body["max_tokens"] = config.osl.into();
        }
        Endpoint::Chat => {
            let words: Vec<&str> = (0..config.isl)
                .map(|_| WORDS[(rng.next() % 16) as usize])
                .collect();
            body["messages"] = json!([{"role": "user", "content": words.join(" ")}]);
            body["max_completion_tokens"] = config.osl.into();
        }
    }
    body.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::config::tests::config;

    fn parsed(config: &LoadConfig, index: u64) -> Value {
        serde_json::from_slice(&body(config, index)).unwrap()
    }

    #[test]
    fn a_completion_prompt_has_exactly_the_tokens_asked_for() {
        let config = LoadConfig {
            isl: 300,
            ..config("http://h")
        };
        let body = parsed(&config, 3);
        let ids: Vec<u64> = body["prompt"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap())
            .collect();
        assert_eq!(ids.len(), 300);
        assert!(ids.iter().all(|id| (32..256).contains(id)));
        assert_eq!(body["max_tokens"], 4);
        assert_eq!(body["stream_options"]["include_usage"], true);
    }

    #[test]
    fn prompts_differ_by_request_and_by_seed_and_repeat_with_both() {
        let first = LoadConfig {
            isl: 16,
            ..config("http://h")
        };
        let other = LoadConfig {
            seed: 2,
            ..first.clone()
        };
        assert_eq!(body(&first, 5), body(&first, 5));
        assert_ne!(body(&first, 5), body(&first, 6));
        assert_ne!(body(&first, 5), body(&other, 5));
    }

    #[test]
    fn a_chat_prompt_has_a_message() {
        let config = LoadConfig {
            endpoint: Endpoint::Chat,
            ..config("http://h")
        };
        let body = parsed(&config, 0);
        assert_eq!(
            body["messages"][0]["content"]
                .as_str()
                .unwrap()
                .split(' ')
                .count(),
            4
        );
        assert_eq!(body["max_completion_tokens"], 4);
    }
}
