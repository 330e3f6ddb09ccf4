//! Vector maths: norms, activation functions, rotary positions, softmax, weighted sums.
//!
//! Sums run in 16 lanes joined by a fixed tree. The exponential is our own polynomial, so that no platform's maths library
//! shows through.

use super::isa::dispatched;

/// Lanes of every running sum.
const LANES: usize = 16;

/// An IEEE half as a float.
#[inline(always)]
pub(crate) fn half_to_float(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff);
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = 0x7f80_0000 | (magnitude << 13);
    f32::from_bits(
        sign | if magnitude >= 0x7c00 {
            special
        } else {
            scaled.to_bits()
        },
    )
}

/// The nearest half, for tests and for writing files.
pub(crate) fn float_to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = u16::try_from(bits >> 16 & 0x8000).unwrap_or(0);
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x4780_0000 {
        return sign | if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    }
    if magnitude < 0x3880_0000 {
        let scaled = f32::from_bits(magnitude) * 16_777_216.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 1024"
        )]
        return sign | scaled.round_ties_even() as u16;
    }
    let rounded = magnitude + 0x0fff + (magnitude >> 13 & 1);
    sign | u16::try_from((rounded >> 13).saturating_sub(0x1_c000))
        .unwrap_or(0x7c00)
        .min(0x7c00)
}

#[inline(always)]
fn join(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|at| lanes[at] + lanes[at + 8]);
    let four: [f32; 4] = std::array::from_fn(|at| eight[at] + eight[at + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// `sum + a * b`, lane by lane.
#[inline(always)]
pub(super) fn accumulate<const N: usize>(sum: &mut [f32; N], a: &[f32; N], b: &[f32; N]) {
    for lane in 0..N {
        sum[lane] += a[lane] * b[lane];
    }
}

#[inline(always)]
fn finish(mut sum: [f32; LANES], a: &[f32], b: &[f32]) -> f32 {
    if !a.is_empty() {
        // Padded, because a sum indexed by a variable would live in memory.
        let (mut padded_a, mut padded_b) = ([0.0; LANES], [0.0; LANES]);
        padded_a[..a.len()].copy_from_slice(a);
        padded_b[..b.len()].copy_from_slice(b);
        accumulate(&mut sum, &padded_a, &padded_b);
    }
    join(sum)
}

/// The inner product of two vectors of equal length.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    let mut sum = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        accumulate(&mut sum, a, b);
    }
    finish(sum, a_rest, b_rest)
}

/// Four of [`dot`] with one vector in common, in one pass over it. Sums are separate variables so that they stay in
/// registers.
#[inline(always)]
pub(super) fn dot4(a: [&[f32]; 4], b: &[f32]) -> [f32; 4] {
    let ([a0, a1, a2, a3], (b, b_rest)) = (a.map(|a| a.as_chunks::<LANES>()), b.as_chunks::<LANES>());
    let (mut s0, mut s1, mut s2, mut s3) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
    for ((((b, a0), a1), a2), a3) in b.iter().zip(a0.0).zip(a1.0).zip(a2.0).zip(a3.0) {
        accumulate(&mut s0, a0, b);
        accumulate(&mut s1, a1, b);
        accumulate(&mut s2, a2, b);
        accumulate(&mut s3, a3, b);
    }
    [
        finish(s0, a0.1, b_rest),
        finish(s1, a1.1, b_rest),
        finish(s2, a2.1, b_rest),
        finish(s3, a3.1, b_rest),
    ]
}

dispatched! {
    /// `out = x / rms(x) * weight`.
    pub(crate) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) = rms_norm_body;
}

#[inline(always)]
fn rms_norm_body(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let scale = rms_scale(x, epsilon);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[inline(always)]
fn rms_scale(x: &[f32], epsilon: f32) -> f32 {
    let square = dot(x, x);
    1.0 / (square / x.len() as f32 + epsilon).sqrt()
}

dispatched! {
    /// Normalizes each head of `x` in place.
    pub(crate) fn rms_norm_heads(x: &mut [f32], weight: &[f32], epsilon: f32) = rms_norm_heads_body;
}

#[inline(always)]
fn rms_norm_heads_body(x: &mut [f32], weight: &[f32], epsilon: f32) {
    for head in x.chunks_exact_mut(weight.len()) {
        let scale = rms_scale(head, epsilon);
        for (x, weight) in head.iter_mut().zip(weight) {
            *x = *x * scale * weight;
        }
    }
}

dispatched! {
    /// `x += rms_norm(y)`: the norm behind a sub-layer, and its residual.
    pub(crate) fn add_rms_norm(x: &mut [f32], y: &[f32], weight: &[f32], epsilon: f32) = add_rms_norm_body;
}

#[inline(always)]
fn add_rms_norm_body(x: &mut [f32], y: &[f32], weight: &[f32], epsilon: f32) {
    let scale = rms_scale(y, epsilon);
    for ((x, y), weight) in x.iter_mut().zip(y).zip(weight) {
        *x += y * scale * weight;
    }
}

dispatched! {
    /// `x += y`.
    pub(crate) fn add(x: &mut [f32], y: &[f32]) = add_body;
}

#[inline(always)]
fn add_body(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// `e^x`, within two units in the last place; 0 below -87.3.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.3, 88.3);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = clamped - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let mut sum = 1.987_569_1e-4_f32;
    for factor in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        sum = sum * rest + factor;
    }
    let fraction = sum * (rest * rest) + rest + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -87.3 { 0.0 } else { fraction * power }
}

dispatched! {
    /// `gate = silu(gate) * up`.
    pub(crate) fn silu_mul(gate: &mut [f32], up: &[f32]) = silu_mul_body;
}

#[inline(always)]
fn silu_mul_body(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + exp(-*gate)) * up;
    }
}

dispatched! {
    /// `gate = gelu(gate) * up`, the form with the hyperbolic tangent.
    pub(crate) fn gelu_mul(gate: &mut [f32], up: &[f32]) = gelu_mul_body;
}

#[inline(always)]
fn gelu_mul_body(gate: &mut [f32], up: &[f32]) {
    const ROOT: f32 = 0.797_884_6;
    for (gate, up) in gate.iter_mut().zip(up) {
        let x = *gate;
        let inner = ROOT * x * (1.0 + 0.044_715 * x * x);
        // (1 + tanh y) / 2 = 1 / (1 + e^-2y)
        *gate = x / (1.0 + exp(-2.0 * inner)) * up;
    }
}

/// What [`rotate`] pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Neighbours: `(0, 1), (2, 3), ...`
    Adjacent,
    /// Halves: `(0, n/2), (1, n/2 + 1), ...`
    Halves,
}

/// Rotates the first `2 * turns.len()` values of each head by `(cos, sin)` pairs.
pub(crate) fn rotate(x: &mut [f32], head: usize, turns: &[(f32, f32)], pairing: Pairing) {
    for head in x.chunks_exact_mut(head) {
        for (index, (cos, sin)) in turns.iter().enumerate() {
            let (first, second) = match pairing {
                Pairing::Adjacent => (2 * index, 2 * index + 1),
                Pairing::Halves => (index, index + turns.len()),
            };
            let (a, b) = (head[first], head[second]);
            head[first] = a * cos - b * sin;
            head[second] = a * sin + b * cos;
        }
    }
}

/// Turns scores into weights that still have to be divided by the returned sum.
#[inline(always)]
pub(super) fn exponentiate(scores: &mut [f32]) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    for score in scores.iter() {
        largest = if *score > largest { *score } else { largest };
    }
    let mut sums = [0.0_f32; LANES];
    for chunk in scores.chunks_mut(LANES) {
        for (sum, score) in sums.iter_mut().zip(chunk) {
            *score = exp(*score - largest);
            *sum += *score;
        }
    }
    join(sums)
}

dispatched! {
    /// The place of the largest value, the first of equals.
    pub fn largest(values: &[f32]) -> usize = largest_body;
}

#[inline(always)]
fn largest_body(values: &[f32]) -> usize {
    let mut lanes = [f32::NEG_INFINITY; 64];
    for chunk in values.chunks(64) {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    let most = lanes.iter().fold(
        f32::NEG_INFINITY,
        |most, lane| if *lane > most { *lane } else { most },
    );
    values.iter().position(|value| *value == most).unwrap_or(0)
}
