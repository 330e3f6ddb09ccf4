//! Tokenizers from GGUF metadata: text to ids, ids to bytes.
//!
//! Special tokens are cut out of the text first, what lies between goes to one of two models: SentencePiece
//! (greedy merging by score) or byte-level BPE (merging by rank). Input is any bytes; what is not UTF-8 goes to byte
//! tokens and comes back unchanged.

mod bpe;
mod spm;
mod stream;
mod vocab;

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use sha2::{Digest, Sha256};

use crate::gguf::{Gguf, Value};
use bpe::Bpe;
use spm::SentencePiece;
pub use stream::TextStream;
use vocab::{Kind, Vocab};

/// Why a file's tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A required key is missing or has the wrong type or length.
    #[error("the file's tokenizer: {key} {what}")]
    Key {
        /// The metadata key.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A tokenizer model or pre-tokenizer this build does not know.
    #[error("the file's tokenizer: {key} is {found:?}; this build knows {known}")]
    Unsupported {
        /// The metadata key.
        key: &'static str,
        /// Its value.
        found: String,
        /// The values that work.
        known: &'static str,
    },
}

/// How [`Tokenizer::encode`] treats special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encode {
    /// Put the model's beginning-of-text (and end-of-text) token where the file asks for it.
    pub with_bos: bool,
    /// Recognise control tokens written out in the text. Off for what a user typed.
    pub parse_special: bool,
}

#[derive(Debug)]
enum Model {
    SentencePiece(SentencePiece),
    Bpe(Box<Bpe>),
}

/// A tokenizer as a model file describes it.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    always: Option<Cutter>,
    all: Option<Cutter>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    ends: Vec<u32>,
}

/// Finds special tokens, longest first where several begin at one place.
#[derive(Debug)]
struct Cutter {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Cutter {
    fn new(vocab: &Vocab, keep: impl Fn(Kind) -> bool) -> Option<Self> {
        let ids: Vec<u32> = vocab
            .ids()
            .filter(|id| keep(vocab.kind(*id)) && !vocab.text(*id).is_empty())
            .collect();
        if ids.is_empty() {
            return None;
        }
        let patterns = ids.iter().map(|id| vocab.text(*id));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns)
            .ok()?;
        Some(Self { automaton, ids })
    }
}

/// Texts that end a turn whatever type the file gives them.
const END_TEXTS: [&str; 11] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<EOT>",
    "<|EOT|>",
    "_<EOT>",
    "</s>",
];

impl Tokenizer {
    /// Reads the tokenizer of a file.
    ///
    /// # Errors
    /// [`TokenizerError`] names the key that is missing, malformed or not supported.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        const MODEL: &str = "tokenizer.ggml.model";
        let kind = gguf.text(MODEL).ok_or_else(|| missing(MODEL))?;
        let bpe = match kind {
            "llama" => false,
            "gpt2" => true,
            other => {
                let found = other.to_owned();
                return Err(TokenizerError::Unsupported {
                    key: MODEL,
                    found,
                    known: "llama and gpt2",
                });
            }
        };
        let mut vocab = Vocab::from_gguf(gguf, bpe)?;
        let id_of = |key: &str| {
            let id = u32::try_from(gguf.integer(key)?).ok()?;
            (id < vocab.len()).then_some(id)
        };
        let bos = id_of("tokenizer.ggml.bos_token_id");
        let eos = id_of("tokenizer.ggml.eos_token_id");
        let mut ends: Vec<u32> = [
            eos,
            id_of("tokenizer.ggml.eot_token_id"),
            id_of("tokenizer.ggml.eom_token_id"),
        ]
        .into_iter()
        .flatten()
        .collect();
        for text in END_TEXTS {
            if let Some(id) = vocab.lookup(text.as_bytes())
                && matches!(vocab.kind(id), Kind::Control | Kind::UserDefined)
            {
                vocab.make_control(id);
                ends.push(id);
            }
        }
        ends.sort_unstable();
        ends.dedup();
        let model = if bpe {
            Model::Bpe(Box::new(Bpe::from_gguf(gguf, &vocab)?))
        } else {
            Model::SentencePiece(SentencePiece::from_gguf(gguf, &vocab))
        };
        Ok(Self {
            always: Cutter::new(&vocab, |kind| kind == Kind::UserDefined),
            all: Cutter::new(&vocab, |kind| {
                matches!(kind, Kind::UserDefined | Kind::Control | Kind::Unknown)
            }),
            bos,
            eos,
            add_bos: gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(!bpe),
            add_eos: gguf.flag("tokenizer.ggml.add_eos_token").unwrap_or(false),
            ends,
            vocab,
            model,
        })
    }

    /// Number of ids.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.vocab.len()
    }

    /// Whether there are no ids at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vocab.len() == 0
    }

    /// The beginning-of-text id, when the file names one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-text id, when the file names one.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Ids after which a generation ends by itself, ascending.
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Whether a generation ends with this id.
    #[must_use]
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.binary_search(&id).is_ok()
    }

    /// Whether the id is a control token, which has no text of its own.
    #[must_use]
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.kind(id), Kind::Control | Kind::Unknown)
    }

    /// The id written exactly so in the vocabulary.
    #[must_use]
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.vocab.lookup(text.as_bytes())
    }

    /// Turns bytes into ids.
    #[must_use]
    pub fn encode(&self, input: &[u8], how: Encode) -> Vec<u32> {
        self.encode_unmarked(input, how, None)
    }

    /// Whether a control token is written out in the text.
    #[must_use]
    pub fn has_control(&self, text: &str) -> bool {
        self.control_at(text, 0).is_some()
    }

    /// The text with `mark` inside every control token that is written out in it. [`Self::encode_unmarked`] takes the
    /// marks for no text at all, so that what was marked is plain text even where special tokens are parsed.
    #[must_use]
    pub fn mark_control(&self, text: &str, mark: char) -> String {
        let (mut out, mut from) = (String::with_capacity(text.len() + 16), 0);
        while let Some(second) = self.control_at(text, from) {
            out.push_str(&text[from..second]);
            out.push(mark);
            from = second;
        }
        out.push_str(&text[from..]);
        out
    }

    /// Where the second character of the first control token at or behind `from` begins. Every place counts where one
    /// begins, also inside of another.
    fn control_at(&self, text: &str, from: usize) -> Option<usize> {
        let (cutter, mut from) = (self.all.as_ref()?, from);
        loop {
            let rest = aho_corasick::Input::new(text).range(from..);
            let hit = cutter.automaton.find(rest)?;
            let width = text[hit.start()..].chars().next().map_or(1, char::len_utf8);
            from = hit.start() + width;
            if self.is_control(cutter.ids[hit.pattern().as_usize()]) {
                return Some(from);
            }
        }
    }

    /// Turns bytes into ids; `mark` separates special tokens as any text would, and goes.
    #[must_use]
    pub fn encode_unmarked(&self, input: &[u8], how: Encode, mark: Option<char>) -> Vec<u32> {
        let mut ids = Vec::with_capacity(input.len() / 3 + 2);
        if how.with_bos && self.add_bos {
            ids.extend(self.bos);
        }
        let cutter = if how.parse_special {
            &self.all
        } else {
            &self.always
        };
        let mut after_special = true;
        let mut from = 0;
        let found = cutter.iter().flat_map(|cutter| {
            let place =
                |hit: aho_corasick::Match| (hit.start(), hit.end(), cutter.ids[hit.pattern().as_usize()]);
            cutter.automaton.find_iter(input).map(place)
        });
        for (begin, end, id) in found {
            self.encode_plain(&without(mark, &input[from..begin]), after_special, &mut ids);
            ids.push(id);
            after_special = true;
            from = end;
        }
        self.encode_plain(&without(mark, &input[from..]), after_special, &mut ids);
        if how.with_bos && self.add_eos {
            ids.extend(self.eos);
        }
        ids
    }

    fn encode_plain(&self, input: &[u8], after_special: bool, ids: &mut Vec<u32>) {
        if input.is_empty() {
            return;
        }
        match &self.model {
            Model::SentencePiece(model) => model.encode(&self.vocab, input, after_special, ids),
            Model::Bpe(model) => model.encode(&self.vocab, input, ids),
        }
    }

    /// Appends the bytes an id stands for. Control tokens have none unless `special`.
    pub fn piece(&self, id: u32, special: bool, out: &mut Vec<u8>) {
        if id >= self.vocab.len() {
            return;
        }
        let text = self.vocab.text(id);
        match self.vocab.kind(id) {
            Kind::Control | Kind::Unknown if special => out.extend(text),
            Kind::Control | Kind::Unknown | Kind::Unused => {}
            Kind::UserDefined => out.extend(text),
            Kind::Byte => out.extend(self.vocab.byte_of(id)),
            Kind::Normal => match &self.model {
                Model::SentencePiece(_) => spm::unescape(text, out),
                Model::Bpe(_) => out.extend(text),
            },
        }
    }

    /// The text of several ids, invalid bytes replaced by U+FFFD. A [`TextStream`] gives the same text piece by piece.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        ids.iter().for_each(|id| self.piece(*id, false, &mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The bytes without a character.
fn without(mark: Option<char>, bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(mark) = mark else {
        return Cow::Borrowed(bytes);
    };
    let (mut space, mut out, mut rest) = ([0; 4], Vec::with_capacity(bytes.len()), bytes);
    let mark = mark.encode_utf8(&mut space).as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(mark) {
            rest = behind;
        } else {
            out.push(*first);
            rest = behind;
        }
    }
    Cow::Owned(out)
}

/// Names the tokenizer of a file: a digest of all that the file says about tokens. Files of one model share it, whatever
/// their weights are stored as.
#[must_use]
pub fn fingerprint(gguf: &Gguf) -> String {
    let mut hasher = Sha256::new();
    let about = gguf
        .metadata()
        .filter(|(key, _)| key.starts_with("tokenizer.ggml."));
    for (key, value) in about {
        hasher.update(key.as_bytes());
        match value {
            Value::Array(array) => {
                hasher.update(format!("\0{:?} {}\0", array.kind, array.count).as_bytes());
                hasher.update(gguf.elements(array));
            }
            other => hasher.update(format!("\0{other:?}\0").as_bytes()),
        }
    }
    let digest = hasher.finalize();
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("gguf-{hex}")
}

fn missing(key: &'static str) -> TokenizerError {
    TokenizerError::Key {
        key,
        what: "is missing".to_owned(),
    }
}
