//! Which token comes next: a pure function of model, prompt, seed, choice and position.
//!
//! Only tokens that are whole characters and no control characters are drawn, so every mock token is text.

use std::sync::LazyLock;

use crate::{Request, tokenizer::Tokenizer};

/// The tokens of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens {
    state: u64,
}

impl Tokens {
    pub(super) fn of(request: &Request) -> Self {
        let model = request.model.bytes().map(u64::from);
        let prompt = request.prompt.iter().copied().map(u64::from);
        let draw = [request.sampling.seed.unwrap_or(0), request.choice.into()];
        let words = model
            .chain([u64::MAX])
            .chain(prompt)
            .chain([u64::MAX])
            .chain(draw);
        Self {
            state: words.fold(0, |state, word| mix(state ^ word)),
        }
    }

    /// The id of token `position`.
    pub(super) fn id(self, position: u32) -> u32 {
        let texts = texts();
        let draw = mix(self.state.wrapping_add(u64::from(position)));
        let index = usize::try_from(draw % texts.len() as u64).unwrap_or(0);
        texts.get(index).copied().unwrap_or(0)
    }
}

/// The ids that may be drawn.
fn texts() -> &'static [u32] {
    static TEXTS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let tokenizer = Tokenizer::builtin();
        let is_text = |id: &u32| {
            let piece = std::str::from_utf8(tokenizer.piece(*id));
            piece.is_ok_and(|text| !text.is_empty() && !text.chars().any(char::is_control))
        };
        (0..tokenizer.vocabulary_size()).filter(is_text).collect()
    });
    &TEXTS
}

/// The finaliser of splitmix64 with its increment: a bijection in which every input bit moves every output bit.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
