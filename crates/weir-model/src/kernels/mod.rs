//! Everything that touches numbers in bulk: weight layouts, matrix kernels, vector maths, the thread pool.
//!
//! Two rules hold throughout. Each kernel has a scalar twin and gives the same bits as it on every instruction set:
//! integer sums are exact, float sums have one fixed order, multiply and add are never fused. And each row of a batch is
//! computed as if it were alone. So results do not depend on the machine, the batch, or the number of threads.
//! `unsafe` in this crate lives here and in [`crate::memory`]; nothing here knows what a model is.

mod activations;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dense;
mod format;
mod isa;
mod matrix;
mod output;
mod pack;
pub(crate) mod pool;
mod scalar;
#[cfg(test)]
mod tests;
pub(crate) mod vector;

pub(crate) use activations::Activations;
pub(crate) use attention::{Seen, attend};
pub(crate) use format::Format;
pub use isa::Isa;
pub(crate) use matrix::{Job, Matrix, MatrixError, multiply};
pub(crate) use output::{Output, each_row, each_rows};
pub(crate) use pack::read_row;

pub use vector::largest as argmax;

/// Names the arithmetic. Two builds with one fingerprint give the same bits for the same model and input.
pub const FINGERPRINT: &str = "weir-kernels-1";
