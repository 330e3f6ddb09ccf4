//! The arm `weir`: the engine in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use weir_model::gguf::Gguf;
use weir_model::kernels::{Isa, argmax};
use weir_model::model::Model;
use weir_model::{Row, Threads};

use super::{ModelBench, Timing};
use crate::process::cpu_time;

pub(super) struct Arm {
    model: Model,
    pub(super) load_seconds: f64,
    logits: Vec<f32>,
}

impl Arm {
    pub(super) fn load(path: &Path, threads: usize) -> Result<Self> {
        let begin = Instant::now();
        let gguf = Arc::new(Gguf::open(path)?);
        let model = Model::load(&gguf, 1, &Threads::new(threads)?)?;
        Ok(Self {
            model,
            load_seconds: begin.elapsed().as_secs_f64(),
            logits: Vec::new(),
        })
    }

    /// A prompt, then greedy decoding of `batch` sequences together; only the first prompt is timed.
    pub(super) fn run(&mut self, bench: &ModelBench, batch: usize) -> Result<Timing> {
        let prompt = prompt_ids(bench.prompt);
        let sequences = 0..batch as u64;
        let mut timing = Timing::default();
        let mut next = Vec::new();
        for sequence in sequences.clone() {
            self.model.open(sequence, bench.prompt + bench.decode)?;
            let begin = Instant::now();
            self.model.feed(sequence, &prompt, &mut self.logits)?;
            next.push(self.likeliest(0)?);
            if sequence == 0 {
                timing.prefill_s = begin.elapsed().as_secs_f64();
            }
        }
        let (begin, cpu) = (Instant::now(), cpu_time());
        let wanted: Vec<usize> = (0..batch).collect();
        for step in 0..bench.decode {
            let row = |sequence| Row {
                sequence,
                position: bench.prompt + step,
            };
            let rows: Vec<Row> = sequences.clone().map(row).collect();
            self.model.step(&rows, &next, &wanted, &mut self.logits)?;
            for (index, id) in next.iter_mut().enumerate() {
                *id = self.likeliest(index)?;
            }
        }
        timing.decode_s = begin.elapsed().as_secs_f64();
        timing.decode_cpu_s = (cpu_time() - cpu).as_secs_f64();
        sequences.for_each(|sequence| self.model.close(sequence));
        Ok(timing)
    }

    fn likeliest(&self, row: usize) -> Result<u32> {
        let vocabulary = self.model.arch().vocabulary;
        let logits = self
            .logits
            .get(row * vocabulary..(row + 1) * vocabulary)
            .unwrap_or_default();
        Ok(u32::try_from(argmax(Isa::detect(), logits))?)
    }
}

/// Ids without meaning, the same for both arms.
pub(super) fn prompt_ids(count: usize) -> Vec<u32> {
    (0..count)
        .filter_map(|at| u32::try_from(1000 + at * 7 % 5000).ok())
        .collect()
}
