//! Attention of one row over the keys it may see, for a group of query heads that share a key head.
//!
//! Keys are visited from the oldest position to the newest, whatever slots of a ring they lie in, so the result depends on
//! positions alone.

use std::cell::RefCell;

use super::Isa;
use super::isa::dispatched;
use super::vector::{dots, exponentiate};

/// The keys and values of one key head that a row may see, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// All slots of the head: `slots * width` floats.
    pub(crate) keys: &'a [f32],
    /// Laid out as the keys.
    pub(crate) values: &'a [f32],
    /// Values in one key.
    pub(crate) width: usize,
    /// Slot of the oldest key; later ones follow and wrap around.
    pub(crate) first: usize,
    /// Number of keys.
    pub(crate) count: usize,
}

impl<'a> Seen<'a> {
    /// The rows of `data` in order of position.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "vectorized with the features of the caller")]
    fn rows(&self, data: &'a [f32]) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let slots = data.len() / self.width;
        let straight = self.count.min(slots - self.first);
        let older = &data[self.first * self.width..(self.first + straight) * self.width];
        let newer = &data[..(self.count - straight) * self.width];
        older.chunks_exact(self.width).chain(newer.chunks_exact(self.width))
    }
}

dispatched! {
    fn attend_in(queries: &[f32], seen: Seen<'_>, scale: f32, scores: &mut Vec<f32>, out: &mut [f32]) = attend_body;
}

thread_local! {
    /// Scores of one group of heads; grows to the longest context seen by this thread.
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Attends with the heads in `queries` and writes one output a head.
pub(crate) fn attend(isa: Isa, queries: &[f32], seen: Seen<'_>, scale: f32, out: &mut [f32]) {
    SCORES.with_borrow_mut(|scores| attend_in(isa, queries, seen, scale, scores, out));
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "vectorized with the features of the caller")]
fn attend_body(queries: &[f32], seen: Seen<'_>, scale: f32, scores: &mut Vec<f32>, out: &mut [f32]) {
    let mut queries = queries;
    let mut out = out;
    while !queries.is_empty() {
        let heads = match queries.len() / seen.width {
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
        let (now, later) = queries.split_at(heads * seen.width);
        let (to, rest) = out.split_at_mut(heads * seen.width);
        match heads {
            4 => heads_body::<4>(now, seen, scale, scores, to),
            2 => heads_body::<2>(now, seen, scale, scores, to),
            _ => heads_body::<1>(now, seen, scale, scores, to),
        }
        queries = later;
        out = rest;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "vectorized with the features of the caller")]
fn heads_body<const H: usize>(
    queries: &[f32],
    seen: Seen<'_>,
    scale: f32,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    scores.resize(H * seen.count, 0.0);
    for (at, key) in seen.rows(seen.keys).enumerate() {
        for (head, dot) in dots::<H>(queries, key).into_iter().enumerate() {
            scores[head * seen.count + at] = dot * scale;
        }
    }
    let mut inverse = [0.0; H];
    for (inverse, scores) in inverse.iter_mut().zip(scores.chunks_exact_mut(seen.count)) {
        *inverse = 1.0 / exponentiate(scores);
    }
    let mut begin = 0;
    while begin < seen.width {
        if seen.width - begin >= 32 {
            weigh::<H, 32>(seen, scores, begin, inverse, out);
            begin += 32;
        } else {
            weigh::<H, 1>(seen, scores, begin, inverse, out);
            begin += 1;
        }
    }
}

/// The weighted sum of values for columns `begin..begin + D` of all heads.
#[inline(always)]
#[expect(clippy::inline_always, reason = "vectorized with the features of the caller")]
fn weigh<const H: usize, const D: usize>(
    seen: Seen<'_>,
    scores: &[f32],
    begin: usize,
    inverse: [f32; H],
    out: &mut [f32],
) {
    let mut sums = [[0.0_f32; D]; H];
    for (at, value) in seen.rows(seen.values).enumerate() {
        let value = &value[begin..begin + D];
        for (head, sum) in sums.iter_mut().enumerate() {
            let weight = scores[head * seen.count + at];
            for column in 0..D {
                sum[column] += weight * value[column];
            }
        }
    }
    for (head, sum) in sums.iter().enumerate() {
        for (column, sum) in sum.iter().enumerate() {
            out[head * seen.width + begin + column] = sum * inverse[head];
        }
    }
}
