//! What a record carries: its stream and number, then a fixed fill. A consumer checks all of it.

use anyhow::{Result, bail};

use super::Shape;

const FILL: u8 = 7;

/// The next record of one stream, numbered in place.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: [u8; Shape::RECORD_BYTES],
}

impl Payload {
    pub(super) fn new(stream: u32) -> Self {
        let mut bytes = [FILL; Shape::RECORD_BYTES];
        bytes[..4].copy_from_slice(&stream.to_le_bytes());
        Self { bytes }
    }

    /// The bytes of record `number`.
    pub(super) fn number(&mut self, number: u32) -> &[u8] {
        self.bytes[4..8].copy_from_slice(&number.to_le_bytes());
        &self.bytes
    }

    /// Fails unless `item` is record `number` of this stream, whole.
    pub(super) fn check(&mut self, number: u32, item: &[u8]) -> Result<()> {
        if item != self.number(number) {
            bail!(
                "record {number} is not what was sent: {} bytes, starting {:?}",
                item.len(),
                item.get(..8)
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_passes_only_as_itself() {
        let record = Payload::new(3).number(5).to_vec();
        let mut expected = Payload::new(3);
        assert!(expected.check(5, &record).is_ok());
        assert!(expected.check(6, &record).is_err(), "a repeat");
        assert!(
            Payload::new(4).check(5, &record).is_err(),
            "crossed with another stream"
        );
        assert!(expected.check(5, &record[..159]).is_err(), "cut");
        let mut damaged = record;
        damaged[159] ^= 1;
        assert!(expected.check(5, &damaged).is_err(), "damaged");
    }
}
