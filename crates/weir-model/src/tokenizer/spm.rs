//! SentencePiece: symbols are merged greedily, the best-scored pair first, the leftmost of equals.
//!
//! Spaces are written as U+2581 before merging. A symbol that is no token at the end goes to byte tokens, one a byte.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::vocab::Vocab;
use crate::gguf::Gguf;

const SPACE: &str = "\u{2581}";
const NONE: usize = usize::MAX;

#[derive(Debug)]
pub(super) struct SentencePiece {
    space_prefix: bool,
    unknown: Option<u32>,
}

/// A run of bytes that is one symbol; empty once it has been merged into its left neighbour.
#[derive(Clone, Copy)]
struct Symbol {
    begin: usize,
    len: usize,
    prev: usize,
    next: usize,
}

/// A pair that could be merged.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl SentencePiece {
    pub(super) fn from_gguf(gguf: &Gguf, vocab: &Vocab) -> Self {
        let unknown = gguf
            .integer("tokenizer.ggml.unknown_token_id")
            .and_then(|id| u32::try_from(id).ok());
        Self {
            space_prefix: gguf.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true),
            unknown: unknown.filter(|id| *id < vocab.len()),
        }
    }

    pub(super) fn encode(&self, vocab: &Vocab, input: &[u8], after_special: bool, ids: &mut Vec<u32>) {
        let text = self.escape(input, after_special);
        let mut symbols = split(&text);
        merge(vocab, &text, &mut symbols);
        let mut at = 0;
        while let Some(symbol) = symbols.get(at) {
            self.emit(vocab, &text[symbol.begin..symbol.begin + symbol.len], ids);
            at = symbol.next;
        }
    }

    fn escape(&self, input: &[u8], after_special: bool) -> Vec<u8> {
        let mut text = Vec::with_capacity(input.len() + input.len() / 2 + SPACE.len());
        if self.space_prefix && after_special {
            text.extend(SPACE.as_bytes());
        }
        for byte in input {
            if *byte == b' ' {
                text.extend(SPACE.as_bytes());
            } else {
                text.push(*byte);
            }
        }
        text
    }

    fn emit(&self, vocab: &Vocab, symbol: &[u8], ids: &mut Vec<u32>) {
        if let Some(id) = vocab.lookup(symbol) {
            ids.push(id);
            return;
        }
        ids.extend(
            symbol
                .iter()
                .filter_map(|byte| vocab.byte_token(*byte).or(self.unknown)),
        );
    }
}

/// One symbol a character; a byte that is no part of one is a symbol by itself.
fn split(text: &[u8]) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
    let mut push = |begin: usize, len: usize| {
        let index = symbols.len();
        let prev = index.checked_sub(1).unwrap_or(NONE);
        symbols.push(Symbol {
            begin,
            len,
            prev,
            next: index + 1,
        });
    };
    let mut begin = 0;
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            push(begin, character.len_utf8());
            begin += character.len_utf8();
        }
        for _ in chunk.invalid() {
            push(begin, 1);
            begin += 1;
        }
    }
    symbols
}

fn merge(vocab: &Vocab, text: &[u8], symbols: &mut [Symbol]) {
    let mut heap = BinaryHeap::new();
    let offer = |symbols: &[Symbol], left: usize, right: usize, heap: &mut BinaryHeap<Pair>| {
        let (Some(a), Some(b)) = (symbols.get(left), symbols.get(right)) else {
            return;
        };
        let len = a.len + b.len;
        if let Some(id) = vocab.lookup(&text[a.begin..a.begin + len]) {
            heap.push(Pair {
                score: vocab.score(id),
                left,
                right,
                len,
            });
        }
    };
    for right in 1..symbols.len() {
        offer(symbols, right - 1, right, &mut heap);
    }
    while let Some(Pair { left, right, len, .. }) = heap.pop() {
        let (a, b) = (symbols[left], symbols[right]);
        if a.len == 0 || b.len == 0 || a.len + b.len != len {
            continue;
        }
        symbols[left].len = len;
        symbols[left].next = b.next;
        symbols[right].len = 0;
        if let Some(after) = symbols.get_mut(b.next) {
            after.prev = left;
        }
        offer(symbols, a.prev, left, &mut heap);
        offer(symbols, left, b.next, &mut heap);
    }
}

/// Appends a token's text with U+2581 turned back to spaces.
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(SPACE.as_bytes()) {
            out.push(b' ');
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
}
