//! Reading records back: one by seq, or all that are open, in order.

use std::io;
use std::sync::Arc;

use crate::core::Core;
use crate::error::ReadError;
use crate::format::record::Frame;
use crate::format::seed::Seed;
use crate::fs::{FsFile, How, read_full};
use crate::record::{OpenRecord, Record};
use crate::recover::replay::Located;

impl Located {
    /// The entry of record `seq`, which lies here.
    pub(crate) fn entry(&self, seq: u64) -> OpenRecord {
        OpenRecord {
            seq,
            meta: self.meta,
            at_ms: self.at_ms,
            len: self.payload as usize,
        }
    }
}

impl Core {
    /// The open records, in order.
    pub(crate) fn open_records(&self) -> Vec<OpenRecord> {
        self.lock().index.iter().map(|(seq, at)| at.entry(*seq)).collect()
    }

    /// Reads record `seq`. Looks again when it was moved meanwhile.
    pub(crate) fn read(&self, seq: u64) -> Result<Record, ReadError> {
        loop {
            let mut state = self.lock();
            let at = *state.index.get(&seq).ok_or(ReadError::NotOpen { seq })?;
            if at.batch > state.written {
                self.commit(state, at.batch)?;
                continue;
            }
            let slot = state.segment(at.segment).map_or(0, |segment| segment.slot);
            drop(state);
            let file = self.slots.open(slot, How::Read);
            let read = file
                .map_err(|source| ReadError::Io { seq, source })
                .and_then(|file| self.read_payload(&*file, seq, &at));
            match read {
                Ok(payload) => {
                    return Ok(Record {
                        entry: at.entry(seq),
                        payload,
                    });
                }
                Err(_) if self.lock().index.get(&seq) != Some(&at) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads and verifies the payload of the record at `at` of `file`.
    pub(crate) fn read_payload(
        &self,
        file: &dyn FsFile,
        seq: u64,
        at: &Located,
    ) -> Result<Vec<u8>, ReadError> {
        let frame = read_frame(file, at).map_err(|source| ReadError::Io { seq, source })?;
        payload_of(self.journal, seq, at, &frame).ok_or_else(|| ReadError::Damaged {
            seq,
            path: self
                .slots
                .path(self.lock().segment(at.segment).map_or(0, |segment| segment.slot)),
            offset: at.offset,
        })
    }
}

/// The bytes of the record at `at`.
pub(crate) fn read_frame(file: &dyn FsFile, at: &Located) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; at.len as usize];
    let n = read_full(file, &mut bytes, at.offset)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The payload in `frame`, if it verifies as record `seq` of its segment.
pub(crate) fn payload_of(journal: u128, seq: u64, at: &Located, frame: &[u8]) -> Option<Vec<u8>> {
    let (frame, _) = Frame::decode(frame, 0, Seed::new(journal, at.segment))?;
    (frame.fields()?.seq == seq).then(|| frame.payload().to_vec())
}

/// The open records of a journal, read one by one. See [`Journal::recover`](crate::Journal::recover).
#[derive(Debug)]
pub struct Recovered {
    pub(crate) core: Arc<Core>,
    pub(crate) seqs: std::vec::IntoIter<u64>,
}

impl Iterator for Recovered {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.core.read(self.seqs.next()?) {
                Err(ReadError::NotOpen { .. }) => {}
                read => return Some(read),
            }
        }
    }
}
