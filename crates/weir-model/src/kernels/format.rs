//! How weights lie in memory: tiles of 16 rows, in chunks of scales followed by quants.
//!
//! In a tile, a block covers 32 columns; a chunk is two blocks, or the eight of a super-block. Everything is read in the
//! order it lies in, and every part begins at a cache line. Its quants are stored as unsigned numbers with an offset, in eight groups of four
//! columns: byte `4 r + i` of group `g` belongs to row `r`, column `4 g + i`. Four-bit planes hold group `p` in the low
//! and group `p + 4` in the high half. Scales stay as the file has them, 16 rows side by side.

use crate::gguf::TensorType;

/// Rows in a tile: the lanes of a 512-bit register of floats.
pub(crate) const TILE_ROWS: usize = 16;
/// Columns in a block.
pub(crate) const BLOCK: usize = 32;
/// Blocks in a super-block of the K formats.
pub(crate) const SUPER: usize = 8;

/// A weight format there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    F16,
    Q4_0,
    Q5_0,
    Q8_0,
    Q4K,
    Q6K,
}

impl Format {
    pub(crate) const ALL: [Self; 7] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q5_0,
        Self::Q8_0,
        Self::Q4K,
        Self::Q6K,
    ];

    /// The format of a tensor type, when there are kernels for it.
    pub(crate) fn of(kind: TensorType) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.type_id() == kind.id)
    }

    pub(crate) const fn type_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q5_0 => 6,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q6K => 14,
        }
    }

    /// Whether activations are quantized for it.
    pub(crate) const fn is_quantized(self) -> bool {
        !matches!(self, Self::F32 | Self::F16)
    }

    /// Bytes of quants in a block of a tile.
    pub(crate) const fn quant_bytes(self) -> usize {
        match self {
            Self::F32 => 4 * BLOCK * TILE_ROWS,
            Self::F16 => 2 * BLOCK * TILE_ROWS,
            Self::Q8_0 => BLOCK * TILE_ROWS,
            Self::Q5_0 => 256 + 64,
            Self::Q4_0 | Self::Q4K => 256,
            Self::Q6K => 256 + 128,
        }
    }

    /// What is subtracted from a stored quant to get its value.
    pub(crate) const fn offset(self) -> i32 {
        match self {
            Self::Q8_0 => 128,
            Self::Q5_0 => 16,
            Self::Q4_0 => 8,
            Self::Q6K => 32,
            Self::F32 | Self::F16 | Self::Q4K => 0,
        }
    }

    /// Blocks in a chunk.
    pub(crate) const fn chunk_blocks(self) -> usize {
        match self {
            Self::Q4K | Self::Q6K => SUPER,
            _ => 2,
        }
    }

    /// Bytes of scales in a chunk: one or two half floats a row, in super-blocks then two bytes a row and block.
    pub(crate) const fn chunk_scale_bytes(self) -> usize {
        match self {
            Self::Q4K => 64 + SUPER * 32,
            // 32 bytes are padding.
            Self::Q6K => 32 + SUPER * 32 + 32,
            _ => 64,
        }
    }

    /// Bytes of a chunk.
    pub(crate) const fn chunk_bytes(self) -> usize {
        self.chunk_scale_bytes() + self.chunk_blocks() * self.quant_bytes()
    }

    /// Where the quants of a block begin in a tile.
    pub(crate) const fn quants_at(self, block: usize) -> usize {
        let (chunk, inner) = (block / self.chunk_blocks(), block % self.chunk_blocks());
        chunk * self.chunk_bytes() + self.chunk_scale_bytes() + inner * self.quant_bytes()
    }

    /// Where the scales of a block's chunk begin in a tile; those of a two-block chunk are already the block's own.
    pub(crate) const fn scales_at(self, block: usize) -> usize {
        let own = if self.chunk_blocks() == 2 {
            block % 2 * 32
        } else {
            0
        };
        block / self.chunk_blocks() * self.chunk_bytes() + own
    }

    /// Bytes of a tile with this many columns, rounded up so that the next one is aligned.
    pub(crate) const fn tile_bytes(self, columns: usize) -> usize {
        let exact = match self {
            Self::F32 => 4 * columns * TILE_ROWS,
            Self::F16 => 2 * columns * TILE_ROWS,
            _ => (columns / BLOCK).div_ceil(self.chunk_blocks()) * self.chunk_bytes(),
        };
        exact.next_multiple_of(64)
    }
}
