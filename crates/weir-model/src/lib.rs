//! GGUF models on CPU, by layer range.
//!
//! A model file is mapped ([`gguf`]), cut into stages that each hold a range of layers, and run with our own forward
//! and run-time dispatched kernels. Every row of a batch is computed as if it were alone, so results do not depend on
//! neighbours, chunking, cuts, threads or instruction set.

pub mod arch;
pub mod batch;
mod cache;
pub mod engine;
pub mod fetch;
mod forward;
pub mod gguf;
pub mod kernels;
mod memory;
pub mod model;
pub mod prompts;
pub mod sample;
pub mod serve;
mod stage;
pub mod template;
pub mod tiny;
pub mod tokenizer;
mod weights;

pub use stage::{Row, Stage, StageError, StageSpec, Threads};
pub use weights::LoadError;
