//! Tiny model files with fixed pseudo-random weights, for tests and for comparing engines.
//!
//! They are valid GGUF files of the four families that llama.cpp loads too. Weights are a function of the seed and have
//! about unit gain, so logits are neither flat nor wild; what such a model says means nothing.

use crate::arch::Family;
use crate::gguf::{GgufWriter, TensorType, WriteError};
use crate::kernels::vector::float_to_half;

/// A tiny model to be written.
#[derive(Clone, Debug)]
pub struct TinyModel {
    /// Architecture.
    pub family: Family,
    /// Number of layers.
    pub layers: usize,
    /// Width of the hidden state; a multiple of 256 where K formats are used.
    pub width: usize,
    /// Width of the feed-forward part.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub key_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Longest context.
    pub context: usize,
    /// Window of Gemma 3's windowed layers.
    pub window: usize,
    /// Storage types, taken in turn for the matrices.
    pub formats: Vec<TensorType>,
    /// Whether logits come from the embedding table.
    pub tied: bool,
    /// Chat template to put into the file.
    pub template: Option<String>,
    /// What the weights are a function of.
    pub seed: u64,
}

impl TinyModel {
    /// A model of three layers in one storage type.
    #[must_use]
    pub fn new(family: Family, format: TensorType) -> Self {
        Self {
            family,
            layers: 3,
            width: 256,
            feed_forward: 512,
            heads: 4,
            key_heads: 2,
            head_width: 64,
            context: 512,
            window: 16,
            formats: vec![format],
            tied: family == Family::Gemma3,
            template: None,
            seed: 1,
        }
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// [`WriteError::Length`] when a width does not fit a storage type.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let mut writer = GgufWriter::default();
        self.metadata(&mut writer);
        let vocabulary = self.vocabulary(&mut writer);
        self.tensors(&mut writer, vocabulary)?;
        let mut bytes = Vec::new();
        writer.write(&mut bytes)?;
        Ok(bytes)
    }

    fn metadata(&self, writer: &mut GgufWriter) {
        let name = self.family.name();
        let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        writer.text("general.architecture", name);
        writer.text("general.name", "tiny");
        for (key, value) in [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.width),
            ("feed_forward_length", self.feed_forward),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.key_heads),
            ("attention.key_length", self.head_width),
            ("attention.value_length", self.head_width),
            ("rope.dimension_count", self.head_width),
        ] {
            writer.u32(&format!("{name}.{key}"), size(value));
        }
        writer.f32(&format!("{name}.attention.layer_norm_rms_epsilon"), 1e-6);
        writer.f32(
            &format!("{name}.rope.freq_base"),
            if self.family == Family::Gemma3 { 1e6 } else { 1e4 },
        );
        if self.family == Family::Gemma3 {
            writer.u32("gemma3.attention.sliding_window", size(self.window));
        }
        if let Some(template) = &self.template {
            writer.text("tokenizer.chat_template", template);
        }
    }

    /// Writes the tokenizer and returns the number of tokens.
    fn vocabulary(&self, writer: &mut GgufWriter) -> usize {
        if self.family == Family::Gemma3 {
            sentence_piece(writer)
        } else {
            byte_level(self.family, writer)
        }
    }

    fn tensors(&self, writer: &mut GgufWriter, vocabulary: usize) -> Result<(), WriteError> {
        let mut weights = Weights {
            state: self.seed,
            next: 0,
            formats: &self.formats,
        };
        let (width, queries, keys) = (
            self.width,
            self.heads * self.head_width,
            self.key_heads * self.head_width,
        );
        weights.matrix(writer, "token_embd.weight", width, vocabulary)?;
        if !self.tied {
            weights.matrix(writer, "output.weight", width, vocabulary)?;
        }
        weights.vector(writer, "output_norm.weight", width, 1.0)?;
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            for (part, columns, rows) in [
                ("attn_q.weight", width, queries),
                ("attn_k.weight", width, keys),
                ("attn_v.weight", width, keys),
                ("attn_output.weight", queries, width),
                ("ffn_gate.weight", width, self.feed_forward),
                ("ffn_up.weight", width, self.feed_forward),
                ("ffn_down.weight", self.feed_forward, width),
            ] {
                weights.matrix(writer, &name(part), columns, rows)?;
            }
            for part in ["attn_norm.weight", "ffn_norm.weight"] {
                weights.vector(writer, &name(part), width, 1.0)?;
            }
            if self.family == Family::Gemma3 {
                for part in ["post_attention_norm.weight", "post_ffw_norm.weight"] {
                    weights.vector(writer, &name(part), width, 1.0)?;
                }
            }
            if matches!(self.family, Family::Gemma3 | Family::Qwen3) {
                for part in ["attn_q_norm.weight", "attn_k_norm.weight"] {
                    weights.vector(writer, &name(part), self.head_width, 1.0)?;
                }
            }
            if self.family == Family::Qwen2 {
                for (part, len) in [
                    ("attn_q.bias", queries),
                    ("attn_k.bias", keys),
                    ("attn_v.bias", keys),
                ] {
                    weights.vector(writer, &name(part), len, 0.0)?;
                }
            }
        }
        Ok(())
    }
}

fn tokens(writer: &mut GgufWriter, texts: &[Vec<u8>], kinds: &[i32]) {
    writer.strings("tokenizer.ggml.tokens", texts);
    writer.integers("tokenizer.ggml.token_type", kinds);
}

/// Special tokens, 256 byte tokens, printable characters and a few longer pieces.
fn sentence_piece(writer: &mut GgufWriter) -> usize {
    let special = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "<start_of_turn>",
        "<end_of_turn>",
        "\n\n",
        "  ",
    ];
    let mut texts: Vec<Vec<u8>> = special.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut kinds = vec![3, 3, 3, 2, 3, 3, 4, 4];
    let mut scores = vec![0.0; special.len()];
    for byte in 0..=255_u8 {
        texts.push(format!("<0x{byte:02X}>").into_bytes());
        kinds.push(6);
        scores.push(0.0);
    }
    let pieces = [
        "he",
        "the",
        "\u{2581}the",
        "in",
        "er",
        "an",
        "and",
        "\u{2581}and",
        "\u{e9}",
        "\u{4f60}",
        "\u{597d}",
        "\u{4f60}\u{597d}",
    ];
    let characters = (b'!'..=b'~')
        .map(|byte| char::from(byte).to_string())
        .chain([String::from("\u{2581}")]);
    for (text, rank) in pieces
        .into_iter()
        .map(str::to_owned)
        .chain(characters)
        .zip(0_u16..)
    {
        texts.push(text.into_bytes());
        kinds.push(1);
        scores.push(-f32::from(rank) - 1.0);
    }
    writer.text("tokenizer.ggml.model", "llama");
    writer.text("tokenizer.ggml.pre", "default");
    tokens(writer, &texts, &kinds);
    writer.floats("tokenizer.ggml.scores", &scores);
    for (key, id) in [("bos", 2), ("eos", 1), ("unknown", 3), ("padding", 0)] {
        writer.u32(&format!("tokenizer.ggml.{key}_token_id"), id);
    }
    writer.flag("tokenizer.ggml.add_bos_token", true);
    writer.flag("tokenizer.ggml.add_space_prefix", false);
    texts.len()
}

/// The printable character that stands for a byte in byte-level vocabularies.
fn printable(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte) - 0x7f,
        0xad => 0x143,
    };
    char::from_u32(code).unwrap_or('?')
}

/// All bytes, a few merges, and the special tokens of chat formats.
fn byte_level(family: Family, writer: &mut GgufWriter) -> usize {
    let mut texts: Vec<Vec<u8>> = (0..=255)
        .map(|byte| printable(byte).to_string().into_bytes())
        .collect();
    let merges = [
        "t h",
        "th e",
        "\u{120} the",
        "i n",
        "a n",
        "an d",
        "\u{120} and",
        "e r",
        "\u{120} \u{120}",
    ];
    texts.extend(merges.iter().map(|merge| merge.replace(' ', "").into_bytes()));
    let mut kinds = vec![1; texts.len()];
    for text in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] {
        texts.push(text.as_bytes().to_vec());
        kinds.push(3);
    }
    let end = u32::try_from(texts.len()).unwrap_or(0) - 3;
    writer.text("tokenizer.ggml.model", "gpt2");
    writer.text(
        "tokenizer.ggml.pre",
        if family == Family::Llama {
            "llama-bpe"
        } else {
            "qwen2"
        },
    );
    tokens(writer, &texts, &kinds);
    writer.strings("tokenizer.ggml.merges", &merges);
    writer.u32("tokenizer.ggml.bos_token_id", end);
    writer.u32("tokenizer.ggml.eos_token_id", end + 2);
    writer.flag("tokenizer.ggml.add_bos_token", family == Family::Llama);
    texts.len()
}

/// Pseudo-random weights in any storage type.
struct Weights<'a> {
    state: u64,
    next: usize,
    formats: &'a [TensorType],
}

impl Weights<'_> {
    fn byte(&mut self) -> u8 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 56).to_le_bytes()[0]
    }

    /// Uniform in -1 to 1.
    fn float(&mut self) -> f32 {
        (f32::from(self.byte()) + f32::from(self.byte()) / 256.0) / 128.0 - 1.0
    }

    fn vector(
        &mut self,
        writer: &mut GgufWriter,
        name: &str,
        len: usize,
        centre: f32,
    ) -> Result<(), WriteError> {
        let floats = TensorType {
            id: 0,
            name: "F32",
            block_values: 1,
            block_bytes: 4,
        };
        let data = (0..len)
            .flat_map(|_| (centre + 0.2 * self.float()).to_le_bytes())
            .collect();
        writer.tensor(name, &[len as u64], floats, data)
    }

    fn matrix(
        &mut self,
        writer: &mut GgufWriter,
        name: &str,
        columns: usize,
        rows: usize,
    ) -> Result<(), WriteError> {
        let format = self.formats[self.next % self.formats.len()];
        self.next += 1;
        let blocks = (rows * columns) as u64 / format.block_values;
        let gain = 1.0 / (columns as f32).sqrt();
        let data = (0..blocks).flat_map(|_| self.block(format, gain)).collect();
        writer.tensor(name, &[columns as u64, rows as u64], format, data)
    }

    /// A block of weights with about zero mean and a deviation of `gain`.
    fn block(&mut self, format: TensorType, gain: f32) -> Vec<u8> {
        let half = |value: f32| float_to_half(value).to_le_bytes();
        let mut block: Vec<u8> = (0..format.block_bytes).map(|_| self.byte()).collect();
        match format.name {
            "F32" => block = (1.7 * gain * self.float()).to_le_bytes().to_vec(),
            "F16" => block = half(1.7 * gain * self.float()).to_vec(),
            "Q8_0" => block[..2].copy_from_slice(&half(gain / 74.0)),
            "Q5_0" => block[..2].copy_from_slice(&half(gain / 9.2)),
            "Q4_0" => block[..2].copy_from_slice(&half(gain / 4.6)),
            "Q4_K" => {
                // Scales and minima are equal, so that a minimum of 7.5 scales centres the quants.
                block[..2].copy_from_slice(&half(gain / 170.0));
                block[2..4].copy_from_slice(&half(7.5 * gain / 170.0));
                for index in 0..4 {
                    let (first, second) = (self.byte() & 63, self.byte() & 63);
                    block[4 + index] = first | (second >> 4 << 6);
                    block[8 + index] = first | (second >> 4 << 6);
                    block[12 + index] = (second & 15) | ((second & 15) << 4);
                }
            }
            "Q6_K" => {
                for scale in &mut block[192..208] {
                    *scale = (*scale & 63).wrapping_sub(32);
                }
                block[208..].copy_from_slice(&half(gain / 340.0));
            }
            _ => {}
        }
        block
    }
}
