//! The scalar twin of the tile kernels: plain loops that say what the vector versions compute.
//!
//! For each block of 32 columns the product of quants is an exact integer; it is scaled and added to one running float
//! sum a row, block after block.

use super::activations::Activations;
use super::format::{BLOCK, Format, SUPER, TILE_ROWS};
use super::vector::half_to_float;

/// The stored quant of a row and column within a block.
fn quant(format: Format, block: &[u8], lane: usize, column: usize) -> u8 {
    let (group, place) = (column / 4, lane * 4 + column % 4);
    if format == Format::Q8_0 {
        return block[group * 64 + place];
    }
    let low = block[group % 4 * 64 + place] >> (group / 4 * 4) & 15;
    match format {
        Format::Q5_0 => low | ((block[256 + place] >> group & 1) << 4),
        Format::Q6K => low | ((block[256 + group / 4 * 64 + place] >> (group % 4 * 2) & 3) << 4),
        _ => low,
    }
}

fn half_at(bytes: &[u8], lane: usize) -> f32 {
    half_to_float(u16::from_le_bytes([bytes[lane * 2], bytes[lane * 2 + 1]]))
}

/// Multiplies a tile with the rows `first..first + out.len()`.
pub(super) fn tile(
    format: Format,
    tile: &[u8],
    input: &Activations,
    first: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    let blocks = input.columns / BLOCK;
    for (row, out) in out.iter_mut().enumerate() {
        let row = first + row;
        *out = [0.0; TILE_ROWS];
        for index in 0..blocks {
            let (quants, scales) = (&tile[format.quants_at(index)..], &tile[format.scales_at(index)..]);
            let values = &input.blocks[row * blocks + index];
            for (lane, sum) in out.iter_mut().enumerate() {
                let product = |column: usize| {
                    let weight = i32::from(quant(format, quants, lane, column)) - format.offset();
                    weight * i32::from(values.quants[column])
                };
                let halves: [i32; 2] = [(0..16).map(product).sum(), (16..32).map(product).sum()];
                let (total, step, min) = scaled(format, scales, index, lane, halves);
                *sum += total as f32 * (step * values.scale);
                if format == Format::Q4K {
                    *sum -= min * values.scaled_sum;
                }
            }
        }
    }
}

/// The integer sum of a block, its scale and its minimum.
fn scaled(format: Format, scales: &[u8], index: usize, lane: usize, halves: [i32; 2]) -> (i32, f32, f32) {
    let sum = halves[0] + halves[1];
    match format {
        Format::Q4K => {
            let own = &scales[64 + index % SUPER * 32..];
            let min = half_at(&scales[32..], lane) * f32::from(own[16 + lane]);
            (sum, half_at(scales, lane) * f32::from(own[lane]), min)
        }
        Format::Q6K => {
            let own = &scales[32 + index % SUPER * 32..];
            let [first, second] = [own[lane], own[16 + lane]].map(|scale| i32::from(scale.cast_signed()));
            (halves[0] * first + halves[1] * second, half_at(scales, lane), 0.0)
        }
        _ => (sum, half_at(scales, lane), 0.0),
    }
}
