//! The input of a multiplication: float rows and, where a quantized matrix reads them, the same rows in eight bits.
//!
//! A block of 32 values has one scale, the sums of its halves (for the offset of unsigned weights), and the scaled sum
//! (for the minimum that some weight blocks carry). Each row is quantized by itself.

use super::Isa;
use super::format::BLOCK;
use super::isa::dispatched;

/// Rows of equal width, quantized on demand. Memory is kept between uses.
#[derive(Debug, Default)]
pub(crate) struct Activations {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) floats: Vec<f32>,
    pub(super) quants: Vec<i8>,
    pub(super) scales: Vec<f32>,
    pub(super) halves: Vec<[i32; 2]>,
    pub(super) scaled_sums: Vec<f32>,
}

impl Activations {
    /// Makes room for `rows` rows; their content is undefined until written.
    pub(crate) fn resize(&mut self, rows: usize, columns: usize) {
        self.rows = rows;
        self.columns = columns;
        self.floats.resize(rows * columns, 0.0);
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.floats[row * self.columns..(row + 1) * self.columns]
    }

    pub(crate) fn floats_mut(&mut self) -> &mut [f32] {
        &mut self.floats
    }

    /// Quantizes every row, to be called after the floats were written.
    pub(crate) fn quantize(&mut self, isa: Isa) {
        let blocks = self.rows * self.columns.div_ceil(BLOCK);
        self.quants.resize(self.rows * self.columns, 0);
        self.scales.resize(blocks, 0.0);
        self.halves.resize(blocks, [0; 2]);
        self.scaled_sums.resize(blocks, 0.0);
        quantize(isa, &self.floats, &mut self.quants, &mut self.scales, &mut self.halves, &mut self.scaled_sums);
    }
}

dispatched! {
    fn quantize(
        floats: &[f32],
        quants: &mut [i8],
        scales: &mut [f32],
        halves: &mut [[i32; 2]],
        scaled_sums: &mut [f32],
    ) = quantize_body;
}

/// Adding and subtracting this rounds a small float to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a quant is within -127 to 127")]
#[expect(clippy::cast_precision_loss, reason = "a block's sum is below 2^24")]
#[expect(clippy::inline_always, reason = "vectorized with the features of the caller")]
fn quantize_body(
    floats: &[f32],
    quants: &mut [i8],
    scales: &mut [f32],
    halves: &mut [[i32; 2]],
    scaled_sums: &mut [f32],
) {
    let (blocks, _) = floats.as_chunks::<BLOCK>();
    let (outs, _) = quants.as_chunks_mut::<BLOCK>();
    for ((((block, out), scale), half), scaled) in
        blocks.iter().zip(outs).zip(scales.iter_mut()).zip(halves.iter_mut()).zip(scaled_sums.iter_mut())
    {
        let mut lanes = [0.0_f32; 16];
        for (lane, (a, b)) in lanes.iter_mut().zip(block[..16].iter().zip(&block[16..])) {
            let (a, b) = (a.abs(), b.abs());
            *lane = if a > b { a } else { b };
        }
        let largest = lanes.iter().fold(0.0_f32, |largest, lane| if *lane > largest { *lane } else { largest });
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut whole = [0_i32; BLOCK];
        for (whole, value) in whole.iter_mut().zip(block) {
            let bits = (value * inverse + ROUND).to_bits();
            *whole = bits.wrapping_sub(ROUND.to_bits()).cast_signed().clamp(-127, 127);
        }
        for (out, whole) in out.iter_mut().zip(&whole) {
            *out = *whole as i8;
        }
        *half = [whole[..16].iter().sum(), whole[16..].iter().sum()];
        *scale = largest / 127.0;
        *scaled = *scale * (half[0] + half[1]) as f32;
    }
}
