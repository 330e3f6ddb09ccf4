//! Writing GGUF files: what the tiny-model writer, the tests and conversions of test weights need.
//!
//! Values and tensors are collected and written in the order they were given; nothing is checked against a model.

use std::io::{self, Write};

use super::reader::TensorType;
use super::value::ValueKind;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The data's length does not fit shape and type.
    #[error("tensor {name}: {have} bytes of data for a shape that takes {need}")]
    Length {
        /// The tensor.
        name: String,
        /// Bytes given.
        have: usize,
        /// Bytes that shape and type ask for.
        need: u64,
    },
    /// The sink failed.
    #[error("writing the file failed: {0}")]
    Io(#[from] io::Error),
}

/// Collects metadata and tensors, then writes a version 3 file.
#[derive(Debug, Default)]
pub struct GgufWriter {
    keys: u64,
    metadata: Vec<u8>,
    tensors: Vec<(String, Vec<u64>, TensorType, Vec<u8>)>,
}

const ALIGNMENT: usize = 32;

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

impl GgufWriter {
    fn key(&mut self, key: &str, kind: ValueKind) {
        self.keys += 1;
        put_bytes(&mut self.metadata, key.as_bytes());
        self.metadata.extend(kind.id().to_le_bytes());
    }

    fn array(&mut self, key: &str, kind: ValueKind, count: usize) {
        self.key(key, ValueKind::Array);
        self.metadata.extend(kind.id().to_le_bytes());
        self.metadata.extend((count as u64).to_le_bytes());
    }

    /// Adds a 32-bit unsigned value.
    pub fn u32(&mut self, key: &str, value: u32) {
        self.key(key, ValueKind::U32);
        self.metadata.extend(value.to_le_bytes());
    }

    /// Adds a single-precision value.
    pub fn f32(&mut self, key: &str, value: f32) {
        self.key(key, ValueKind::F32);
        self.metadata.extend(value.to_le_bytes());
    }

    /// Adds a truth value.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.key(key, ValueKind::Bool);
        self.metadata.push(value.into());
    }

    /// Adds a text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key, ValueKind::Str);
        put_bytes(&mut self.metadata, value.as_bytes());
    }

    /// Adds an array of byte strings.
    pub fn strings<T: AsRef<[u8]>>(&mut self, key: &str, values: &[T]) {
        self.array(key, ValueKind::Str, values.len());
        for value in values {
            put_bytes(&mut self.metadata, value.as_ref());
        }
    }

    /// Adds an array of floats.
    pub fn floats(&mut self, key: &str, values: &[f32]) {
        self.array(key, ValueKind::F32, values.len());
        values
            .iter()
            .for_each(|value| self.metadata.extend(value.to_le_bytes()));
    }

    /// Adds an array of 32-bit signed values.
    pub fn integers(&mut self, key: &str, values: &[i32]) {
        self.array(key, ValueKind::I32, values.len());
        values
            .iter()
            .for_each(|value| self.metadata.extend(value.to_le_bytes()));
    }

    /// Adds a tensor: extents fastest first, data already in the type's blocks.
    ///
    /// # Errors
    /// [`WriteError::Length`] when data and shape disagree.
    pub fn tensor(
        &mut self,
        name: &str,
        dims: &[u64],
        kind: TensorType,
        data: Vec<u8>,
    ) -> Result<(), WriteError> {
        let need = dims.iter().product::<u64>() / kind.block_values * kind.block_bytes;
        if data.len() as u64 != need {
            return Err(WriteError::Length {
                name: name.to_owned(),
                have: data.len(),
                need,
            });
        }
        self.tensors.push((name.to_owned(), dims.to_vec(), kind, data));
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`WriteError::Io`] when the sink fails.
    pub fn write(&self, sink: &mut impl Write) -> Result<(), WriteError> {
        let mut head = b"GGUF".to_vec();
        head.extend(3_u32.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend(self.keys.to_le_bytes());
        head.extend(&self.metadata);
        let mut offset = 0_u64;
        for (name, dims, kind, data) in &self.tensors {
            put_bytes(&mut head, name.as_bytes());
            head.extend(u32::try_from(dims.len()).unwrap_or(u32::MAX).to_le_bytes());
            dims.iter().for_each(|extent| head.extend(extent.to_le_bytes()));
            head.extend(kind.id.to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset += data.len().next_multiple_of(ALIGNMENT) as u64;
        }
        head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
        sink.write_all(&head)?;
        for (_, _, _, data) in &self.tensors {
            sink.write_all(data)?;
            sink.write_all(&[0; ALIGNMENT][..data.len().next_multiple_of(ALIGNMENT) - data.len()])?;
        }
        Ok(sink.flush()?)
    }
}
