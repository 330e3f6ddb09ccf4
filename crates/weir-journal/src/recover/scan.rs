//! One segment: its batches in order up to the first that does not continue the log, and what lies beyond.

use crate::format::batch::{BATCH_HEADER, BatchHeader};
use crate::format::record::{Frame, frames};
use crate::format::seed::Seed;
use crate::format::{DATA_START, SECTOR, sectors};

/// Which segment the bytes are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The segment's id.
    pub(crate) segment: u64,
    /// Its checksum seed.
    pub(crate) seed: Seed,
}

impl Place {
    /// Segment `segment` of journal `journal`.
    pub(crate) fn new(journal: u128, segment: u64) -> Self {
        Self {
            segment,
            seed: Seed::new(journal, segment),
        }
    }
}

/// What the next batch must say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expect {
    /// Its number.
    pub(crate) number: u64,
    /// The header checksum of the batch before it.
    pub(crate) chain: u32,
}

/// One batch that verified.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    /// Its header.
    pub(crate) header: BatchHeader,
    /// The header's checksum.
    pub(crate) crc: u32,
    /// Where it starts in the file.
    pub(crate) offset: u64,
    /// Its records.
    pub(crate) frames: Vec<Frame<'a>>,
}

impl Batch<'_> {
    /// Where the next batch starts.
    pub(crate) fn end(&self) -> u64 {
        let len = usize::try_from(self.header.body_len)
            .unwrap_or(usize::MAX)
            .saturating_add(BATCH_HEADER);
        self.offset.saturating_add(sectors(len) as u64)
    }

    /// The offset in the file of a record.
    pub(crate) fn record_at(&self, frame: &Frame<'_>) -> u64 {
        self.offset
            .saturating_add(BATCH_HEADER as u64)
            .saturating_add(frame.at as u64)
    }
}

/// Where a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The offset behind the last batch that continues the log.
    pub(crate) offset: u64,
    /// What the next batch must say; None when no batch was ever seen.
    pub(crate) expect: Option<Expect>,
    /// Batches accepted.
    pub(crate) batches: u64,
    /// Whether something that calls itself a batch of this segment stands at `offset`.
    pub(crate) broken: bool,
}

/// The batch at `offset` of `bytes` (a whole segment), verified in header, body and records.
pub(crate) fn batch_at(bytes: &[u8], place: Place, offset: u64) -> Option<Batch<'_>> {
    let from = usize::try_from(offset).ok()?;
    let rest = bytes.get(from..)?;
    let (header, crc) = BatchHeader::decode(rest, place.seed, offset)?;
    let end = BATCH_HEADER.checked_add(usize::try_from(header.body_len).ok()?)?;
    let body = rest.get(BATCH_HEADER..end)?;
    if place.seed.at(offset, body) != header.body_crc {
        return None;
    }
    let frames = frames(body, header.count, place.seed)?;
    Some(Batch {
        header,
        crc,
        offset,
        frames,
    })
}

/// Walks the batches of a segment from its start and hands each to `visit`.
pub(crate) fn scan(
    bytes: &[u8],
    place: Place,
    expect: Option<Expect>,
    visit: &mut dyn FnMut(&Batch<'_>),
) -> End {
    let mut end = End {
        offset: DATA_START,
        expect,
        batches: 0,
        broken: false,
    };
    while let Some(batch) = batch_at(bytes, place, end.offset) {
        let continues = |e: Expect| e.number == batch.header.number && e.chain == batch.header.chain;
        if !end.expect.is_none_or(continues) {
            break;
        }
        visit(&batch);
        end.offset = batch.end();
        end.expect = Some(Expect {
            number: batch.header.number.saturating_add(1),
            chain: batch.crc,
        });
        end.batches = end.batches.saturating_add(1);
    }
    end.broken = claims(bytes, place, end.offset);
    end
}

/// Whether something that calls itself a batch stands at the start of a segment.
pub(crate) fn starts(bytes: &[u8], place: Place) -> bool {
    claims(bytes, place, DATA_START)
}

fn claims(bytes: &[u8], place: Place, offset: u64) -> bool {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    bytes
        .get(at..)
        .is_some_and(|rest| BatchHeader::looks_like(rest, place.segment))
}

/// What batch headers say that lie behind the end of the log, whether or not their bodies verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// How many there are.
    pub(crate) count: u64,
    /// The highest number.
    pub(crate) number: u64,
    /// The highest number that one of them says was durable.
    pub(crate) durable: u64,
    /// The number of the batch that says so.
    pub(crate) proof: u64,
    /// The highest low water.
    pub(crate) low_water: u64,
    /// Whether one was written when all before it was durable.
    pub(crate) all_before_durable: bool,
}

impl Beyond {
    fn see(&mut self, header: &BatchHeader) {
        self.count = self.count.saturating_add(1);
        self.number = self.number.max(header.number);
        self.low_water = self.low_water.max(header.low_water);
        self.all_before_durable |= header.durable.saturating_add(1) >= header.number && header.number > 1;
        if header.durable >= self.durable {
            self.durable = header.durable;
            self.proof = header.number;
        }
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        let newer = if other.durable >= self.durable {
            other
        } else {
            self
        };
        Self {
            count: self.count.saturating_add(other.count),
            number: self.number.max(other.number),
            durable: newer.durable,
            proof: newer.proof,
            low_water: self.low_water.max(other.low_water),
            all_before_durable: self.all_before_durable || other.all_before_durable,
        }
    }
}

/// Looks at every sector of a segment from `from` on for a batch header of this life.
pub(crate) fn beyond(bytes: &[u8], place: Place, from: u64) -> Beyond {
    let mut found = Beyond::default();
    let start = usize::try_from(from).unwrap_or(usize::MAX);
    let sectors = bytes.get(start..).unwrap_or_default().chunks(SECTOR);
    for (at, sector) in (from..).step_by(SECTOR).zip(sectors) {
        if let Some((header, _)) = BatchHeader::decode(sector, place.seed, at) {
            found.see(&header);
        }
    }
    found
}
