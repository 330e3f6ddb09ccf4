//! Metadata values. Scalars are held by value, arrays as a checked range of the mapping.
//!
//! A vocabulary of a quarter million strings costs nothing until somebody walks it.

use std::ops::Range;

use super::GgufError;
use super::cursor::Cursor;

/// The type of a metadata value or of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Unsigned, one byte.
    U8,
    /// Signed, one byte.
    I8,
    /// Unsigned, two bytes.
    U16,
    /// Signed, two bytes.
    I16,
    /// Unsigned, four bytes.
    U32,
    /// Signed, four bytes.
    I32,
    /// Single precision.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// Length-prefixed bytes.
    Str,
    /// An array of one of the others.
    Array,
    /// Unsigned, eight bytes.
    U64,
    /// Signed, eight bytes.
    I64,
    /// Double precision.
    F64,
}

impl ValueKind {
    /// The type's number in the file.
    #[must_use]
    pub fn id(self) -> u32 {
        self as u32
    }

    pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        use ValueKind::{Array, Bool, F32, F64, I8, I16, I32, I64, Str, U8, U16, U32, U64};
        const ALL: [ValueKind; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, Str, Array, U64, I64, F64];
        let id = cursor.u32("a value's type")?;
        let known = usize::try_from(id).ok().and_then(|index| ALL.get(index));
        known
            .copied()
            .ok_or_else(|| cursor.corrupt(format!("value type {id} does not exist (0 to 12 do)")))
    }

    /// Bytes of one element; `None` for those of variable length.
    pub(super) fn width(self) -> Option<u64> {
        use ValueKind::{Array, Bool, F32, F64, I8, I16, I32, I64, Str, U8, U16, U32, U64};
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            Str | Array => None,
        }
    }
}

/// An array in the metadata: its elements stay in the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of the elements.
    pub kind: ValueKind,
    /// Number of elements.
    pub count: usize,
    pub(super) range: Range<usize>,
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Either float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// UTF-8 text.
    Str(String),
    /// An array, left in the mapping.
    Array(Array),
}

impl Value {
    pub(super) fn parse(cursor: &mut Cursor<'_>, kind: ValueKind) -> Result<Self, GgufError> {
        const WHAT: &str = "a metadata value";
        Ok(match kind {
            ValueKind::U8 => Self::Unsigned(cursor.u8(WHAT)?.into()),
            ValueKind::I8 => Self::Signed(cursor.u8(WHAT)?.cast_signed().into()),
            ValueKind::U16 => Self::Unsigned(cursor.u16(WHAT)?.into()),
            ValueKind::I16 => Self::Signed(cursor.u16(WHAT)?.cast_signed().into()),
            ValueKind::U32 => Self::Unsigned(cursor.u32(WHAT)?.into()),
            ValueKind::I32 => Self::Signed(cursor.u32(WHAT)?.cast_signed().into()),
            ValueKind::U64 => Self::Unsigned(cursor.u64(WHAT)?),
            ValueKind::I64 => Self::Signed(cursor.u64(WHAT)?.cast_signed()),
            ValueKind::F32 => Self::Float(f32::from_bits(cursor.u32(WHAT)?).into()),
            ValueKind::F64 => Self::Float(f64::from_bits(cursor.u64(WHAT)?)),
            ValueKind::Bool => match cursor.u8(WHAT)? {
                0 => Self::Bool(false),
                1 => Self::Bool(true),
                other => return Err(cursor.corrupt(format!("a boolean holds {other}"))),
            },
            ValueKind::Str => Self::Str(cursor.string(WHAT)?.to_owned()),
            ValueKind::Array => Self::Array(Array::parse(cursor)?),
        })
    }

    /// The value as a non-negative integer, when it is one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(*value),
            Self::Signed(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The value as a number.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Unsigned(value) => Some(*value as f64),
            Self::Signed(value) => Some(*value as f64),
            _ => None,
        }
    }
}

impl Array {
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        const WHAT: &str = "an array in the metadata";
        let kind = ValueKind::parse(cursor)?;
        let declared = cursor.u64(WHAT)?;
        let begin = match kind.width() {
            Some(width) => {
                cursor.expect_room(declared, width, WHAT)?;
                let begin = cursor.position();
                cursor.take(declared.saturating_mul(width), WHAT)?;
                begin
            }
            None if kind == ValueKind::Array => {
                return Err(cursor.corrupt("arrays of arrays are not supported"));
            }
            None => {
                cursor.expect_room(declared, 8, WHAT)?;
                let begin = cursor.position();
                for _ in 0..declared {
                    cursor.bytes("a string in an array")?;
                }
                begin
            }
        };
        let count = usize::try_from(declared).map_err(|_| cursor.corrupt(WHAT))?;
        Ok(Self {
            kind,
            count,
            range: begin..cursor.position(),
        })
    }
}
