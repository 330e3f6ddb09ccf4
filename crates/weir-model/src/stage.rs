//! A stage: a contiguous range of layers with the keys and values of its sequences.
//!
//! The order to call: [`Stage::open`] a sequence, [`Stage::embed`] ids where the stage has the embeddings,
//! [`Stage::forward`] rows in order of position, [`Stage::head`] where it has the head, [`Stage::close`] at the end.
//! Invariant: what a row gives depends on the ids before it in its sequence and on nothing else.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::arch::Arch;
use crate::cache::{self, CHUNK, LayerCache};
use crate::forward::{Context, Place, Scratch, Wavelengths, normalize};
use crate::gguf::Gguf;
use crate::kernels::{Activations, Isa, Job, Matrix, Output, multiply, pool::Pool};
use crate::memory;
use crate::weights::{Embedding, Layer, LoadError, Tensors};

/// Threads that stages of one process share.
#[derive(Clone, Debug)]
pub struct Threads(pub(crate) Arc<Pool>);

impl Threads {
    /// Starts threads; the one that calls a stage counts as one of them. They sleep while nobody calls.
    ///
    /// # Errors
    /// [`LoadError::System`] when the system refuses a thread.
    pub fn new(threads: usize) -> Result<Self, LoadError> {
        let pool = Pool::new(threads).map_err(|source| LoadError::System {
            what: "starting threads",
            source,
        })?;
        Ok(Self(Arc::new(pool)))
    }
}

/// Which part of a model a stage holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    /// The layers, possibly none.
    pub layers: Range<usize>,
    /// Whether it turns ids into hidden states.
    pub embedding: bool,
    /// Whether it turns hidden states into logits.
    pub head: bool,
}

impl StageSpec {
    /// All of a model.
    #[must_use]
    pub fn whole(layers: usize) -> Self {
        Self {
            layers: 0..layers,
            embedding: true,
            head: true,
        }
    }

    /// Cuts a model after the given numbers of layers.
    #[must_use]
    pub fn cut(layers: usize, cuts: &[usize]) -> Vec<Self> {
        let starts = std::iter::once(&0).chain(cuts);
        let ends = cuts.iter().chain(std::iter::once(&layers));
        let last = cuts.len();
        let stage = |(index, (start, end)): (usize, (&usize, &usize))| Self {
            layers: *start..*end,
            embedding: index == 0,
            head: index == last,
        };
        starts.zip(ends).enumerate().map(stage).collect()
    }
}

/// One row of a batch: the next position of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The sequence.
    pub sequence: u64,
    /// Its position, from 0.
    pub position: usize,
}

/// What a stage refused to do. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// A sequence that is not open.
    #[error("sequence {0} is not open on this stage")]
    Unknown(u64),
    /// A sequence that is open already.
    #[error("sequence {0} is open already")]
    Open(u64),
    /// A row that is not the next of its sequence.
    #[error("sequence {sequence} is at position {at}, row {position} is not next")]
    Position {
        /// The sequence.
        sequence: u64,
        /// The position it is at.
        at: usize,
        /// The position asked for.
        position: usize,
    },
    /// A context longer than what was reserved, or than the model's.
    #[error("a context of {asked} tokens exceeds the {most} that are possible")]
    Context {
        /// Tokens asked for.
        asked: usize,
        /// Tokens possible.
        most: usize,
    },
    /// Hidden states of another size than the rows ask for.
    #[error("{rows} rows take {need} floats of hidden state, {have} were given")]
    Shape {
        /// Number of rows.
        rows: usize,
        /// Floats they take.
        need: usize,
        /// Floats given.
        have: usize,
    },
    /// An id beyond the vocabulary.
    #[error("token id {id} does not exist: the vocabulary has {vocabulary}")]
    Token {
        /// The id.
        id: u32,
        /// Ids in the vocabulary.
        vocabulary: usize,
    },
    /// The stage does not hold what it was asked to use.
    #[error("this stage does not hold the {0}")]
    Missing(&'static str),
}

/// A sequence's state on a stage.
#[derive(Debug)]
struct Sequence {
    len: usize,
    /// The longest it has been: rings hold the last slots before this, even after it was taken back.
    longest: usize,
    context: usize,
    layers: Vec<LayerCache>,
}

/// A range of layers, ready to run.
#[derive(Debug)]
pub struct Stage {
    arch: Arc<Arch>,
    spec: StageSpec,
    isa: Isa,
    threads: Threads,
    layers: Vec<Layer>,
    embedding: Option<Embedding>,
    head: Option<(Vec<f32>, Matrix)>,
    wavelengths: Wavelengths,
    sequences: HashMap<u64, Sequence>,
    scratch: Scratch,
    normed: Activations,
}

impl Stage {
    /// Bytes the weights of a stage will take.
    #[must_use]
    pub fn weight_bytes(gguf: &Gguf, arch: &Arch, spec: &StageSpec) -> usize {
        Tensors { gguf, arch }.bytes(spec)
    }

    /// Loads a stage with the best kernels of this machine.
    ///
    /// # Errors
    /// [`LoadError`] says which tensor or range is wrong, or how much memory is missing, before anything is loaded.
    pub fn load(gguf: &Arc<Gguf>, spec: StageSpec, threads: &Threads) -> Result<Self, LoadError> {
        Self::load_with(gguf, spec, threads, Isa::detect())
    }

    /// Loads a stage with the kernels of a given instruction set.
    ///
    /// # Errors
    /// As [`Stage::load`].
    pub fn load_with(
        gguf: &Arc<Gguf>,
        spec: StageSpec,
        threads: &Threads,
        isa: Isa,
    ) -> Result<Self, LoadError> {
        let arch = Arc::new(Arch::from_gguf(gguf)?);
        if spec.layers.start > spec.layers.end || spec.layers.end > arch.layers {
            return Err(LoadError::Range {
                range: spec.layers,
                layers: arch.layers,
            });
        }
        let tensors = Tensors { gguf, arch: &arch };
        let (need, free) = (tensors.bytes(&spec) >> 20, memory::free_bytes() >> 20);
        if need >= free {
            return Err(LoadError::Memory { need, free });
        }
        let layers = spec
            .layers
            .clone()
            .map(|layer| tensors.layer(layer))
            .collect::<Result<_, _>>()?;
        let embedding = spec.embedding.then(|| Embedding::new(gguf, &arch)).transpose()?;
        let head = spec.head.then(|| tensors.head()).transpose()?;
        let wavelengths = Wavelengths::new(&arch, tensors.rope_factors()?.as_deref());
        gguf.release_pages();
        Ok(Self {
            spec,
            isa,
            threads: threads.clone(),
            layers,
            embedding,
            head,
            wavelengths,
            sequences: HashMap::new(),
            scratch: Scratch::default(),
            normed: Activations::default(),
            arch,
        })
    }

    /// The model's architecture.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// What this stage holds.
    #[must_use]
    pub fn spec(&self) -> &StageSpec {
        &self.spec
    }

    /// Bytes of weights in memory.
    #[must_use]
    pub fn loaded_bytes(&self) -> usize {
        let layer = |layer: &Layer| {
            [
                &layer.query,
                &layer.key,
                &layer.value,
                &layer.output,
                &layer.gate,
                &layer.up,
                &layer.down,
            ]
            .map(Matrix::bytes)
            .iter()
            .sum::<usize>()
        };
        self.layers.iter().map(layer).sum::<usize>() + self.head.as_ref().map_or(0, |(_, head)| head.bytes())
    }

    /// Bytes that a sequence of this context length takes here.
    #[must_use]
    pub fn sequence_bytes(&self, context: usize) -> usize {
        cache::bytes(&self.arch, self.spec.layers.clone(), context)
    }

    /// Reserves room for a sequence of up to `context` tokens.
    ///
    /// # Errors
    /// [`StageError::Open`] and [`StageError::Context`].
    pub fn open(&mut self, sequence: u64, context: usize) -> Result<(), StageError> {
        if context == 0 || context > self.arch.context {
            return Err(StageError::Context {
                asked: context,
                most: self.arch.context,
            });
        }
        if self.sequences.contains_key(&sequence) {
            return Err(StageError::Open(sequence));
        }
        let layers = self
            .spec
            .layers
            .clone()
            .map(|layer| LayerCache::new(&self.arch, layer, context))
            .collect();
        self.sequences.insert(
            sequence,
            Sequence {
                len: 0,
                longest: 0,
                context,
                layers,
            },
        );
        Ok(())
    }

    /// Reserves room for more tokens in an open sequence; its positions stay. A shorter context changes nothing.
    ///
    /// # Errors
    /// [`StageError::Unknown`] and [`StageError::Context`].
    pub fn grow(&mut self, sequence: u64, context: usize) -> Result<(), StageError> {
        if context > self.arch.context {
            return Err(StageError::Context {
                asked: context,
                most: self.arch.context,
            });
        }
        let found = self
            .sequences
            .get_mut(&sequence)
            .ok_or(StageError::Unknown(sequence))?;
        if context > found.context {
            for (layer, cache) in (self.spec.layers.start..).zip(&mut found.layers) {
                cache.grow(&self.arch, layer, context);
            }
            found.context = context;
        }
        Ok(())
    }

    /// Forgets a sequence and gives its memory back. Closing what is not open does nothing.
    pub fn close(&mut self, sequence: u64) {
        self.sequences.remove(&sequence);
    }

    /// Positions a sequence has.
    #[must_use]
    pub fn len_of(&self, sequence: u64) -> Option<usize> {
        self.sequences.get(&sequence).map(|sequence| sequence.len)
    }

    /// Whether [`Stage::truncate`] to this length would succeed.
    #[must_use]
    pub fn can_truncate(&self, sequence: u64, len: usize) -> bool {
        self.sequences.get(&sequence).is_some_and(|found| {
            let kept = |layer: &LayerCache| layer.can_go_back(found.longest, len);
            len == found.len || (len < found.len && found.layers.iter().all(kept))
        })
    }

    /// Takes a sequence back to its first `len` positions. `false`, and nothing changed, when a windowed layer has
    /// already overwritten what the next row would see.
    pub fn truncate(&mut self, sequence: u64, len: usize) -> bool {
        let possible = self.can_truncate(sequence, len);
        if let Some(found) = self.sequences.get_mut(&sequence)
            && possible
        {
            found.len = len;
        }
        possible
    }

    /// The hidden states of ids, one row each.
    ///
    /// # Errors
    /// [`StageError::Token`], and [`StageError::Missing`] on a stage without embeddings.
    pub fn embed(&self, ids: &[u32]) -> Result<Vec<f32>, StageError> {
        let embedding = self.embedding.as_ref().ok_or(StageError::Missing("embeddings"))?;
        let vocabulary = self.arch.vocabulary;
        if let Some(id) = ids.iter().copied().find(|id| *id as usize >= vocabulary) {
            return Err(StageError::Token { id, vocabulary });
        }
        let mut hidden = vec![0.0; ids.len() * self.arch.width];
        for (id, row) in ids.iter().zip(hidden.chunks_exact_mut(self.arch.width)) {
            embedding.read(*id, self.arch.embedding_scale, row);
        }
        Ok(hidden)
    }

    /// Takes rows through the layers of this stage, in place. Each must be the next position of its sequence.
    ///
    /// # Errors
    /// [`StageError`] says which row is wrong; nothing has been computed or stored then.
    pub fn forward(&mut self, rows: &[Row], hidden: &mut [f32]) -> Result<(), StageError> {
        let width = self.arch.width;
        if hidden.len() != rows.len() * width {
            return Err(StageError::Shape {
                rows: rows.len(),
                need: rows.len() * width,
                have: hidden.len(),
            });
        }
        let ends = self.check(rows)?;
        for (rows, hidden) in rows.chunks(CHUNK).zip(hidden.chunks_mut(CHUNK * width)) {
            self.forward_chunk(rows, hidden);
        }
        for (sequence, end) in ends {
            if let Some(sequence) = self.sequences.get_mut(&sequence) {
                sequence.len = end;
                sequence.longest = sequence.longest.max(end);
            }
        }
        Ok(())
    }

    /// The length every sequence among the rows will have.
    fn check(&self, rows: &[Row]) -> Result<HashMap<u64, usize>, StageError> {
        let mut ends = HashMap::new();
        for row in rows {
            let sequence = self
                .sequences
                .get(&row.sequence)
                .ok_or(StageError::Unknown(row.sequence))?;
            let at = ends.entry(row.sequence).or_insert(sequence.len);
            if row.position != *at {
                return Err(StageError::Position {
                    sequence: row.sequence,
                    at: *at,
                    position: row.position,
                });
            }
            if row.position >= sequence.context {
                return Err(StageError::Context {
                    asked: row.position + 1,
                    most: sequence.context,
                });
            }
            *at += 1;
        }
        Ok(ends)
    }

    fn forward_chunk(&mut self, rows: &[Row], hidden: &mut [f32]) {
        let mut order: HashMap<u64, usize> = HashMap::new();
        let places: Vec<Place> = rows
            .iter()
            .map(|row| {
                let next = order.len();
                Place {
                    cache: *order.entry(row.sequence).or_insert(next),
                    position: row.position,
                }
            })
            .collect();
        let mut held: Vec<(usize, &mut Sequence)> = self
            .sequences
            .iter_mut()
            .filter_map(|(id, held)| Some((*order.get(id)?, held)))
            .collect();
        held.sort_unstable_by_key(|(index, _)| *index);
        self.scratch
            .turns
            .fill(&self.wavelengths, rows.iter().map(|row| row.position));
        let context = Context {
            arch: &self.arch,
            pool: &self.threads.0,
            isa: self.isa,
        };
        for (index, layer) in self.layers.iter().enumerate() {
            let window = self.arch.window_of(self.spec.layers.start + index).is_some();
            let mut caches: Vec<&mut LayerCache> = held
                .iter_mut()
                .map(|(_, sequence)| &mut sequence.layers[index])
                .collect();
            self.scratch
                .layer(&context, layer, window, &places, &mut caches, hidden);
        }
    }

    /// Turns hidden states into logits, one row of the vocabulary each.
    ///
    /// # Errors
    /// [`StageError::Missing`] on a stage without the head, [`StageError::Shape`].
    pub fn head(&mut self, hidden: &[f32], logits: &mut Vec<f32>) -> Result<(), StageError> {
        let (norm, matrix) = self.head.as_ref().ok_or(StageError::Missing("head"))?;
        let rows = hidden.len() / self.arch.width;
        if hidden.len() != rows * self.arch.width {
            return Err(StageError::Shape {
                rows,
                need: rows * self.arch.width,
                have: hidden.len(),
            });
        }
        let context = Context {
            arch: &self.arch,
            pool: &self.threads.0,
            isa: self.isa,
        };
        normalize(&context, hidden, norm, matrix.is_quantized(), &mut self.normed);
        logits.resize(rows * matrix.rows(), 0.0);
        let out = Output::new(logits, matrix.rows());
        multiply(context.pool, self.isa, &self.normed, &[Job { matrix, out }]);
        Ok(())
    }
}
