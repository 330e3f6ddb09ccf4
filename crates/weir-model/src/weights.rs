//! The tensors of a stage: found by name, checked against the architecture, packed for the kernels.
//!
//! Only what the stage's range asks for is read. What a range will take is known before anything is loaded.

use std::ops::Range;
use std::sync::Arc;

use crate::arch::Arch;
use crate::gguf::{Gguf, TensorInfo};
use crate::kernels::{Format, Matrix, MatrixError, read_row};
use crate::stage::StageSpec;

/// Why a stage was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not acceptable.
    #[error(transparent)]
    File(#[from] crate::gguf::GgufError),
    /// A tensor has a type without a kernel.
    #[error("{0}")]
    Type(String),
    /// The range lies outside of the model.
    #[error("layers {}..{} do not exist: the model has {layers}", range.start, range.end)]
    Range {
        /// The range asked for.
        range: Range<usize>,
        /// Layers in the model.
        layers: usize,
    },
    /// The weights do not fit.
    #[error(
        "not enough memory: these weights take {need} MiB, {free} MiB are free; use fewer layers a host, or a smaller model"
    )]
    Memory {
        /// MiB the weights take.
        need: usize,
        /// MiB that are free.
        free: usize,
    },
    /// The operating system refused memory or threads.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl From<MatrixError> for LoadError {
    fn from(fault: MatrixError) -> Self {
        match fault {
            MatrixError::Type { .. } => Self::Type(fault.to_string()),
            MatrixError::Memory { source, .. } => Self::System {
                what: "reserving memory for weights",
                source,
            },
        }
    }
}

/// The weights of one layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    pub(crate) biases: [Option<Vec<f32>>; 3],
    pub(crate) query_norm: Option<Vec<f32>>,
    pub(crate) key_norm: Option<Vec<f32>>,
    pub(crate) output: Matrix,
    pub(crate) attention_post_norm: Option<Vec<f32>>,
    pub(crate) feed_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
    pub(crate) feed_post_norm: Option<Vec<f32>>,
    /// Whether each of the layer's inputs is read by a quantized matrix: attention, output, feed-forward, down.
    pub(crate) quantized: [bool; 4],
}

/// Finds and checks tensors.
pub(crate) struct Tensors<'a> {
    pub(crate) gguf: &'a Gguf,
    pub(crate) arch: &'a Arch,
}

impl Tensors<'_> {
    fn find(&self, name: &str, columns: usize, rows: usize) -> Result<&TensorInfo, LoadError> {
        let fail = |what: String| crate::gguf::GgufError::Tensor {
            name: name.to_owned(),
            what,
        };
        let tensor = self
            .gguf
            .tensor(name)
            .ok_or_else(|| fail("is missing".to_owned()))?;
        if (tensor.columns(), tensor.rows()) != (columns, rows) {
            let found = (tensor.columns(), tensor.rows());
            return Err(fail(format!(
                "is {} by {}, the model's shape asks for {columns} by {rows}",
                found.0, found.1
            ))
            .into());
        }
        Ok(tensor)
    }

    fn matrix(&self, name: &str, columns: usize, rows: usize) -> Result<Matrix, LoadError> {
        Ok(Matrix::load(self.gguf, self.find(name, columns, rows)?)?)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.find(name, len, 1)?;
        let format = Format::of(tensor.kind).filter(|format| !format.is_quantized());
        let format = format
            .ok_or_else(|| LoadError::Type(format!("tensor {name} is {}, not floats", tensor.kind.name)))?;
        let mut values = vec![0.0; len];
        read_row(format, self.gguf.data(tensor), &mut values);
        Ok(values)
    }

    fn optional(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        self.gguf.tensor(name).map(|_| self.vector(name, len)).transpose()
    }

    /// Factors on the wavelengths of rotary positions, as Llama 3.1 files carry them.
    pub(crate) fn rope_factors(&self) -> Result<Option<Vec<f32>>, LoadError> {
        self.optional("rope_freqs.weight", self.arch.rope_width / 2)
    }

    pub(crate) fn layer(&self, index: usize) -> Result<Layer, LoadError> {
        let arch = self.arch;
        let name = |part: &str| format!("blk.{index}.{part}");
        let (width, queries, keys) = (
            arch.width,
            arch.heads * arch.head_width,
            arch.key_heads * arch.head_width,
        );
        let query = self.matrix(&name("attn_q.weight"), width, queries)?;
        let key = self.matrix(&name("attn_k.weight"), width, keys)?;
        let value = self.matrix(&name("attn_v.weight"), width, keys)?;
        let output = self.matrix(&name("attn_output.weight"), queries, width)?;
        let gate = self.matrix(&name("ffn_gate.weight"), width, arch.feed_forward)?;
        let up = self.matrix(&name("ffn_up.weight"), width, arch.feed_forward)?;
        let down = self.matrix(&name("ffn_down.weight"), arch.feed_forward, width)?;
        let any = |matrices: &[&Matrix]| matrices.iter().any(|matrix| matrix.is_quantized());
        Ok(Layer {
            quantized: [
                any(&[&query, &key, &value]),
                any(&[&output]),
                any(&[&gate, &up]),
                any(&[&down]),
            ],
            attention_norm: self.vector(&name("attn_norm.weight"), width)?,
            biases: [
                self.optional(&name("attn_q.bias"), queries)?,
                self.optional(&name("attn_k.bias"), keys)?,
                self.optional(&name("attn_v.bias"), keys)?,
            ],
            query_norm: self.optional(&name("attn_q_norm.weight"), arch.head_width)?,
            key_norm: self.optional(&name("attn_k_norm.weight"), arch.head_width)?,
            attention_post_norm: self.optional(&name("post_attention_norm.weight"), width)?,
            feed_norm: self.vector(&name("ffn_norm.weight"), width)?,
            feed_post_norm: self.optional(&name("post_ffw_norm.weight"), width)?,
            query,
            key,
            value,
            output,
            gate,
            up,
            down,
        })
    }

    /// Norm and matrix from hidden state to logits. Without a matrix of its own a model uses its embeddings.
    pub(crate) fn head(&self) -> Result<(Vec<f32>, Matrix), LoadError> {
        let name = self.head_name();
        let matrix = self.matrix(name, self.arch.width, self.arch.vocabulary)?;
        Ok((self.vector("output_norm.weight", self.arch.width)?, matrix))
    }

    fn head_name(&self) -> &'static str {
        if self.gguf.tensor("output.weight").is_some() {
            "output.weight"
        } else {
            "token_embd.weight"
        }
    }

    /// Bytes that a stage's weights take once packed.
    pub(crate) fn bytes(&self, spec: &StageSpec) -> usize {
        let packed = |tensor: &TensorInfo| {
            let tiles = tensor.rows().div_ceil(16);
            Format::of(tensor.kind).map_or(0, |format| tiles * format.tile_bytes(tensor.columns()))
        };
        let in_range = |name: &str| {
            let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
            layer
                .and_then(|layer| layer.parse().ok())
                .is_some_and(|layer: usize| spec.layers.contains(&layer))
        };
        let wanted =
            |tensor: &&TensorInfo| in_range(&tensor.name) || (spec.head && tensor.name == self.head_name());
        self.gguf.tensors().filter(wanted).map(packed).sum()
    }
}

/// Rows of the embedding table, read from the file one by one.
#[derive(Debug)]
pub(crate) struct Embedding {
    gguf: Arc<Gguf>,
    tensor: TensorInfo,
    format: Format,
}

impl Embedding {
    pub(crate) fn new(gguf: &Arc<Gguf>, arch: &Arch) -> Result<Self, LoadError> {
        let tensor = Tensors { gguf, arch }
            .find("token_embd.weight", arch.width, arch.vocabulary)?
            .clone();
        let format = Format::of(tensor.kind).ok_or_else(|| {
            LoadError::Type(format!(
                "token_embd.weight is {}, for which there is no kernel",
                tensor.kind.name
            ))
        })?;
        Ok(Self {
            gguf: Arc::clone(gguf),
            tensor,
            format,
        })
    }

    pub(crate) fn read(&self, id: u32, scale: f32, out: &mut [f32]) {
        let row_bytes = self.tensor.bytes / self.tensor.rows().max(1);
        let begin = id as usize * row_bytes;
        let row = self
            .gguf
            .data(&self.tensor)
            .get(begin..begin + row_bytes)
            .unwrap_or_default();
        read_row(self.format, row, out);
        out.iter_mut().for_each(|value| *value *= scale);
    }
}
