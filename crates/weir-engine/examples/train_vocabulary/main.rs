//! Trains the vocabulary again from `vocabulary/corpus` and writes `vocabulary/merges.txt`.
//!
//! `cargo run --release -p weir-engine --example train_vocabulary`. The result depends on the corpus and
//! [`MERGES`](trainer::MERGES) only; the fingerprint of the tokenizer changes with it.

mod trainer;

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vocabulary");
    fs::write(folder.join("merges.txt"), trainer::train(&folder.join("corpus"))?)
}
