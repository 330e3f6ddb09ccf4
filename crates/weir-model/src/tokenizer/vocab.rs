//! The vocabulary: texts in one arena, looked up through an open-addressed table of ids.
//!
//! A quarter million tokens take some 12 MB this way. For byte-level BPE the texts are turned back from the printable
//! alphabet of the file to the bytes they stand for, except those of special tokens.

use super::{TokenizerError, bpe, missing};
use crate::gguf::Gguf;

const TOKENS: &str = "tokenizer.ggml.tokens";
const EMPTY: u32 = u32::MAX;

/// What a token is, by the numbers of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn from_id(id: u32) -> Self {
        match id {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

#[derive(Debug)]
pub(super) struct Vocab {
    arena: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    scores: Vec<f32>,
    table: Vec<u32>,
    bytes: [Option<u32>; 256],
}

fn hash(text: &[u8]) -> usize {
    let fold = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    usize::try_from((fold ^ (fold >> 29)) & 0xffff_ffff).unwrap_or(0)
}

impl Vocab {
    pub(super) fn from_gguf(gguf: &Gguf, bpe: bool) -> Result<Self, TokenizerError> {
        let (count, texts) = gguf.strings(TOKENS).ok_or_else(|| missing(TOKENS))?;
        if count == 0 || u32::try_from(count).is_err() {
            return Err(TokenizerError::Key {
                key: TOKENS,
                what: format!("holds {count} tokens"),
            });
        }
        let kinds = gguf.words("tokenizer.ggml.token_type");
        let kinds: Vec<Kind> = kinds
            .unwrap_or_else(|| vec![1; count])
            .into_iter()
            .map(Kind::from_id)
            .collect();
        let scores = gguf.floats("tokenizer.ggml.scores").unwrap_or_default();
        check_len("tokenizer.ggml.token_type", kinds.len(), count)?;
        if !bpe {
            check_len("tokenizer.ggml.scores", scores.len(), count)?;
        }
        let mut vocab = Self {
            arena: Vec::new(),
            ends: Vec::with_capacity(count),
            kinds,
            scores,
            table: vec![EMPTY; (count * 2).next_power_of_two()],
            bytes: [None; 256],
        };
        for (text, index) in texts.zip(0_usize..) {
            let plain = bpe && vocab.kinds[index] == Kind::Normal;
            if !(plain && bpe::push_bytes(text, &mut vocab.arena)) {
                vocab.arena.extend(text);
            }
            let end = u32::try_from(vocab.arena.len());
            vocab.ends.push(end.map_err(|_| TokenizerError::Key {
                key: TOKENS,
                what: "exceeds 4 GiB".to_owned(),
            })?);
        }
        vocab.ids().for_each(|id| vocab.enter(id));
        vocab.find_bytes(bpe);
        Ok(vocab)
    }

    /// Puts an id into the table; the first of equal texts keeps its place.
    fn enter(&mut self, id: u32) {
        let slot = self.slot(self.text(id));
        if self.table[slot] == EMPTY {
            self.table[slot] = id;
        }
    }

    fn slot(&self, text: &[u8]) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = hash(text) & mask;
        while self.table[slot] != EMPTY && self.text(self.table[slot]) != text {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn find_bytes(&mut self, bpe: bool) {
        for byte in 0..=255_u8 {
            let id = if bpe {
                self.lookup(&[byte])
            } else {
                self.lookup(format!("<0x{byte:02X}>").as_bytes())
            };
            self.bytes[usize::from(byte)] = id.filter(|id| bpe || self.kind(*id) == Kind::Byte);
        }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.len()
    }

    pub(super) fn text(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let begin = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.arena[begin..self.ends[id] as usize]
    }

    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    pub(super) fn make_control(&mut self, id: u32) {
        self.kinds[id as usize] = Kind::Control;
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    pub(super) fn lookup(&self, text: &[u8]) -> Option<u32> {
        let id = self.table[self.slot(text)];
        (id != EMPTY).then_some(id)
    }

    /// The token that stands for one byte.
    pub(super) fn byte_token(&self, byte: u8) -> Option<u32> {
        self.bytes[usize::from(byte)]
    }

    /// The byte a byte token stands for.
    pub(super) fn byte_of(&self, id: u32) -> Option<u8> {
        let digits = self.text(id).strip_prefix(b"<0x")?.strip_suffix(b">")?;
        u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}

fn check_len(key: &'static str, have: usize, need: usize) -> Result<(), TokenizerError> {
    if have == need {
        return Ok(());
    }
    Err(TokenizerError::Key {
        key,
        what: format!("holds {have} values for {need} tokens"),
    })
}
