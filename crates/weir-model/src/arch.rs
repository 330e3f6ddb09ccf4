//! What a model's architecture is, as data: shapes, norms, activation, positions, windows.
//!
//! The four architectures share one forward; everything they differ in is a field here, read from the file's metadata and
//! from which tensors exist.

use crate::gguf::{Gguf, GgufError, Value};
use crate::kernels::vector::Pairing;

/// Families of models the forward knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Gemma 3: GELU, norms before and after, sliding windows, scaled embeddings.
    Gemma3,
    /// Llama 2 and 3.
    Llama,
    /// Qwen 2 and 2.5: biases on queries, keys and values.
    Qwen2,
    /// Qwen 3: normalized queries and keys.
    Qwen3,
}

impl Family {
    const ALL: [Self; 4] = [Self::Gemma3, Self::Llama, Self::Qwen2, Self::Qwen3];

    /// The name in `general.architecture`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemma3 => "gemma3",
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// The activation of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU by the hyperbolic tangent.
    Gelu,
    /// SiLU.
    Silu,
}

/// One way of turning positions into angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub base: f32,
    /// Positions are divided by this.
    pub divisor: f32,
}

/// The shape of a model and the choices of its forward.
#[derive(Clone, Debug)]
pub struct Arch {
    /// The family.
    pub family: Family,
    /// Number of layers.
    pub layers: usize,
    /// Width of the hidden state.
    pub width: usize,
    /// Width of the feed-forward part.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub key_heads: usize,
    /// Width of a query, key or value head.
    pub head_width: usize,
    /// Longest context the model was made for.
    pub context: usize,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Added to the mean square in norms.
    pub epsilon: f32,
    /// Factor on embeddings.
    pub embedding_scale: f32,
    /// Factor on attention scores.
    pub attention_scale: f32,
    /// The activation.
    pub activation: Activation,
    /// Values of a head that are rotated.
    pub rope_width: usize,
    /// Positions in layers that see everything.
    pub rope: Rope,
    /// Positions in layers with a window.
    pub rope_windowed: Rope,
    /// Keys a windowed layer sees, its own included.
    pub window: Option<usize>,
    /// Every how many layers one sees everything; the others are windowed.
    pub window_pattern: usize,
    pub(crate) pairing: Pairing,
}

/// Longest context accepted from a file: what keeps every size below within 64 bits.
const MAX_CONTEXT: usize = 1 << 24;
const MAX_WIDTH: usize = 1 << 20;

impl Arch {
    /// Reads the architecture of a file.
    ///
    /// # Errors
    /// [`GgufError::Key`] names the key that is missing, impossible or not supported.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, GgufError> {
        let name = gguf
            .text("general.architecture")
            .ok_or_else(|| key_error("general.architecture", "is missing"))?;
        let known = Family::ALL.into_iter().find(|family| family.name() == name);
        let family = known.ok_or_else(|| {
            let names = Family::ALL.map(Family::name).join(", ");
            key_error(
                "general.architecture",
                format!("is {name:?}; this build runs {names}"),
            )
        })?;
        let keys = Keys { gguf, prefix: name };
        let width = keys.size("embedding_length", None)?;
        let heads = keys.size("attention.head_count", None)?;
        let key_heads = keys.size("attention.head_count_kv", Some(heads))?;
        if !heads.is_multiple_of(key_heads) {
            return Err(keys.error(
                "attention.head_count",
                format!("{heads} is no multiple of {key_heads} key heads"),
            ));
        }
        let head_width = keys.size("attention.key_length", Some(width / heads))?;
        if keys.size("attention.value_length", Some(head_width))? != head_width {
            return Err(keys.error(
                "attention.value_length",
                "differs from attention.key_length, which is not supported",
            ));
        }
        let gemma = family == Family::Gemma3;
        let window = if gemma {
            Some(keys.size("attention.sliding_window", None)?)
        } else {
            None
        };
        let rope = keys.rope(gemma)?;
        let layers = keys.size("block_count", None)?;
        let rope_width = keys.size("rope.dimension_count", Some(head_width))?;
        if rope_width > head_width || !rope_width.is_multiple_of(2) {
            return Err(keys.error(
                "rope.dimension_count",
                format!("{rope_width} does not fit heads of {head_width}"),
            ));
        }
        Ok(Self {
            family,
            layers,
            width,
            feed_forward: keys.size("feed_forward_length", None)?,
            heads,
            key_heads,
            head_width,
            context: keys.size_up_to("context_length", None, MAX_CONTEXT)?,
            vocabulary: vocabulary(gguf)?,
            epsilon: keys.float("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6),
            embedding_scale: if gemma { root(width) } else { 1.0 },
            // The 27B Gemma 3, alone with 62 layers, scales by the width of the model instead of the head's.
            attention_scale: 1.0
                / root(if gemma && layers == 62 {
                    width / heads
                } else {
                    head_width
                }),
            activation: if gemma { Activation::Gelu } else { Activation::Silu },
            rope_width,
            rope,
            rope_windowed: Rope {
                base: keys.float("rope.freq_base_swa")?.unwrap_or(10_000.0),
                divisor: 1.0,
            },
            window,
            window_pattern: keys.pattern()?,
            pairing: if family == Family::Llama {
                Pairing::Adjacent
            } else {
                Pairing::Halves
            },
        })
    }

    /// The window of a layer, `None` when it sees everything.
    #[must_use]
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window
            .filter(|_| !(layer + 1).is_multiple_of(self.window_pattern))
    }
}

fn root(value: usize) -> f32 {
    (value as f32).sqrt()
}

fn key_error(key: &str, what: impl Into<String>) -> GgufError {
    GgufError::Key {
        key: key.to_owned(),
        what: what.into(),
    }
}

fn vocabulary(gguf: &Gguf) -> Result<usize, GgufError> {
    let table = gguf.tensor("token_embd.weight");
    table
        .map(crate::gguf::TensorInfo::rows)
        .ok_or_else(|| GgufError::Tensor {
            name: "token_embd.weight".to_owned(),
            what: "is missing".to_owned(),
        })
}

/// Access to the keys of one architecture.
struct Keys<'a> {
    gguf: &'a Gguf,
    prefix: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn error(&self, key: &str, what: impl Into<String>) -> GgufError {
        key_error(&self.name(key), what)
    }

    fn size(&self, key: &str, default: Option<usize>) -> Result<usize, GgufError> {
        self.size_up_to(key, default, MAX_WIDTH)
    }

    fn size_up_to(&self, key: &str, default: Option<usize>, most: usize) -> Result<usize, GgufError> {
        let found = match self.gguf.value(&self.name(key)) {
            None => default.ok_or_else(|| self.error(key, "is missing"))?,
            Some(value) => value
                .as_u64()
                .and_then(|value| usize::try_from(value).ok())
                .ok_or_else(|| self.error(key, format!("is {value:?}, not a size")))?,
        };
        if !(1..=most).contains(&found) {
            return Err(self.error(key, format!("is {found}, possible are 1 to {most}")));
        }
        Ok(found)
    }

    fn float(&self, key: &str) -> Result<Option<f32>, GgufError> {
        if self.gguf.value(&self.name(key)).is_none() {
            return Ok(None);
        }
        let found = self
            .gguf
            .float(&self.name(key))
            .filter(|value| value.is_finite() && *value > 0.0);
        found
            .map(Some)
            .ok_or_else(|| self.error(key, "is not a positive number"))
    }

    fn rope(&self, gemma: bool) -> Result<Rope, GgufError> {
        let base = self
            .float("rope.freq_base")?
            .unwrap_or(if gemma { 1e6 } else { 1e4 });
        let factor = self
            .float("rope.scaling.factor")?
            .or(self.float("rope.scale_linear")?);
        match self.gguf.text(&self.name("rope.scaling.type")) {
            None | Some("none") => Ok(Rope {
                base,
                divisor: if gemma { factor.unwrap_or(1.0) } else { 1.0 },
            }),
            Some("linear") => Ok(Rope {
                base,
                divisor: factor.unwrap_or(1.0),
            }),
            Some(other) => Err(self.error(
                "rope.scaling.type",
                format!("is {other:?}; none and linear are supported"),
            )),
        }
    }

    fn pattern(&self) -> Result<usize, GgufError> {
        let key = "attention.sliding_window_pattern";
        if let Some(Value::Array(_)) = self.gguf.value(&self.name(key)) {
            return Err(self.error(key, "is an array; only a number is supported"));
        }
        self.size(key, Some(6))
    }
}
