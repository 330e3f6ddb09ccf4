//! The fold over the log: segment after segment in, open records and the verdict out.

use std::collections::BTreeMap;

use super::flip::one_bit;
use super::scan::{Batch, Beyond, Expect, Place, beyond, scan, starts};
use super::{Damage, DamageKind};
use crate::format::record::{Frame, Kind};
use crate::format::{DATA_START, SECTOR};
use crate::record::Meta;

/// Where an open record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// The segment's id.
    pub(crate) segment: u64,
    /// The offset of the record's head in the file.
    pub(crate) offset: u64,
    /// Bytes of the record with its framing.
    pub(crate) len: u32,
    /// Bytes of its payload.
    pub(crate) payload: u32,
    /// The batch it is in.
    pub(crate) batch: u64,
    /// Whose work it is.
    pub(crate) meta: Meta,
    /// When it was appended.
    pub(crate) at_ms: u64,
}

/// How the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// It was closed.
    Sealed,
    /// It was not closed; nothing is behind its last batch.
    Open,
    /// It was not closed, and one bit of its last batch is flipped: by rot, or by a write cut just there. No later
    /// batch tells which; flipping it back is right in both cases, and opening does.
    OneBit {
        /// The segment.
        segment: u64,
        /// Where the batch starts.
        offset: u64,
        /// The bit, counted from the start of the file, lowest bit of a byte first.
        bit: u64,
    },
    /// It was not closed, and a write that was never acknowledged as durable lies behind its last batch.
    Torn {
        /// The segment.
        segment: u64,
        /// Where in it.
        offset: u64,
        /// Later batches that were written and not durable. Only with [`Durability::Buffered`] and a loss of power.
        ///
        /// [`Durability::Buffered`]: crate::Durability::Buffered
        later_batches: u64,
    },
}

/// One segment of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Its id.
    pub(crate) id: u64,
    /// The offset behind its last batch.
    pub(crate) end: u64,
    /// The number of its last batch; 0 when it has none.
    pub(crate) last_batch: u64,
    /// Whether batches that are not part of the log lie in it.
    pub(crate) stale: bool,
}

/// A stop that is not yet known to be the end.
#[derive(Clone, Debug)]
struct Stop {
    file: String,
    segment: u64,
    offset: u64,
    broken: bool,
    bit: Option<u64>,
}

/// The fold.
#[derive(Debug)]
pub(crate) struct Replay {
    journal: u128,
    /// The oldest segment that is needed.
    pub(crate) low_water: u64,
    /// Open records by seq.
    pub(crate) open: BTreeMap<u64, Located>,
    /// The segments fed, in order.
    pub(crate) segments: Vec<Replayed>,
    /// What the next batch must say.
    pub(crate) expect: Option<Expect>,
    /// The first unused seq.
    pub(crate) next_seq: u64,
    /// The highest batch number that a batch of the log says was durable.
    pub(crate) durable: u64,
    /// Batches in the log.
    pub(crate) batches: u64,
    /// What lies behind the end.
    pub(crate) beyond: Beyond,
    /// The highest batch number seen anywhere.
    pub(crate) highest: u64,
    stop: Option<Stop>,
    sealed: bool,
}

impl Replay {
    /// A fold over the log of `journal`, whose oldest needed segment is `low_water`.
    pub(crate) fn new(journal: u128, low_water: u64) -> Self {
        Self {
            journal,
            low_water,
            open: BTreeMap::new(),
            segments: Vec::new(),
            expect: None,
            next_seq: 1,
            durable: 0,
            batches: 0,
            beyond: Beyond::default(),
            highest: 0,
            stop: None,
            sealed: false,
        }
    }

    /// Takes in the next segment of the log, whole.
    pub(crate) fn feed(&mut self, file: &str, segment: u64, bytes: &[u8]) {
        let place = Place::new(self.journal, segment);
        let (expect, first) = (self.expect, self.segments.is_empty());
        // The log starts in its oldest segment. Without a start there, nothing later continues it.
        let whole = if first || expect.is_some() { bytes } else { &[] };
        let mut end = scan(whole, place, expect, &mut |batch| self.batch(batch));
        end.broken |= whole.is_empty() && starts(bytes, place);
        // With nothing to expect, the first header of all cannot vouch for itself: it may be the torn one.
        let own = if first && end.expect.is_none() {
            SECTOR as u64
        } else {
            0
        };
        let behind = beyond(bytes, place, end.offset.saturating_add(own));
        let all = beyond(bytes, place, end.offset);
        self.highest = self.highest.max(all.number);
        let goes_on = end.batches > 0;
        self.batches = self.batches.saturating_add(end.batches);
        self.segments.push(Replayed {
            id: segment,
            end: end.offset,
            last_batch: if goes_on {
                end.expect.map_or(0, |e| e.number.saturating_sub(1))
            } else {
                0
            },
            stale: all.count > 0,
        });
        if goes_on {
            self.expect = end.expect;
            self.beyond = behind;
            self.stop = None;
        } else {
            self.beyond = self.beyond.and(behind);
        }
        if self
            .stop
            .as_ref()
            .is_none_or(|stop| !stop.broken && stop.bit.is_none() && end.broken)
        {
            let bit = one_bit(bytes, place, end.offset, end.expect);
            self.stop = Some(Stop {
                file: file.to_owned(),
                segment,
                offset: end.offset,
                broken: end.broken,
                bit,
            });
        }
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        self.sealed = batch.frames.last().is_some_and(|frame| frame.kind == Kind::Seal);
        self.durable = self.durable.max(batch.header.durable);
        self.next_seq = self.next_seq.max(batch.header.next_seq);
        for frame in &batch.frames {
            match frame.kind {
                Kind::Append | Kind::Carry => self.data(batch, frame),
                Kind::Settle => {
                    for seq in frame.settles() {
                        self.open.remove(&seq);
                    }
                }
                Kind::Seal => {}
            }
        }
    }

    fn data(&mut self, batch: &Batch<'_>, frame: &Frame<'_>) {
        let Some(fields) = frame.fields() else { return };
        let located = Located {
            segment: batch.header.segment,
            offset: batch.record_at(frame),
            len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            payload: u32::try_from(frame.payload().len()).unwrap_or(u32::MAX),
            batch: batch.header.number,
            meta: fields.meta,
            at_ms: fields.at_ms,
        };
        self.open.insert(fields.seq, located);
    }

    /// The verdict: how the log ended, or what is damaged.
    pub(crate) fn verdict(&self) -> Result<Tail, Damage> {
        let Some(stop) = &self.stop else {
            return Ok(Tail::Open);
        };
        let damage = |kind| Damage {
            file: stop.file.clone(),
            segment: stop.segment,
            offset: stop.offset,
            kind,
        };
        let acknowledged = match self.expect {
            Some(expect) => self.beyond.durable >= expect.number,
            None => self.beyond.all_before_durable,
        };
        match (acknowledged, stop.bit) {
            (true, Some(bit)) => return Err(damage(DamageKind::OneBit { bit })),
            (true, None) => {
                return Err(damage(DamageKind::Batch {
                    proof: self.beyond.proof,
                }));
            }
            (false, Some(bit)) => {
                return Ok(Tail::OneBit {
                    segment: stop.segment,
                    offset: stop.offset,
                    bit,
                });
            }
            (false, None) => {}
        }
        if !stop.broken && self.beyond.count == 0 {
            return Ok(if self.sealed { Tail::Sealed } else { Tail::Open });
        }
        let (segment, offset) = self.end();
        let later_batches = self.beyond.count.saturating_sub(u64::from(stop.broken));
        Ok(Tail::Torn {
            segment,
            offset,
            later_batches,
        })
    }

    /// Where the next batch goes: the last segment that has one, or the first of all, and the offset in it.
    pub(crate) fn end(&self) -> (u64, u64) {
        let last = self.segments.iter().rev().find(|segment| segment.last_batch > 0);
        last.or(self.segments.first())
            .map_or((self.low_water, DATA_START), |s| (s.id, s.end))
    }
}
