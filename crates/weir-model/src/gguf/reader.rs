//! Opening a GGUF file: header, metadata, tensor directory, and typed access to all three.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use super::GgufError;
use super::cursor::Cursor;
use super::value::{Array, Value, ValueKind};
use crate::memory::MappedFile;

/// Tensor types by their number in the file: name, values a block, bytes a block.
const TENSOR_TYPES: [(u32, &str, u64, u64); 20] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (30, "BF16", 1, 2),
];

/// A tensor's storage type as the file names it. Whether there is a kernel for it is decided at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The type's number in the file.
    pub id: u32,
    /// The type's usual name.
    pub name: &'static str,
    /// Values in one block.
    pub block_values: u64,
    /// Bytes of one block.
    pub block_bytes: u64,
}

impl TensorType {
    /// The type with this number, when it is known.
    #[must_use]
    pub fn from_id(id: u32) -> Option<Self> {
        let &(id, name, block_values, block_bytes) = TENSOR_TYPES.iter().find(|entry| entry.0 == id)?;
        Some(Self {
            id,
            name,
            block_values,
            block_bytes,
        })
    }

    /// The type of this name, when it is known.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TENSOR_TYPES
            .iter()
            .find(|entry| entry.1 == name)
            .and_then(|entry| Self::from_id(entry.0))
    }
}

/// One entry of the tensor directory, checked against the file's size.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// Extents, fastest first: `[columns, rows, ...]`.
    pub dims: Vec<usize>,
    /// Storage type.
    pub kind: TensorType,
    /// Where the data begins in the file.
    pub begin: usize,
    /// Bytes of data.
    pub bytes: usize,
}

impl TensorInfo {
    /// Length of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all extents but the first.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.dims.iter().skip(1).product()
    }
}

/// An open, mapped GGUF file.
#[derive(Debug)]
pub struct Gguf {
    map: MappedFile,
    version: u32,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
    data_begin: usize,
}

impl Gguf {
    /// Opens and checks a file. The file must not be changed or cut while it is open.
    ///
    /// # Errors
    /// [`GgufError`] names the field, the place and what is wrong.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let named = |source| GgufError::Io {
            path: path.display().to_string(),
            source,
        };
        let file = File::open(path).map_err(named)?;
        let about = file.metadata().map_err(named)?;
        if !about.is_file() {
            return Err(named(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "not a regular file",
            )));
        }
        Self::parse(MappedFile::map(&file).map_err(named)?)
    }

    /// Checks bytes held in memory, as tests and fuzzers do.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::parse(MappedFile::from_bytes(bytes))
    }

    fn parse(map: MappedFile) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(map.bytes(), 0);
        let version = parse_header(&mut cursor)?;
        let tensor_count = cursor.u64("the tensor count")?;
        let key_count = cursor.u64("the metadata count")?;
        cursor.expect_room(key_count, 13, "the metadata")?;
        let metadata = parse_metadata(&mut cursor, key_count)?;
        cursor.expect_room(tensor_count, 28, "the tensor directory")?;
        let alignment = alignment(&metadata, &cursor)?;
        let directory = parse_directory(&mut cursor, tensor_count)?;
        let data_begin = cursor
            .position()
            .checked_next_multiple_of(alignment)
            .ok_or_else(|| cursor.corrupt("the data section begins beyond any file"))?;
        let tensors = place(directory, data_begin, alignment, map.bytes().len())?;
        Ok(Self {
            version,
            metadata,
            tensors,
            data_begin,
            map,
        })
    }

    /// The format version, 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The file's size in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> usize {
        self.map.bytes().len()
    }

    /// All metadata, by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// All tensors, by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.values()
    }

    /// The tensor of this name, when there is one.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// The data of a tensor of this file.
    #[must_use]
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        let end = tensor.begin.saturating_add(tensor.bytes);
        self.map.bytes().get(tensor.begin..end).unwrap_or_default()
    }

    /// Tells the kernel that the pages read so far need not stay resident.
    pub fn release_pages(&self) {
        self.map.release_pages();
    }

    /// Tells the kernel that a part of a tensor's pages need not stay resident.
    pub fn release_part(&self, tensor: &TensorInfo, from: usize, bytes: usize) {
        self.map.release_range(tensor.begin.saturating_add(from), bytes);
    }

    /// The value of a key, when there is one.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// A text value.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// A non-negative integer that fits this machine.
    #[must_use]
    pub fn integer(&self, key: &str) -> Option<usize> {
        usize::try_from(self.value(key)?.as_u64()?).ok()
    }

    /// A number.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "model parameters are single precision"
    )]
    pub fn float(&self, key: &str) -> Option<f32> {
        self.value(key)?.as_f64().map(|value| value as f32)
    }

    /// A truth value.
    #[must_use]
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    fn array(&self, key: &str, kinds: &[ValueKind]) -> Option<(&Array, &[u8])> {
        match self.value(key)? {
            Value::Array(array) if kinds.contains(&array.kind) => {
                Some((array, self.map.bytes().get(array.range.clone())?))
            }
            _ => None,
        }
    }

    /// The bytes of an array's elements, as they are in the file.
    #[must_use]
    pub fn elements(&self, array: &Array) -> &[u8] {
        self.map.bytes().get(array.range.clone()).unwrap_or_default()
    }

    /// The byte strings of an array, in order.
    #[must_use]
    pub fn strings(&self, key: &str) -> Option<(usize, impl Iterator<Item = &[u8]>)> {
        let (array, bytes) = self.array(key, &[ValueKind::Str])?;
        let mut cursor = Cursor::new(bytes, 0);
        let walk = std::iter::from_fn(move || {
            if cursor.left() == 0 {
                None
            } else {
                cursor.bytes("a string in an array").ok()
            }
        });
        Some((array.count, walk))
    }

    /// The floats of an array.
    #[must_use]
    pub fn floats(&self, key: &str) -> Option<Vec<f32>> {
        let (_, bytes) = self.array(key, &[ValueKind::F32])?;
        Some(
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|chunk| f32::from_le_bytes(*chunk))
                .collect(),
        )
    }

    /// The 32-bit integers of an array, either sign, as their bits.
    #[must_use]
    pub fn words(&self, key: &str) -> Option<Vec<u32>> {
        let (_, bytes) = self.array(key, &[ValueKind::I32, ValueKind::U32])?;
        Some(
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|chunk| u32::from_le_bytes(*chunk))
                .collect(),
        )
    }

    /// Number of elements of an array of any type.
    #[must_use]
    pub fn array_len(&self, key: &str) -> Option<usize> {
        match self.value(key)? {
            Value::Array(array) => Some(array.count),
            _ => None,
        }
    }

    /// Where the tensors' data begins in the file.
    #[must_use]
    pub fn data_begin(&self) -> usize {
        self.data_begin
    }
}

fn parse_header(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let magic = cursor.take(4, "the magic")?;
    if magic != b"GGUF" {
        return Err(GgufError::Magic {
            found: magic.to_vec(),
        });
    }
    let version = cursor.u32("the version")?;
    if !(2..=3).contains(&version) {
        let swapped = (2..=3).contains(&version.swap_bytes());
        let hint = if swapped { " (the file is big-endian)" } else { "" };
        return Err(GgufError::Version { version, hint });
    }
    Ok(version)
}

fn parse_metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<BTreeMap<String, Value>, GgufError> {
    let mut metadata = BTreeMap::new();
    for _ in 0..count {
        let key = cursor.string("a metadata key")?.to_owned();
        let kind = ValueKind::parse(cursor)?;
        let value = Value::parse(cursor, kind)?;
        if metadata.contains_key(&key) {
            return Err(cursor.corrupt(format!("metadata key {key} appears twice")));
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn alignment(metadata: &BTreeMap<String, Value>, cursor: &Cursor<'_>) -> Result<usize, GgufError> {
    let Some(value) = metadata.get("general.alignment") else {
        return Ok(32);
    };
    let found = value.as_u64().and_then(|value| usize::try_from(value).ok());
    found
        .filter(|value| value.is_power_of_two() && (8..=65_536).contains(value))
        .ok_or_else(|| {
            cursor.corrupt(format!(
                "general.alignment is {value:?}, not a power of two from 8 to 65536"
            ))
        })
}

/// A directory entry before its place has been checked.
struct Entry {
    name: String,
    dims: Vec<u64>,
    kind: TensorType,
    offset: u64,
}

fn parse_directory(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Entry>, GgufError> {
    let mut directory = Vec::new();
    for _ in 0..count {
        let name = cursor.string("a tensor name")?.to_owned();
        let rank = cursor.u32("a tensor's rank")?;
        if !(1..=4).contains(&rank) {
            return Err(tensor_error(
                &name,
                format!("has {rank} dimensions, 1 to 4 are possible"),
            ));
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(cursor.u64("a tensor's extent")?);
        }
        let id = cursor.u32("a tensor's type")?;
        let kind = TensorType::from_id(id)
            .ok_or_else(|| tensor_error(&name, format!("has the unknown type {id}; see docs/models.md")))?;
        let offset = cursor.u64("a tensor's offset")?;
        directory.push(Entry {
            name,
            dims,
            kind,
            offset,
        });
    }
    Ok(directory)
}

fn tensor_error(name: &str, what: String) -> GgufError {
    GgufError::Tensor {
        name: name.to_owned(),
        what,
    }
}

fn place(
    directory: Vec<Entry>,
    data_begin: usize,
    alignment: usize,
    file_bytes: usize,
) -> Result<BTreeMap<String, TensorInfo>, GgufError> {
    let mut tensors = BTreeMap::new();
    for entry in directory {
        let info = place_one(entry, data_begin, alignment, file_bytes)?;
        if tensors.contains_key(&info.name) {
            return Err(tensor_error(&info.name, "appears twice".to_owned()));
        }
        tensors.insert(info.name.clone(), info);
    }
    Ok(tensors)
}

fn place_one(
    entry: Entry,
    data_begin: usize,
    alignment: usize,
    file_bytes: usize,
) -> Result<TensorInfo, GgufError> {
    let Entry {
        name,
        dims,
        kind,
        offset,
    } = entry;
    let fail = |what: String| tensor_error(&name, what);
    let values = dims
        .iter()
        .try_fold(1_u64, |product, extent| product.checked_mul(*extent));
    let Some(values) = values.filter(|values| *values > 0) else {
        return Err(fail(format!("has the impossible shape {dims:?}")));
    };
    let columns = dims.first().copied().unwrap_or(0);
    if !columns.is_multiple_of(kind.block_values) {
        let (block, kind) = (kind.block_values, kind.name);
        return Err(fail(format!(
            "has rows of {columns} values, no multiple of the {block} of a {kind} block"
        )));
    }
    let blocks = values / kind.block_values;
    let begin = (data_begin as u64).checked_add(offset);
    let bytes = blocks.checked_mul(kind.block_bytes);
    let end = begin
        .zip(bytes)
        .and_then(|(begin, bytes)| begin.checked_add(bytes));
    if end.is_none_or(|end| end > file_bytes as u64) {
        let need = bytes.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string());
        return Err(fail(format!(
            "needs {need} bytes at data offset {offset}, beyond the file's {file_bytes} bytes"
        )));
    }
    if !offset.is_multiple_of(alignment as u64) {
        return Err(fail(format!(
            "begins at data offset {offset}, no multiple of the alignment {alignment}"
        )));
    }
    let narrow = |value: u64| usize::try_from(value).map_err(|_| fail("is too large".to_owned()));
    let narrow_dims: Result<Vec<usize>, _> = dims.iter().map(|extent| narrow(*extent)).collect();
    let (begin, bytes) = (narrow(begin.unwrap_or(0))?, narrow(bytes.unwrap_or(0))?);
    Ok(TensorInfo {
        dims: narrow_dims?,
        kind,
        begin,
        bytes,
        name,
    })
}
