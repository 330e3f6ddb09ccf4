//! Tile kernels for AVX2: the 16 rows of a tile in two passes of eight lanes, up to four activation rows a pass.
//!
//! Eight-bit weights go through absolute values and moved signs, so that no 16-bit sum saturates; the narrower formats
//! cannot. Same order of float operations as [`super::scalar`].
#![expect(unsafe_code, reason = "vector intrinsics on checked slices")]

use std::arch::x86_64::*;

use super::activations::{Activations, QuantBlock};
use super::format::{BLOCK, Format, SUPER, TILE_ROWS};

const Q4_0: u32 = Format::Q4_0.type_id();
const Q5_0: u32 = Format::Q5_0.type_id();
const Q8_0: u32 = Format::Q8_0.type_id();
const Q4K: u32 = Format::Q4K.type_id();
const Q6K: u32 = Format::Q6K.type_id();

/// Multiplies a tile with the rows `first..first + out.len()`.
///
/// # Safety
/// The machine must have AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
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
#[target_feature(enable = "avx2,f16c")]
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
        let count = [4, 2, 1]
            .into_iter()
            .find(|count| *count <= rest.len())
            .unwrap_or(1);
        let (now, later) = rest.split_at_mut(count);
        for half in 0..2 {
            // SAFETY: the lengths were checked above for all rows and blocks.
            unsafe {
                match count {
                    4 => block_rows::<F, 4>(format, tile.as_ptr(), half, blocks, input, at, now),
                    2 => block_rows::<F, 2>(format, tile.as_ptr(), half, blocks, input, at, now),
                    _ => block_rows::<F, 1>(format, tile.as_ptr(), half, blocks, input, at, now),
                }
            }
        }
        at += count;
        rest = later;
    }
}

/// The eight groups of a half block: unsigned bytes, for `Q8_0` signed ones.
///
/// # Safety
/// `at` must point to the half's first byte in a whole block of quants of format `F`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn unpack<const F: u32>(at: *const u8) -> [__m256i; 8] {
    // SAFETY: the caller vouches for the block; every index below lies inside it.
    let load = |index: usize| unsafe { _mm256_loadu_si256(at.add(index * 64).cast()) };
    if F == Q8_0 {
        let flip = _mm256_set1_epi8(-128);
        return std::array::from_fn(|g| _mm256_xor_si256(load(g), flip));
    }
    let mask = _mm256_set1_epi8(15);
    let groups: [__m256i; 8] = std::array::from_fn(|g| {
        let plane = load(g % 4);
        _mm256_and_si256(
            if g < 4 {
                plane
            } else {
                _mm256_srli_epi16::<4>(plane)
            },
            mask,
        )
    });
    if F == Q5_0 {
        let (bits, bit) = (load(4), _mm256_set1_epi8(16));
        let moved = [
            _mm256_slli_epi16::<4>(bits),
            _mm256_slli_epi16::<3>(bits),
            _mm256_slli_epi16::<2>(bits),
            _mm256_slli_epi16::<1>(bits),
            bits,
            _mm256_srli_epi16::<1>(bits),
            _mm256_srli_epi16::<2>(bits),
            _mm256_srli_epi16::<3>(bits),
        ];
        return std::array::from_fn(|g| _mm256_or_si256(_mm256_and_si256(moved[g], bit), groups[g]));
    }
    if F == Q6K {
        let (bits, pair) = ([load(4), load(5)], _mm256_set1_epi8(48));
        let moved = bits.map(|bits| {
            [
                _mm256_slli_epi16::<4>(bits),
                _mm256_slli_epi16::<2>(bits),
                bits,
                _mm256_srli_epi16::<2>(bits),
            ]
        });
        return std::array::from_fn(|g| {
            _mm256_or_si256(_mm256_and_si256(moved[g / 4][g % 4], pair), groups[g])
        });
    }
    groups
}

/// Four products a lane, summed: exact for every format.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn product<const F: u32>(sum: __m256i, weights: __m256i, values: __m256i) -> __m256i {
    let pairs = if F == Q8_0 {
        _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(values, weights))
    } else {
        _mm256_maddubs_epi16(weights, values)
    };
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// What a half block's integer sums are scaled with.
struct Scales {
    step: __m256,
    min: __m256,
    first: __m256i,
    second: __m256i,
}

/// # Safety
/// `at` must point to the scales of block `index` in a tile of format `F`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn scales<const F: u32>(at: *const u8, half: usize, index: usize) -> Scales {
    let zero = _mm256_setzero_si256();
    // SAFETY: the caller vouches for the scales; offsets follow the format's layout.
    unsafe {
        let halves = |at: *const u8| _mm256_cvtph_ps(_mm_loadu_si128(at.add(half * 16).cast()));
        if F == Q4K || F == Q6K {
            let own = at.add(if F == Q4K { 64 } else { 32 } + index % SUPER * 32 + half * 8);
            let (first, second) = (_mm_loadl_epi64(own.cast()), _mm_loadl_epi64(own.add(16).cast()));
            if F == Q4K {
                let whole = |bytes: __m128i| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
                let step = _mm256_mul_ps(halves(at), whole(first));
                let min = _mm256_mul_ps(halves(at.add(32)), whole(second));
                return Scales {
                    step,
                    min,
                    first: zero,
                    second: zero,
                };
            }
            let (first, second) = (_mm256_cvtepi8_epi32(first), _mm256_cvtepi8_epi32(second));
            return Scales {
                step: halves(at),
                min: _mm256_setzero_ps(),
                first,
                second,
            };
        }
        Scales {
            step: halves(at),
            min: _mm256_setzero_ps(),
            first: zero,
            second: zero,
        }
    }
}

/// Adds the products of a block with one row's values to the row's sums.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn accumulate<const F: u32>(
    format: Format,
    groups: &[__m256i; 8],
    scales: &Scales,
    block: &QuantBlock,
    sum: __m256,
) -> __m256 {
    let [a, b] = block.halves;
    let offset = if F == Q8_0 { 0 } else { format.offset() };
    let (mut low, mut high) = (_mm256_set1_epi32(-offset * a), _mm256_set1_epi32(-offset * b));
    let (values, _) = block.quants.as_chunks::<4>();
    let value = |group: usize| _mm256_set1_epi32(i32::from_le_bytes(values[group].map(i8::cast_unsigned)));
    for group in 0..4 {
        low = product::<F>(low, groups[group], value(group));
        high = product::<F>(high, groups[group + 4], value(group + 4));
    }
    if F == Q6K {
        low = _mm256_mullo_epi32(low, scales.first);
        high = _mm256_mullo_epi32(high, scales.second);
    }
    let total = _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));
    let step = _mm256_mul_ps(scales.step, _mm256_set1_ps(block.scale));
    let sum = _mm256_add_ps(sum, _mm256_mul_ps(total, step));
    if F == Q4K {
        return _mm256_sub_ps(sum, _mm256_mul_ps(scales.min, _mm256_set1_ps(block.scaled_sum)));
    }
    sum
}

/// # Safety
/// The tile must have `blocks` blocks, the input at least `first + R` quantized rows of as many.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn block_rows<const F: u32, const R: usize>(
    format: Format,
    tile: *const u8,
    half: usize,
    blocks: usize,
    input: &Activations,
    first: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    let mut sums = [_mm256_setzero_ps(); R];
    // SAFETY: the caller vouches for tile and input; indices stay below `blocks` and `first + R`.
    unsafe {
        for index in 0..blocks {
            let groups = unpack::<F>(tile.add(format.quants_at(index) + half * 32));
            let scales = scales::<F>(tile.add(format.scales_at(index)), half, index);
            // Written out, because sums indexed in a loop would live in memory.
            macro_rules! row {
                ($($row:literal)*) => {$(
                    if $row < R {
                        let block = input.blocks.get_unchecked((first + $row) * blocks + index);
                        sums[$row] = accumulate::<F>(format, &groups, &scales, block, sums[$row]);
                    }
                )*};
            }
            row!(0 1 2 3);
        }
        for (sum, out) in sums.iter().zip(out) {
            _mm256_storeu_ps(out.as_mut_ptr().add(half * 8), *sum);
        }
    }
}
