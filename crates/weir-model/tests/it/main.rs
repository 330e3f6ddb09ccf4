//! Tests of the crate through its public surface, on tiny files made here.
#![expect(clippy::unwrap_used, reason = "a test whose preparation fails has failed")]

mod batching;
mod engine;
mod exactness;
mod files;
mod oracle;
mod tokens;

use std::sync::Arc;

use weir_model::arch::Family;
use weir_model::gguf::{Gguf, TensorType};
use weir_model::tiny::TinyModel;

const FAMILIES: [Family; 4] = [Family::Gemma3, Family::Llama, Family::Qwen2, Family::Qwen3];

fn format(name: &str) -> TensorType {
    TensorType::named(name).unwrap()
}

fn opened(model: &TinyModel) -> Arc<Gguf> {
    Arc::new(Gguf::from_bytes(model.to_bytes().unwrap()).unwrap())
}

/// A model whose matrices take every storage type there is a kernel for. Gemma 3's sixth layer is the first without a
/// window, so it has seven.
fn mixed(family: Family) -> TinyModel {
    let formats = ["Q8_0", "Q5_0", "Q4_K", "Q6_K", "Q4_0", "F16", "F32"]
        .map(format)
        .to_vec();
    let layers = if family == Family::Gemma3 { 7 } else { 2 };
    TinyModel {
        formats,
        layers,
        ..TinyModel::new(family, format("F32"))
    }
}

/// Ids without meaning, the same on every machine.
fn ids(count: usize, seed: usize) -> Vec<u32> {
    (0..count)
        .map(|at| u32::try_from((at * 31 + seed * 17 + at * at % 13) % 250).unwrap())
        .collect()
}
