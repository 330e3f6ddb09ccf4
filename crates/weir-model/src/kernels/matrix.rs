//! A weight matrix in tiles, and the multiplication of several matrices with the same rows in one parallel region.

use super::activations::Activations;
use super::format::{Format, TILE_ROWS};
use super::isa::Level;
use super::output::Output;
use super::pool::Pool;
use super::{Isa, dense, pack, scalar};
use crate::gguf::{Gguf, TensorInfo};
use crate::memory::Region;

/// Activation rows handed to a kernel at once, so that their results stay on the stack.
const STRIP: usize = 32;
/// Aim for this many bytes of weights a part: small enough to share well, large enough to be worth an atomic.
const PART_BYTES: usize = 96 << 10;

/// Bytes of a file packed before its pages are let go, so that loading takes little more than the weights.
const STRIP_BYTES: usize = 4 << 20;

/// Why a tensor cannot become a matrix.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MatrixError {
    #[error(
        "tensor {name} has type {kind}, for which there is no kernel (F32, F16, Q4_0, Q5_0, Q8_0, Q4_K, Q6_K have one)"
    )]
    Type { name: String, kind: &'static str },
    #[error("no memory for tensor {name}: {source}")]
    Memory { name: String, source: std::io::Error },
}

/// Weights of one tensor, packed.
#[derive(Debug)]
pub(crate) struct Matrix {
    format: Format,
    rows: usize,
    columns: usize,
    tile_bytes: usize,
    data: Region,
}

impl Matrix {
    /// Packs a tensor of the file into tiles and lets go of the file's pages.
    pub(crate) fn load(gguf: &Gguf, tensor: &TensorInfo) -> Result<Self, MatrixError> {
        let format = Format::of(tensor.kind).ok_or_else(|| MatrixError::Type {
            name: tensor.name.clone(),
            kind: tensor.kind.name,
        })?;
        let system = |source| MatrixError::Memory {
            name: tensor.name.clone(),
            source,
        };
        let mut matrix = Self::empty(format, tensor.rows(), tensor.columns()).map_err(system)?;
        let row_bytes = tensor.bytes / tensor.rows().max(1);
        let strip = (STRIP_BYTES / row_bytes.max(1))
            .next_multiple_of(TILE_ROWS)
            .max(TILE_ROWS);
        for (index, rows) in gguf.data(tensor).chunks(strip * row_bytes).enumerate() {
            matrix.fill(index * strip / TILE_ROWS, rows, row_bytes);
            gguf.release_part(tensor, index * strip * row_bytes, rows.len());
        }
        Ok(matrix)
    }

    fn empty(format: Format, rows: usize, columns: usize) -> std::io::Result<Self> {
        let tile_bytes = format.tile_bytes(columns);
        let data = Region::zeroed(rows.div_ceil(TILE_ROWS) * tile_bytes)?;
        Ok(Self {
            format,
            rows,
            columns,
            tile_bytes,
            data,
        })
    }

    /// Packs rows as the file has them into the tiles from `first` on.
    fn fill(&mut self, first: usize, rows: &[u8], row_bytes: usize) {
        let tiles = self.data.bytes_mut()[first * self.tile_bytes..].chunks_exact_mut(self.tile_bytes);
        for (tile, rows) in tiles.zip(rows.chunks(row_bytes * TILE_ROWS)) {
            for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
                pack::pack_row(self.format, row, lane, tile);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn pack(format: Format, data: &[u8], rows: usize, columns: usize) -> std::io::Result<Self> {
        let mut matrix = Self::empty(format, rows, columns)?;
        matrix.fill(0, data, data.len() / rows);
        Ok(matrix)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn is_quantized(&self) -> bool {
        self.format.is_quantized()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.bytes().len()
    }

    #[cfg(test)]
    pub(super) fn first_tile(&self) -> &[u8] {
        &self.data.bytes()[..self.tile_bytes]
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    fn tiles_a_part(&self) -> usize {
        (PART_BYTES / self.tile_bytes.max(1)).clamp(1, 64)
    }

    fn parts(&self) -> usize {
        self.tiles().div_ceil(self.tiles_a_part())
    }
}

/// One multiplication: `out = input * matrix^T`.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) out: Output<'a>,
}

/// Multiplies the rows of `input` with each job's matrix, shared among the threads of the pool.
pub(crate) fn multiply(pool: &Pool, isa: Isa, input: &Activations, jobs: &[Job<'_>]) {
    for job in jobs {
        assert_eq!(
            job.matrix.columns, input.columns,
            "rows of another width than the matrix"
        );
        assert_eq!(
            (job.out.rows(), job.out.columns()),
            (input.rows, job.matrix.rows),
            "an output of another shape"
        );
    }
    if input.rows == 0 {
        return;
    }
    pool.run(jobs.iter().map(|job| job.matrix.parts()).sum(), &|part| {
        let mut part = part;
        for job in jobs {
            if part < job.matrix.parts() {
                multiply_part(isa, input, job, part);
                return;
            }
            part -= job.matrix.parts();
        }
    });
}

#[expect(
    unsafe_code,
    reason = "writes the columns of this part, which no other thread has"
)]
fn multiply_part(isa: Isa, input: &Activations, job: &Job<'_>, part: usize) {
    let matrix = job.matrix;
    let begin = part * matrix.tiles_a_part();
    let end = (begin + matrix.tiles_a_part()).min(matrix.tiles());
    let data = &matrix.data.bytes()[begin * matrix.tile_bytes..end * matrix.tile_bytes];
    let mut lanes = [[0.0; TILE_ROWS]; STRIP];
    for (tile, bytes) in (begin..end).zip(data.chunks_exact(matrix.tile_bytes)) {
        for first in (0..input.rows).step_by(STRIP) {
            let count = STRIP.min(input.rows - first);
            multiply_tile(isa, matrix.format, bytes, input, first, &mut lanes[..count]);
            for (row, lanes) in (first..).zip(&lanes[..count]) {
                // SAFETY: the pool gives each part, so each tile, to one thread.
                unsafe { job.out.write(row, tile, lanes) };
            }
        }
    }
}

#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls code compiled for features found at run time")
)]
pub(super) fn multiply_tile(
    isa: Isa,
    format: Format,
    tile: &[u8],
    input: &Activations,
    first: usize,
    out: &mut [[f32; TILE_ROWS]],
) {
    if !format.is_quantized() {
        return dense::tile(isa, format, tile, input, first, out);
    }
    match isa.level() {
        Level::Scalar => scalar::tile(format, tile, input, first, out),
        // SAFETY: this value of `Isa` is only made where the machine has these features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { super::avx2::tile(format, tile, input, first, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { super::avx512::tile(format, tile, input, first, out) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => scalar::tile(format, tile, input, first, out),
    }
}
