//! A bounds-checked reader over the mapped bytes.
//!
//! Every read names the field it reads, so that a truncated file is reported by place and field.

use super::GgufError;

/// Longest string accepted outside of arrays (chat templates reach tens of kilobytes).
const MAX_STRING: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(super) fn corrupt(&self, what: impl Into<String>) -> GgufError {
        GgufError::Corrupt {
            at: self.at,
            what: what.into(),
        }
    }

    /// Fails unless `count` items of at least `each` bytes can still follow.
    pub(super) fn expect_room(&self, count: u64, each: u64, what: &'static str) -> Result<(), GgufError> {
        let need = count.saturating_mul(each);
        if need > self.left() as u64 {
            return Err(GgufError::Truncated {
                at: self.at,
                what,
                need,
                left: self.left(),
            });
        }
        Ok(())
    }

    pub(super) fn take(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], GgufError> {
        self.expect_room(len, 1, what)?;
        let truncated = GgufError::Truncated {
            at: self.at,
            what,
            need: len,
            left: self.left(),
        };
        let Some(end) = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len)) else {
            return Err(truncated);
        };
        let Some(found) = self.bytes.get(self.at..end) else {
            return Err(truncated);
        };
        self.at = end;
        Ok(found)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let found = self.take(N as u64, what)?;
        found.try_into().map_err(|_| self.corrupt(what))
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, GgufError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, GgufError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length-prefixed string as raw bytes.
    pub(super) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], GgufError> {
        let len = self.u64(what)?;
        if len > MAX_STRING && len <= self.left() as u64 {
            return Err(self.corrupt(format!(
                "{what} is {len} bytes long, at most {MAX_STRING} are accepted"
            )));
        }
        self.take(len, what)
    }

    /// A length-prefixed string that must be UTF-8.
    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let found = self.bytes(what)?;
        std::str::from_utf8(found).map_err(|_| self.corrupt(format!("{what} is not UTF-8")))
    }
}
