//! The byte-level BPE tokenizer that ships with weir: 256 bytes, 2,048 merges, 6 special tokens.
//!
//! It works on bytes, so every input has an encoding and decoding gives the same bytes back. It is no general
//! tokenizer: it reads one vocabulary, `vocabulary/merges.txt`, made once by `examples/train_vocabulary`.
//! Invariant: plain text never encodes to a special token, whatever it says.

mod merges;
mod split;

use std::sync::LazyLock;

use merges::Merges;
pub use split::{MAX_WORD, words};

/// Number of byte tokens; token `b` is the single byte `b`.
const BYTES: u32 = 256;

/// Tokens that no text encodes to. Their ids follow the merged tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Special {
    /// Begins a conversation.
    Begin,
    /// Ends a turn and, generated, a stream: the end-of-sequence token.
    End,
    /// Begins a turn of the system.
    System,
    /// Begins a turn of the user.
    User,
    /// Begins a turn of the model.
    Assistant,
    /// Begins the result of a tool.
    Tool,
}

/// Number of [`Special`] tokens.
const SPECIALS: u32 = 6;

/// A byte-level BPE tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    merges: Merges,
    pieces: Pieces,
    fingerprint: String,
}

/// The bytes of every token, end to end.
#[derive(Debug, Default)]
struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    fn piece(&self, id: u32) -> &[u8] {
        let at = id as usize;
        let start = at
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        self.ends
            .get(at)
            .and_then(|end| self.bytes.get(start..*end))
            .unwrap_or_default()
    }

    fn push(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(self.bytes.len());
    }
}

impl Tokenizer {
    /// The tokenizer that ships with weir.
    pub fn builtin() -> &'static Self {
        static BUILTIN: LazyLock<Tokenizer> = LazyLock::new(|| {
            Tokenizer::from_pairs(&shipped_pairs(include_str!("../../vocabulary/merges.txt")))
        });
        &BUILTIN
    }

    fn from_pairs(pairs: &[(u16, u16)]) -> Self {
        let mut pieces = Pieces::default();
        (0..=u8::MAX).for_each(|byte| pieces.push(&[&[byte]]));
        for &(left, right) in pairs {
            let (left, right) = (
                pieces.piece(left.into()).to_vec(),
                pieces.piece(right.into()).to_vec(),
            );
            pieces.push(&[&left, &right]);
        }
        let fingerprint = format!("weir-bpe-{:016x}", fnv1a(pairs));
        Self {
            merges: Merges::new(pairs),
            pieces,
            fingerprint,
        }
    }

    /// The tokens of `text`. Any bytes will do; they need not be UTF-8. Time is linear in the length.
    pub fn encode(&self, text: impl AsRef<[u8]>) -> Vec<u32> {
        let text = text.as_ref();
        let mut out = Vec::with_capacity(text.len() / 3 + 1);
        self.encode_into(text, &mut out);
        out
    }

    /// Appends the tokens of `text` to `out`.
    pub fn encode_into(&self, text: &[u8], out: &mut Vec<u32>) {
        let mut scratch = merges::Scratch::default();
        words(text).for_each(|word| self.merges.encode_word(word, &mut scratch, out));
    }

    /// The bytes of `tokens`; special and unknown tokens have none.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        tokens.iter().flat_map(|&id| self.piece(id)).copied().collect()
    }

    /// The bytes of a token, maybe a piece of a character; empty for special and unknown tokens.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.piece(id)
    }

    /// Number of ids: bytes, merged tokens and special tokens.
    pub fn vocabulary_size(&self) -> u32 {
        self.first_special() + SPECIALS
    }

    /// The id of a special token.
    pub fn special(&self, token: Special) -> u32 {
        self.first_special() + token as u32
    }

    /// Whether `id` is a special token.
    pub fn is_special(&self, id: u32) -> bool {
        (self.first_special()..self.vocabulary_size()).contains(&id)
    }

    /// The end-of-sequence token.
    pub fn end_of_sequence(&self) -> u32 {
        self.special(Special::End)
    }

    /// No text of `bytes` bytes has fewer tokens than this: a cheap test for prompts that cannot fit.
    pub fn fewest_tokens(&self, bytes: usize) -> usize {
        bytes.div_ceil(MAX_WORD)
    }

    /// Names the vocabulary; equal fingerprints encode alike.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn first_special(&self) -> u32 {
        BYTES + self.merges.len()
    }
}

/// Reads the vocabulary: a line per merge, `left right`. It is part of the program, and `tests/it` checks that no
/// line is skipped.
fn shipped_pairs(text: &str) -> Vec<(u16, u16)> {
    let pair = |line: &str| {
        let (left, right) = line.split_once(' ')?;
        Some((left.parse().ok()?, right.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// 64-bit FNV-1a over the merges.
fn fnv1a(pairs: &[(u16, u16)]) -> u64 {
    let bytes = pairs
        .iter()
        .flat_map(|(left, right)| [left.to_le_bytes(), right.to_le_bytes()])
        .flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
