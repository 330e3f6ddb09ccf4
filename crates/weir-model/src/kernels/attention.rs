//! Attention of one row over the keys it may see, for a group of query heads that share a key head.
//!
//! Keys are visited from the oldest position to the newest, whatever slots of a ring they lie in, so the result depends on
//! positions alone.

use std::cell::RefCell;

use super::Isa;
use super::isa::dispatched;
use super::vector::{accumulate, dot, dot4, exponentiate};

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
    fn rows(&self, data: &'a [f32]) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let slots = data.len() / self.width;
        let straight = self.count.min(slots - self.first);
        let older = &data[self.first * self.width..(self.first + straight) * self.width];
        let newer = &data[..(self.count - straight) * self.width];
        older
            .chunks_exact(self.width)
            .chain(newer.chunks_exact(self.width))
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

/// Values summed at once: two registers of 16 lanes for each of four heads.
const COLUMNS: usize = 32;

#[inline(always)]
fn attend_body(queries: &[f32], seen: Seen<'_>, scale: f32, scores: &mut Vec<f32>, out: &mut [f32]) {
    let (width, count) = (seen.width, seen.count);
    scores.resize(queries.len() / width * count, 0.0);
    let fours = queries
        .chunks(4 * width)
        .zip(scores.chunks_mut(4 * count))
        .zip(out.chunks_mut(4 * width));
    for ((queries, scores), out) in fours {
        score(queries, seen, scale, scores);
        let mut inverse = [0.0; 4];
        for (inverse, scores) in inverse.iter_mut().zip(scores.chunks_exact_mut(count)) {
            *inverse = 1.0 / exponentiate(scores);
        }
        if queries.len() == 4 * width {
            weigh4(seen, scores, out);
        } else {
            for (scores, out) in scores.chunks_exact(count).zip(out.chunks_exact_mut(width)) {
                weigh(seen, scores, 0, out);
            }
        }
        for (inverse, out) in inverse.iter().zip(out.chunks_exact_mut(width)) {
            out.iter_mut().for_each(|out| *out *= inverse);
        }
    }
}

#[inline(always)]
fn score(queries: &[f32], seen: Seen<'_>, scale: f32, scores: &mut [f32]) {
    let (width, count) = (seen.width, seen.count);
    if queries.len() == 4 * width {
        let four: [&[f32]; 4] = std::array::from_fn(|head| &queries[head * width..(head + 1) * width]);
        let (first, rest) = scores.split_at_mut(count);
        let (second, rest) = rest.split_at_mut(count);
        let (third, fourth) = rest.split_at_mut(count);
        let places = first.iter_mut().zip(second).zip(third).zip(fourth);
        for (key, (((first, second), third), fourth)) in seen.rows(seen.keys).zip(places) {
            [*first, *second, *third, *fourth] = dot4(four, key).map(|dot| dot * scale);
        }
        return;
    }
    for (query, scores) in queries.chunks_exact(width).zip(scores.chunks_exact_mut(count)) {
        for (key, score) in seen.rows(seen.keys).zip(scores) {
            *score = dot(query, key) * scale;
        }
    }
}

/// The weighted sum of values for four heads.
#[inline(always)]
fn weigh4(seen: Seen<'_>, scores: &[f32], out: &mut [f32]) {
    let (width, count) = (seen.width, seen.count);
    let whole = width / COLUMNS * COLUMNS;
    let of = |head: usize| &scores[head * count..(head + 1) * count];
    for begin in (0..whole).step_by(COLUMNS) {
        let (mut s0, mut s1, mut s2, mut s3) =
            ([0.0; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS]);
        let weights = of(0).iter().zip(of(1)).zip(of(2)).zip(of(3));
        for (value, (((w0, w1), w2), w3)) in seen.rows(seen.values).zip(weights) {
            let Some((value, _)) = value[begin..].split_first_chunk::<COLUMNS>() else {
                continue;
            };
            accumulate(&mut s0, &[*w0; COLUMNS], value);
            accumulate(&mut s1, &[*w1; COLUMNS], value);
            accumulate(&mut s2, &[*w2; COLUMNS], value);
            accumulate(&mut s3, &[*w3; COLUMNS], value);
        }
        for (head, sum) in [s0, s1, s2, s3].iter().enumerate() {
            out[head * width + begin..][..COLUMNS].copy_from_slice(sum);
        }
    }
    if whole < width {
        for head in 0..4 {
            weigh(seen, of(head), whole, &mut out[head * width..(head + 1) * width]);
        }
    }
}

/// The weighted sum of values for one head, from column `from` on.
#[inline(always)]
fn weigh(seen: Seen<'_>, scores: &[f32], from: usize, out: &mut [f32]) {
    let mut begin = from;
    while let Some(out) = out.get_mut(begin..begin + COLUMNS) {
        let mut sum = [0.0; COLUMNS];
        for (value, weight) in seen.rows(seen.values).zip(scores) {
            let Some((value, _)) = value[begin..].split_first_chunk::<COLUMNS>() else {
                continue;
            };
            accumulate(&mut sum, &[*weight; COLUMNS], value);
        }
        out.copy_from_slice(&sum);
        begin += COLUMNS;
    }
    for (column, out) in out.iter_mut().enumerate().skip(begin) {
        *out = seen
            .rows(seen.values)
            .zip(scores)
            .fold(0.0, |sum, (value, weight)| sum + weight * value[column]);
    }
}
