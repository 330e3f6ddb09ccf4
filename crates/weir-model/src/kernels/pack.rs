//! From the file's rows to tiles, and from the file's rows to floats.
//!
//! Packing moves bits; it changes no value. Reading a row to floats is what embeddings use, and what tests compare with.

use super::format::{BLOCK, Format, SUPER, TILE_ROWS};
use super::vector::half_to_float;

/// One block of 32 columns of one row, as the file has it.
struct Block {
    quants: [u8; BLOCK],
}

fn half(bytes: &[u8]) -> [u8; 2] {
    [bytes[0], bytes[1]]
}

/// Splits bytes of two 4-bit quants: the low halves are the first 16 columns, the high halves the last 16.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|column| {
        if column < 16 {
            bytes[column] & 15
        } else {
            bytes[column - 16] >> 4
        }
    })
}

fn q5_0(block: &[u8]) -> Block {
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    let low = nibbles(&block[6..22]);
    Block {
        quants: std::array::from_fn(|column| low[column] | (u8::from(high >> column & 1 == 1) << 4)),
    }
}

/// Block `index` of a 256-column Q4_K block: quants, scale and minimum.
fn q4_k(bytes: &[u8], index: usize) -> (Block, u8, u8) {
    let packed = &bytes[4..16];
    let (scale, min) = if index < 4 {
        (packed[index] & 63, packed[index + 4] & 63)
    } else {
        let low = packed[index + 4];
        (
            (low & 15) | (packed[index - 4] >> 6 << 4),
            (low >> 4) | (packed[index] >> 6 << 4),
        )
    };
    let quants = &bytes[16 + index / 2 * 32..][..32];
    let quants = std::array::from_fn(|column| {
        if index.is_multiple_of(2) {
            quants[column] & 15
        } else {
            quants[column] >> 4
        }
    });
    (Block { quants }, scale, min)
}

/// Block `index` of a 256-column Q6_K block: quants and the scales of its halves.
fn q6_k(bytes: &[u8], index: usize) -> (Block, u8, u8) {
    let (part, quarter) = (index / 4, index % 4);
    let low = &bytes[part * 64 + quarter % 2 * 32..][..32];
    let high = &bytes[128 + part * 32..][..32];
    let quants = std::array::from_fn(|column| {
        let low = if quarter < 2 {
            low[column] & 15
        } else {
            low[column] >> 4
        };
        low | ((high[column] >> (2 * quarter) & 3) << 4)
    });
    (
        Block { quants },
        bytes[192 + 2 * index],
        bytes[192 + 2 * index + 1],
    )
}

/// Puts one row of a file into lane `lane` of a tile.
pub(super) fn pack_row(format: Format, row: &[u8], lane: usize, tile: &mut [u8]) {
    match format {
        Format::F32 => pack_floats::<4>(row, lane, tile),
        Format::F16 => pack_floats::<2>(row, lane, tile),
        Format::Q8_0 => {
            for (index, block) in row.chunks_exact(34).enumerate() {
                let values = std::array::from_fn(|column| block[2 + column] ^ 0x80);
                put(
                    format,
                    &Block { quants: values },
                    lane,
                    &mut tile[format.quants_at(index)..],
                );
                tile[format.scales_at(index) + lane * 2..][..2].copy_from_slice(&half(block));
            }
        }
        Format::Q5_0 | Format::Q4_0 => {
            let bytes = if format == Format::Q5_0 { 22 } else { 18 };
            for (index, block) in row.chunks_exact(bytes).enumerate() {
                let values = if bytes == 22 {
                    q5_0(block)
                } else {
                    Block {
                        quants: nibbles(&block[2..]),
                    }
                };
                put(format, &values, lane, &mut tile[format.quants_at(index)..]);
                tile[format.scales_at(index) + lane * 2..][..2].copy_from_slice(&half(block));
            }
        }
        Format::Q4K => pack_super(format, row, 144, lane, tile),
        Format::Q6K => pack_super(format, row, 210, lane, tile),
    }
}

fn pack_floats<const BYTES: usize>(row: &[u8], lane: usize, tile: &mut [u8]) {
    for (column, value) in row.chunks_exact(BYTES).enumerate() {
        tile[(column * TILE_ROWS + lane) * BYTES..][..BYTES].copy_from_slice(value);
    }
}

fn pack_super(format: Format, row: &[u8], bytes: usize, lane: usize, tile: &mut [u8]) {
    let heads = if format == Format::Q4K { 64 } else { 32 };
    for (index, block) in row.chunks_exact(bytes).enumerate() {
        let scales = &mut tile[format.scales_at(index * SUPER)..][..format.chunk_scale_bytes()];
        if format == Format::Q4K {
            scales[lane * 2..][..2].copy_from_slice(&half(block));
            scales[32 + lane * 2..][..2].copy_from_slice(&half(&block[2..]));
        } else {
            scales[lane * 2..][..2].copy_from_slice(&half(&block[208..]));
        }
        for sub in 0..SUPER {
            let (values, first, second) = if format == Format::Q4K {
                q4_k(block, sub)
            } else {
                q6_k(block, sub)
            };
            let own = format.scales_at(index * SUPER) + heads + sub * 32 + lane;
            (tile[own], tile[own + 16]) = (first, second);
            put(
                format,
                &values,
                lane,
                &mut tile[format.quants_at(index * SUPER + sub)..],
            );
        }
    }
}

/// Writes a block's quants into a zeroed tile block.
fn put(format: Format, block: &Block, lane: usize, out: &mut [u8]) {
    for (column, value) in block.quants.iter().enumerate() {
        let (group, place) = (column / 4, lane * 4 + column % 4);
        if format == Format::Q8_0 {
            out[group * 64 + place] = *value;
            continue;
        }
        out[group % 4 * 64 + place] |= (value & 15) << (group / 4 * 4);
        match format {
            Format::Q5_0 => out[256 + place] |= (value >> 4) << group,
            Format::Q6K => out[256 + group / 4 * 64 + place] |= (value >> 4) << (group % 4 * 2),
            _ => {}
        }
    }
}

/// Reads a row of the file as floats.
pub(crate) fn read_row(format: Format, row: &[u8], out: &mut [f32]) {
    let scale = |bytes: &[u8]| half_to_float(u16::from_le_bytes(half(bytes)));
    let centred = |value: u8| (i32::from(value) - format.offset()) as f32;
    match format {
        Format::F32 => {
            for (out, value) in out.iter_mut().zip(row.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*value);
            }
        }
        Format::F16 => out
            .iter_mut()
            .zip(row.chunks_exact(2))
            .for_each(|(out, value)| *out = scale(value)),
        Format::Q8_0 => {
            for (out, block) in out.chunks_exact_mut(BLOCK).zip(row.chunks_exact(34)) {
                let step = scale(block);
                out.iter_mut()
                    .zip(&block[2..])
                    .for_each(|(out, value)| *out = step * f32::from(value.cast_signed()));
            }
        }
        Format::Q5_0 | Format::Q4_0 => {
            let bytes = if format == Format::Q5_0 { 22 } else { 18 };
            for (out, block) in out.chunks_exact_mut(BLOCK).zip(row.chunks_exact(bytes)) {
                let values = if bytes == 22 {
                    q5_0(block).quants
                } else {
                    nibbles(&block[2..])
                };
                out.iter_mut()
                    .zip(values)
                    .for_each(|(out, value)| *out = scale(block) * centred(value));
            }
        }
        Format::Q4K => {
            for (at, out) in out.chunks_exact_mut(BLOCK).enumerate() {
                let block = &row[at / SUPER * 144..][..144];
                let (values, step, min) = q4_k(block, at % SUPER);
                let (step, min) = (
                    scale(block) * f32::from(step),
                    scale(&block[2..]) * f32::from(min),
                );
                out.iter_mut()
                    .zip(values.quants)
                    .for_each(|(out, value)| *out = step * f32::from(value) - min);
            }
        }
        Format::Q6K => {
            for (at, out) in out.chunks_exact_mut(BLOCK).enumerate() {
                let block = &row[at / SUPER * 210..][..210];
                let (values, first, second) = q6_k(block, at % SUPER);
                for (column, (out, value)) in out.iter_mut().zip(values.quants).enumerate() {
                    let sub = if column < 16 { first } else { second };
                    *out = scale(&block[208..]) * f32::from(sub.cast_signed()) * centred(value);
                }
            }
        }
    }
}
