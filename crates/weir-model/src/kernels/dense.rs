//! Tile kernels for float weights. Plain Rust, compiled for each instruction set.
//!
//! Column `c` of a tile is 16 rows side by side. Four running sums take the columns in turn, so that additions overlap;
//! they are joined in one order at the end.

use super::activations::Activations;
use super::format::{Format, TILE_ROWS};
use super::isa::dispatched;
use super::vector::half_to_float;

type Lanes = [f32; TILE_ROWS];

dispatched! {
    /// Multiplies a tile of `F32` or `F16` with the rows `first..first + out.len()`.
    pub(super) fn tile(
        format: Format,
        tile: &[u8],
        input: &Activations,
        first: usize,
        out: &mut [Lanes],
    ) = tile_body;
}

#[inline(always)]
fn tile_body(format: Format, tile: &[u8], input: &Activations, first: usize, out: &mut [Lanes]) {
    for (row, out) in out.iter_mut().enumerate() {
        let values = &input.floats[(first + row) * input.columns..][..input.columns];
        *out = match format {
            Format::F32 => row_body::<64>(tile, values, |bytes| {
                let (words, _) = bytes.as_chunks::<4>();
                std::array::from_fn(|lane| f32::from_le_bytes(words[lane]))
            }),
            _ => row_body::<32>(tile, values, |bytes| {
                let (words, _) = bytes.as_chunks::<2>();
                std::array::from_fn(|lane| half_to_float(u16::from_le_bytes(words[lane])))
            }),
        };
    }
}

#[inline(always)]
fn row_body<const BYTES: usize>(tile: &[u8], values: &[f32], read: impl Fn(&[u8; BYTES]) -> Lanes) -> Lanes {
    let mut sums = [[0.0_f32; TILE_ROWS]; 4];
    let (columns, _) = tile.as_chunks::<BYTES>();
    for (columns, values) in columns.chunks(4).zip(values.chunks(4)) {
        for ((sum, column), value) in sums.iter_mut().zip(columns).zip(values) {
            let weights = read(column);
            for lane in 0..TILE_ROWS {
                sum[lane] += weights[lane] * value;
            }
        }
    }
    std::array::from_fn(|lane| (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]))
}
