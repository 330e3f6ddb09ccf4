//! The GGUF file format: reading (mapped, every bound checked) and writing.
//!
//! This is the container only: names, metadata values, where each tensor lies. What the tensors mean belongs to
//! [`crate::arch`], how their blocks are laid out to [`crate::kernels`].
//! Invariant: nothing is reserved on the word of the file. A count is believed only as far as the bytes that
//! must follow it are there, and every range handed out lies inside the mapping.

mod cursor;
mod reader;
mod value;
mod write;

pub use reader::{Gguf, TensorInfo, TensorType};
pub use value::{Array, Value, ValueKind};
pub use write::{GgufWriter, WriteError};

/// Why a file was not accepted as a GGUF model.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The operating system refused to open or map the file.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it begins with {found:02x?}, a GGUF file begins with \"GGUF\"")]
    Magic {
        /// The bytes found instead.
        found: Vec<u8>,
    },
    /// A version this reader does not know, or a big-endian file.
    #[error(
        "GGUF version {version} is not supported{hint}; this build reads versions 2 and 3, little-endian"
    )]
    Version {
        /// The version field as read.
        version: u32,
        /// Says when the field looks byte-swapped.
        hint: &'static str,
    },
    /// The file ends inside a field.
    #[error("truncated at byte {at}: {what} needs {need} more bytes, the file has {left}")]
    Truncated {
        /// Where the field begins.
        at: usize,
        /// The field.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes left in the file.
        left: usize,
    },
    /// A field holds a value that no valid file holds.
    #[error("corrupt at byte {at}: {what}")]
    Corrupt {
        /// Where the field ends.
        at: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A tensor's type, shape or place is not acceptable.
    #[error("tensor {name}: {what}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A metadata key is missing or of another type.
    #[error("metadata key {key}: {what}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
}
