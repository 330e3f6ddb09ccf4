//! The merge table and the merging of one word.
//!
//! Merge `n` joins two tokens into token `256 + n`; a lower id was learnt earlier and goes first. Rows are sorted by
//! left token, so a look-up is a binary search among the partners of one token.

/// Marks a pair that no merge joins; sorts behind every token.
const NONE: u32 = u32::MAX;

/// Which pairs of tokens join, and into what.
#[derive(Debug)]
pub(super) struct Merges {
    /// `rows[starts[left]..starts[left + 1]]` are the partners of `left`.
    starts: Vec<usize>,
    /// Right token and joined token, sorted by right token within a row.
    rows: Vec<(u32, u32)>,
}

/// Buffers of [`Merges::encode_word`], kept between words.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    tokens: Vec<u32>,
    /// What tokens `i` and `i + 1` join into.
    joins: Vec<u32>,
}

impl Merges {
    pub(super) fn new(pairs: &[(u16, u16)]) -> Self {
        let mut sorted: Vec<(u32, u32, u32)> = (super::BYTES..)
            .zip(pairs)
            .map(|(id, &(left, right))| (left.into(), right.into(), id))
            .collect();
        sorted.sort_unstable();
        let lefts = super::BYTES as usize + pairs.len();
        let starts = (0u32..)
            .take(lefts + 1)
            .map(|left| sorted.partition_point(|row| row.0 < left))
            .collect();
        Self {
            starts,
            rows: sorted.into_iter().map(|(_, right, id)| (right, id)).collect(),
        }
    }

    /// Number of merges.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    fn join(&self, left: u32, right: u32) -> u32 {
        let at = left as usize;
        let (Some(&start), Some(&end)) = (self.starts.get(at), self.starts.get(at + 1)) else {
            return NONE;
        };
        let row = self.rows.get(start..end).unwrap_or_default();
        row.binary_search_by_key(&right, |entry| entry.0)
            .ok()
            .and_then(|found| row.get(found))
            .map_or(NONE, |e| e.1)
    }

    /// Appends the tokens of one word: joins the earliest learnt pair until no pair joins.
    pub(super) fn encode_word(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { tokens, joins } = scratch;
        tokens.clear();
        tokens.extend(word.iter().copied().map(u32::from));
        joins.clear();
        joins.extend(tokens.windows(2).map(|pair| self.join(pair[0], pair[1])));
        while let Some((at, &joined)) = joins.iter().enumerate().min_by_key(|(_, joined)| **joined) {
            if joined == NONE {
                break;
            }
            tokens[at] = joined;
            tokens.remove(at + 1);
            joins.remove(at);
            if let Some(before) = at.checked_sub(1) {
                joins[before] = self.join(tokens[before], joined);
            }
            if let Some(&next) = tokens.get(at + 1) {
                joins[at] = self.join(joined, next);
            }
        }
        out.extend_from_slice(tokens);
    }
}
