//! A whole model in one process: its stages one after the other, cut wherever the caller likes.
//!
//! The cut changes no bit of the result. Sequences are opened, stepped, taken back and closed on all stages together.

use std::sync::Arc;

use crate::arch::Arch;
use crate::gguf::Gguf;
use crate::stage::{Row, Stage, StageError, StageSpec, Threads};
use crate::weights::LoadError;

/// All stages of a model.
#[derive(Debug)]
pub struct Model {
    stages: Vec<Stage>,
    arch: Arch,
}

impl Model {
    /// Loads a model in `stages` stages of about equal size (1 is the usual), which share threads.
    ///
    /// # Errors
    /// As [`Stage::load`].
    pub fn load(gguf: &Arc<Gguf>, stages: usize, threads: &Threads) -> Result<Self, LoadError> {
        let arch = Arch::from_gguf(gguf)?;
        let stages = stages.clamp(1, arch.layers + 1);
        let cuts: Vec<usize> = (1..stages).map(|index| index * arch.layers / stages).collect();
        Self::load_cut(gguf, &cuts, threads)
    }

    /// Loads a model cut after the given numbers of layers, ascending.
    ///
    /// # Errors
    /// As [`Stage::load`]. All stages are measured before the first is loaded.
    pub fn load_cut(gguf: &Arc<Gguf>, cuts: &[usize], threads: &Threads) -> Result<Self, LoadError> {
        let arch = Arch::from_gguf(gguf)?;
        let specs = StageSpec::cut(arch.layers, cuts);
        let bytes: usize = specs
            .iter()
            .map(|spec| Stage::weight_bytes(gguf, &arch, spec))
            .sum();
        let (need, free) = (bytes >> 20, crate::memory::free_bytes() >> 20);
        if need >= free {
            return Err(LoadError::Memory { need, free });
        }
        let stages = specs
            .into_iter()
            .map(|spec| Stage::load(gguf, spec, threads))
            .collect::<Result<_, _>>()?;
        Ok(Self { stages, arch })
    }

    /// The architecture.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// Bytes of weights in memory.
    #[must_use]
    pub fn loaded_bytes(&self) -> usize {
        self.stages.iter().map(Stage::loaded_bytes).sum()
    }

    /// Bytes that a sequence of this context length takes.
    #[must_use]
    pub fn sequence_bytes(&self, context: usize) -> usize {
        self.stages
            .iter()
            .map(|stage| stage.sequence_bytes(context))
            .sum()
    }

    /// Reserves room for a sequence.
    ///
    /// # Errors
    /// As [`Stage::open`].
    pub fn open(&mut self, sequence: u64, context: usize) -> Result<(), StageError> {
        self.stages
            .iter_mut()
            .try_for_each(|stage| stage.open(sequence, context))
    }

    /// Reserves room for more tokens.
    ///
    /// # Errors
    /// As [`Stage::grow`].
    pub fn grow(&mut self, sequence: u64, context: usize) -> Result<(), StageError> {
        self.stages
            .iter_mut()
            .try_for_each(|stage| stage.grow(sequence, context))
    }

    /// Forgets a sequence.
    pub fn close(&mut self, sequence: u64) {
        self.stages.iter_mut().for_each(|stage| stage.close(sequence));
    }

    /// Takes a sequence back to its first `len` positions, on all stages or on none.
    pub fn truncate(&mut self, sequence: u64, len: usize) -> bool {
        self.stages.iter().all(|stage| stage.can_truncate(sequence, len))
            && self.stages.iter_mut().all(|stage| stage.truncate(sequence, len))
    }

    /// Takes rows through the model. `ids` are the tokens at the rows; the logits of the rows in `wanted` (indices,
    /// ascending) are written to `logits`, one vocabulary after the other.
    ///
    /// # Errors
    /// As [`Stage::forward`]; nothing has changed then.
    pub fn step(
        &mut self,
        rows: &[Row],
        ids: &[u32],
        wanted: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), StageError> {
        let width = self.arch.width;
        let Some(first) = self.stages.first() else {
            return Err(StageError::Missing("layers"));
        };
        let mut hidden = first.embed(ids)?;
        for stage in &mut self.stages {
            stage.forward(rows, &mut hidden)?;
        }
        let mut picked = Vec::with_capacity(wanted.len() * width);
        for row in wanted {
            let state = hidden.get(row * width..(row + 1) * width);
            picked.extend(state.ok_or(StageError::Shape {
                rows: row + 1,
                need: (row + 1) * width,
                have: hidden.len(),
            })?);
        }
        match self.stages.last_mut() {
            Some(last) => last.head(&picked, logits),
            None => Err(StageError::Missing("head")),
        }
    }

    /// Appends tokens to a sequence and gives the logits behind the last of them.
    ///
    /// # Errors
    /// As [`Model::step`].
    pub fn feed(&mut self, sequence: u64, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), StageError> {
        let from = self
            .stages
            .first()
            .and_then(|stage| stage.len_of(sequence))
            .ok_or(StageError::Unknown(sequence))?;
        let rows: Vec<Row> = (from..from + ids.len())
            .map(|position| Row { sequence, position })
            .collect();
        let last: Vec<usize> = ids.len().checked_sub(1).into_iter().collect();
        self.step(&rows, ids, &last, logits)
    }
}
