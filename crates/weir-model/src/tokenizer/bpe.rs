//! Byte-level BPE: a pattern cuts the text into words, each word's bytes are merged by the rank of the pair.
//!
//! The file writes every byte as a printable character; texts are turned back to bytes at load, so merging works on
//! ids and never on text. Bytes that are not UTF-8 are words of their own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use fancy_regex::Regex;

use super::vocab::Vocab;
use super::{TokenizerError, missing};
use crate::gguf::Gguf;

const MERGES: &str = "tokenizer.ggml.merges";
const PRE: &str = "tokenizer.ggml.pre";
const NONE: usize = usize::MAX;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[derive(Debug)]
pub(super) struct Bpe {
    words: Regex,
    /// Pair of ids to (rank, merged id).
    merges: HashMap<(u32, u32), (u32, u32)>,
    whole_words: bool,
}

impl Bpe {
    pub(super) fn from_gguf(gguf: &Gguf, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let (pattern, whole_words) = match gguf.text(PRE).unwrap_or("default") {
            "default" | "gpt-2" => (GPT2, false),
            "llama-bpe" | "llama3" | "llama-v3" => (LLAMA3, true),
            "qwen2" => (QWEN2, false),
            other => {
                let found = other.to_owned();
                let known = "default, gpt-2, llama-bpe, llama3, llama-v3 and qwen2";
                return Err(TokenizerError::Unsupported {
                    key: PRE,
                    found,
                    known,
                });
            }
        };
        let words = Regex::new(pattern).map_err(|fault| TokenizerError::Key {
            key: PRE,
            what: fault.to_string(),
        })?;
        let (_, lines) = gguf.strings(MERGES).ok_or_else(|| missing(MERGES))?;
        let mut merges = HashMap::new();
        let (mut left, mut both) = (Vec::new(), Vec::new());
        for (line, rank) in lines.zip(0_u32..) {
            let cut = line
                .iter()
                .skip(1)
                .position(|byte| *byte == b' ')
                .map(|at| at + 1);
            let Some((first, second)) = cut.map(|at| (&line[..at], &line[at + 1..])) else {
                continue;
            };
            left.clear();
            both.clear();
            if !push_bytes(first, &mut left) || !push_bytes(first, &mut both) {
                continue;
            }
            let begin = both.len();
            if !push_bytes(second, &mut both) {
                continue;
            }
            let ids = (
                vocab.lookup(&left),
                vocab.lookup(&both[begin..]),
                vocab.lookup(&both),
            );
            if let (Some(a), Some(b), Some(merged)) = ids {
                merges.entry((a, b)).or_insert((rank, merged));
            }
        }
        Ok(Self {
            words,
            merges,
            whole_words,
        })
    }

    pub(super) fn encode(&self, vocab: &Vocab, input: &[u8], ids: &mut Vec<u32>) {
        for chunk in input.utf8_chunks() {
            self.encode_text(vocab, chunk.valid(), ids);
            ids.extend(chunk.invalid().iter().filter_map(|byte| vocab.byte_token(*byte)));
        }
    }

    fn encode_text(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let mut from = 0;
        for found in self.words.find_iter(text) {
            // A pattern that gives up leaves the rest as one word.
            let Ok(found) = found else { break };
            if found.start() > from {
                self.encode_word(vocab, &text.as_bytes()[from..found.start()], ids);
            }
            self.encode_word(vocab, found.as_str().as_bytes(), ids);
            from = found.end();
        }
        self.encode_word(vocab, &text.as_bytes()[from..], ids);
    }

    fn encode_word(&self, vocab: &Vocab, word: &[u8], ids: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        if self.whole_words
            && let Some(id) = vocab.lookup(word)
        {
            ids.push(id);
            return;
        }
        let mut parts: Vec<u32> = word.iter().filter_map(|byte| vocab.byte_token(*byte)).collect();
        let mut next: Vec<usize> = (1..=parts.len()).collect();
        let mut prev: Vec<usize> = (0..parts.len())
            .map(|at| at.checked_sub(1).unwrap_or(NONE))
            .collect();
        let mut heap = BinaryHeap::new();
        let offer = |parts: &[u32], left: usize, right: usize, heap: &mut BinaryHeap<_>| {
            let (Some(a), Some(b)) = (parts.get(left), parts.get(right)) else {
                return;
            };
            if let Some((rank, _)) = self.merges.get(&(*a, *b)) {
                heap.push(Reverse((*rank, left, right, *a, *b)));
            }
        };
        for right in 1..parts.len() {
            offer(&parts, right - 1, right, &mut heap);
        }
        while let Some(Reverse((_, left, right, a, b))) = heap.pop() {
            if next[left] != right || parts[left] != a || parts[right] != b {
                continue;
            }
            parts[left] = self.merges[&(a, b)].1;
            next[left] = next[right];
            next[right] = NONE;
            if let Some(after) = prev.get_mut(next[left]) {
                *after = left;
            }
            offer(&parts, prev[left], left, &mut heap);
            offer(&parts, left, next[left], &mut heap);
        }
        let mut at = 0;
        while at < parts.len() {
            ids.push(parts[at]);
            at = next[at];
        }
    }
}

/// The byte a printable character of the file stands for.
fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Appends the bytes a token's printable text stands for; `false`, and nothing appended, when it is no such text.
pub(super) fn push_bytes(text: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    for character in text.chars() {
        let Some(byte) = byte_of(character) else {
            out.truncate(before);
            return false;
        };
        out.push(byte);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::byte_of;

    #[test]
    fn every_byte_has_exactly_one_printable_character() {
        let mut seen: Vec<u8> = (0_u32..0x200)
            .filter_map(char::from_u32)
            .filter_map(byte_of)
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of('\u{120}'), Some(b' '));
        assert_eq!(byte_of('\u{10a}'), Some(b'\n'));
    }
}
