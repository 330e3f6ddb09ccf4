//! The input of a multiplication: float rows and, where a quantized matrix reads them, the same rows in eight bits.
//!
//! A block of 32 values has one scale, the sums of its halves (for the offset of unsigned weights), and the scaled sum
//! (for the minimum that some weight blocks carry). Each row is quantized by itself.

use super::Isa;
use super::format::BLOCK;
use super::isa::dispatched;
use super::output::each_row;
use super::pool::Pool;

/// 32 values of a row in eight bits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct QuantBlock {
    pub(super) quants: [i8; BLOCK],
    /// A quant times this is the value.
    pub(super) scale: f32,
    /// Sums of the first and of the last 16 quants.
    pub(super) halves: [i32; 2],
    /// The sum of all quants, times the scale.
    pub(super) scaled_sum: f32,
}

/// Rows of equal width, quantized on demand. Memory is kept between uses.
#[derive(Debug, Default)]
pub(crate) struct Activations {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) floats: Vec<f32>,
    pub(super) blocks: Vec<QuantBlock>,
}

impl Activations {
    /// Makes room for `rows` rows; their content is undefined until written.
    pub(crate) fn resize(&mut self, rows: usize, columns: usize) {
        self.rows = rows;
        self.columns = columns;
        self.floats.resize(rows * columns, 0.0);
    }

    pub(crate) fn floats_mut(&mut self) -> &mut [f32] {
        &mut self.floats
    }

    /// Quantizes every row, to be called after the floats were written.
    pub(crate) fn quantize(&mut self, pool: &Pool, isa: Isa) {
        let (columns, floats) = (self.columns, &self.floats);
        self.blocks
            .resize(self.rows * (columns / BLOCK), QuantBlock::default());
        each_row(pool, &mut self.blocks, columns / BLOCK, &|row, blocks| {
            quantize(isa, &floats[row * columns..(row + 1) * columns], blocks);
        });
    }
}

dispatched! {
    fn quantize(floats: &[f32], blocks: &mut [QuantBlock]) = quantize_body;
}

/// Adding and subtracting this rounds a small float to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a quant is within -127 to 127")]
fn quantize_body(floats: &[f32], blocks: &mut [QuantBlock]) {
    for (values, block) in floats.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        let mut lanes = [0.0_f32; 16];
        for (lane, (a, b)) in lanes.iter_mut().zip(values[..16].iter().zip(&values[16..])) {
            let (a, b) = (a.abs(), b.abs());
            *lane = if a > b { a } else { b };
        }
        let largest = lanes.iter().fold(
            0.0_f32,
            |largest, lane| if *lane > largest { *lane } else { largest },
        );
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut whole = [0_i32; BLOCK];
        for (whole, value) in whole.iter_mut().zip(values) {
            let bits = (value * inverse + ROUND).to_bits();
            *whole = bits.wrapping_sub(ROUND.to_bits()).cast_signed().clamp(-127, 127);
        }
        for (quant, whole) in block.quants.iter_mut().zip(&whole) {
            *quant = *whole as i8;
        }
        block.halves = [whole[..16].iter().sum(), whole[16..].iter().sum()];
        block.scale = largest / 127.0;
        block.scaled_sum = block.scale * (block.halves[0] + block.halves[1]) as f32;
    }
}
