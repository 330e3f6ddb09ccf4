//! Tile kernels for AVX-512 with VNNI: 16 rows of weights in the lanes, up to eight activation rows a pass.
//!
//! Unsigned weights meet signed activations in `vpdpbusd`; the weights' offset enters as the start value of the sum. Same
//! order of float operations as [`super::scalar`].
#![expect(unsafe_code, reason = "vector intrinsics on checked slices")]

use std::arch::x86_64::*;

use super::activations::{Activations, QuantBlock};
use super::format::{BLOCK, Format, SUPER, TILE_ROWS};

/// How far ahead of the reading the first rows ask for weights, in bytes; later rows find them in the cache. Without it
/// decoding took 21 ms a token instead of 12 on the development machine.
const AHEAD: usize = 2048;

const Q4_0: u32 = Format::Q4_0.type_id();
const Q5_0: u32 = Format::Q5_0.type_id();
const Q8_0: u32 = Format::Q8_0.type_id();
const Q4K: u32 = Format::Q4K.type_id();
const Q6K: u32 = Format::Q6K.type_id();

/// Multiplies a tile with the rows `first..first + out.len()`.
///
/// # Safety
/// The machine must have AVX-512 F, BW, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn tile(
    format: Format,
    tile: &[u8],
    input: &Activations,
    first: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    match format {
        Format::Q4_0 => rows::<Q4_0>(format, tile, input, first, out),
        Format::Q5_0 => rows::<Q5_0>(format, tile, input, first, out),
        Format::Q8_0 => rows::<Q8_0>(format, tile, input, first, out),
        Format::Q4K => rows::<Q4K>(format, tile, input, first, out),
        Format::Q6K => rows::<Q6K>(format, tile, input, first, out),
        Format::F32 | Format::F16 => {}
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn rows<const F: u32>(
    format: Format,
    tile: &[u8],
    input: &Activations,
    first: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    let blocks = input.columns / BLOCK;
    let last = first + out.len();
    assert!(
        tile.len() >= format.tile_bytes(input.columns),
        "a tile is shorter than its columns"
    );
    assert!(
        input.blocks.len() >= last * blocks,
        "activations are not quantized"
    );
    let mut at = first;
    let mut rest = out;
    while !rest.is_empty() {
        let count = [8, 4, 2, 1]
            .into_iter()
            .find(|count| *count <= rest.len())
            .unwrap_or(1);
        let (now, later) = rest.split_at_mut(count);
        // SAFETY: the lengths were checked above for all rows and blocks.
        unsafe {
            match count {
                8 => block_rows::<F, 8>(format, tile.as_ptr(), blocks, input, at, now),
                4 => block_rows::<F, 4>(format, tile.as_ptr(), blocks, input, at, now),
                2 => block_rows::<F, 2>(format, tile.as_ptr(), blocks, input, at, now),
                _ => block_rows::<F, 1>(format, tile.as_ptr(), blocks, input, at, now),
            }
        }
        at += count;
        rest = later;
    }
}

/// The eight groups of a block as unsigned bytes.
///
/// # Safety
/// `at` must point to a whole block of quants of format `F`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn unpack<const F: u32>(at: *const u8) -> [__m512i; 8] {
    // SAFETY: the caller vouches for the block; every index below lies inside it.
    let load = |index: usize| unsafe { _mm512_loadu_si512(at.add(index * 64).cast()) };
    if F == Q8_0 {
        return [
            load(0),
            load(1),
            load(2),
            load(3),
            load(4),
            load(5),
            load(6),
            load(7),
        ];
    }
    let mask = _mm512_set1_epi8(15);
    let planes = [load(0), load(1), load(2), load(3)];
    let low = planes.map(|plane| _mm512_and_si512(plane, mask));
    let high = planes.map(|plane| _mm512_and_si512(_mm512_srli_epi16::<4>(plane), mask));
    let groups = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
    // `0xEA` is (a and b) or c.
    if F == Q5_0 {
        let (bits, bit) = (load(4), _mm512_set1_epi8(16));
        let moved = [
            _mm512_slli_epi16::<4>(bits),
            _mm512_slli_epi16::<3>(bits),
            _mm512_slli_epi16::<2>(bits),
            _mm512_slli_epi16::<1>(bits),
            bits,
            _mm512_srli_epi16::<1>(bits),
            _mm512_srli_epi16::<2>(bits),
            _mm512_srli_epi16::<3>(bits),
        ];
        return std::array::from_fn(|g| _mm512_ternarylogic_epi32::<0xEA>(moved[g], bit, groups[g]));
    }
    if F == Q6K {
        let (bits, pair) = ([load(4), load(5)], _mm512_set1_epi8(48));
        let moved = bits.map(|bits| {
            [
                _mm512_slli_epi16::<4>(bits),
                _mm512_slli_epi16::<2>(bits),
                bits,
                _mm512_srli_epi16::<2>(bits),
            ]
        });
        return std::array::from_fn(|g| {
            _mm512_ternarylogic_epi32::<0xEA>(moved[g / 4][g % 4], pair, groups[g])
        });
    }
    groups
}

/// What a block's integer sums are scaled with.
struct Scales {
    step: __m512,
    min: __m512,
    first: __m512i,
    second: __m512i,
}

/// # Safety
/// `at` must point to the scales of block `index` in a tile of format `F`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn scales<const F: u32>(at: *const u8, index: usize) -> Scales {
    let zero = _mm512_setzero_si512();
    // SAFETY: the caller vouches for the scales; offsets follow the format's layout.
    unsafe {
        let halves = |at: *const u8| _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()));
        if F == Q4K || F == Q6K {
            let own = at.add(if F == Q4K { 64 } else { 32 } + index % SUPER * 32);
            let (first, second) = (_mm_loadu_si128(own.cast()), _mm_loadu_si128(own.add(16).cast()));
            if F == Q4K {
                let whole = |bytes: __m128i| _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
                let step = _mm512_mul_ps(halves(at), whole(first));
                let min = _mm512_mul_ps(halves(at.add(32)), whole(second));
                return Scales {
                    step,
                    min,
                    first: zero,
                    second: zero,
                };
            }
            let (first, second) = (_mm512_cvtepi8_epi32(first), _mm512_cvtepi8_epi32(second));
            return Scales {
                step: halves(at),
                min: _mm512_setzero_ps(),
                first,
                second,
            };
        }
        Scales {
            step: halves(at),
            min: _mm512_setzero_ps(),
            first: zero,
            second: zero,
        }
    }
}

/// Adds the products of a block with one row's values to the row's sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn accumulate<const F: u32>(
    format: Format,
    groups: &[__m512i; 8],
    scales: &Scales,
    block: &QuantBlock,
    sum: __m512,
) -> __m512 {
    let [a, b] = block.halves;
    let offset = format.offset();
    let (mut low, mut high) = match F {
        Q6K => (_mm512_set1_epi32(-offset * a), _mm512_set1_epi32(-offset * b)),
        Q4K => (_mm512_setzero_si512(), _mm512_setzero_si512()),
        _ => (_mm512_set1_epi32(-offset * (a + b)), _mm512_setzero_si512()),
    };
    let (values, _) = block.quants.as_chunks::<4>();
    let value = |group: usize| _mm512_set1_epi32(i32::from_le_bytes(values[group].map(i8::cast_unsigned)));
    for group in 0..4 {
        low = _mm512_dpbusd_epi32(low, groups[group], value(group));
        high = _mm512_dpbusd_epi32(high, groups[group + 4], value(group + 4));
    }
    if F == Q6K {
        low = _mm512_mullo_epi32(low, scales.first);
        high = _mm512_mullo_epi32(high, scales.second);
    }
    let total = _mm512_cvtepi32_ps(_mm512_add_epi32(low, high));
    let step = _mm512_mul_ps(scales.step, _mm512_set1_ps(block.scale));
    let sum = _mm512_add_ps(sum, _mm512_mul_ps(total, step));
    if F == Q4K {
        return _mm512_sub_ps(sum, _mm512_mul_ps(scales.min, _mm512_set1_ps(block.scaled_sum)));
    }
    sum
}

/// # Safety
/// The tile must have `blocks` blocks, the input at least `first + R` quantized rows of as many.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn block_rows<const F: u32, const R: usize>(
    format: Format,
    tile: *const u8,
    blocks: usize,
    input: &Activations,
    first: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    let mut sums = [_mm512_setzero_ps(); R];
    // SAFETY: the caller vouches for tile and input; indices stay below `blocks` and `first + R`.
    unsafe {
        for index in 0..blocks {
            let quants = tile.add(format.quants_at(index));
            if first == 0 {
                for line in 0..format.quant_bytes().div_ceil(64) + 1 {
                    _mm_prefetch::<_MM_HINT_T0>(quants.wrapping_add(AHEAD + line * 64).cast());
                }
            }
            let groups = unpack::<F>(quants);
            let scales = scales::<F>(tile.add(format.scales_at(index)), index);
            // Written out, because sums indexed in a loop would live in memory.
            macro_rules! row {
                ($($row:literal)*) => {$(
                    if $row < R {
                        let block = input.blocks.get_unchecked((first + $row) * blocks + index);
                        sums[$row] = accumulate::<F>(format, &groups, &scales, block, sums[$row]);
                    }
                )*};
            }
            row!(0 1 2 3 4 5 6 7);
        }
        for (sum, out) in sums.iter().zip(out) {
            _mm512_storeu_ps(out.as_mut_ptr(), *sum);
        }
    }
}
