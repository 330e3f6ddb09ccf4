//! What can be chosen about a journal, and the check of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::OpenError;
use crate::format::{DATA_START, SECTOR, batch::BATCH_HEADER, record::data_frame, sectors};

/// What survives once an append is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Survives a crash or kill of the process, not of the host: one write, about 2 us. A loss of power may take
    /// everything since the last [`sync`](crate::Journal::sync), always from some record on to the end.
    Buffered,
    /// Survives a loss of power: one write and one fdatasync, shared by all writers that wait; about 100 us on a
    /// virtual disk, 4 ms where the core is starved.
    #[default]
    Data,
}

impl Durability {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Buffered => 0,
            Self::Data => 1,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        [Self::Buffered, Self::Data]
            .into_iter()
            .find(|level| level.code() == code)
    }
}

/// Who makes spare segments, carries stragglers and commits for awaiting callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upkeep {
    /// Two threads of the journal, parked while there is nothing to do.
    #[default]
    Threads,
    /// Whoever calls, inside the call: no thread exists and the order of operations is the order of calls.
    /// For simulation and short-lived tools.
    Caller,
}

/// How a journal is kept. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// What an acknowledgement means. Default: [`Durability::Data`].
    pub durability: Durability,
    /// The most that the journal's files take together, kept exactly. One segment of it is a reserve for moving
    /// stragglers and refused to appends. Default 64 MiB; at least three segments.
    pub capacity: u64,
    /// The size of a segment file. Fixed when the journal is made. Default 4 MiB; whole sectors of 512 bytes,
    /// 16 KiB at least, 1 GiB at most.
    pub segment_bytes: u64,
    /// The longest payload accepted. Default 1 MiB; at most about half a segment.
    pub max_record: usize,
    /// A batch is closed when it holds this much. Default 1 MiB.
    pub batch_bytes: usize,
    /// How long a settle mark waits for a batch to ride with before it gets one of its own. Default 5 ms.
    pub settle_flush: Duration,
    /// Who does the work behind the calls. Default: [`Upkeep::Threads`].
    pub upkeep: Upkeep,
    /// Make the root when it is missing (its parent must exist). Default true.
    pub create: bool,
    /// Told to a second process that finds the journal locked, beside this process's id.
    pub holder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            capacity: 64 << 20,
            segment_bytes: 4 << 20,
            max_record: 1 << 20,
            batch_bytes: 1 << 20,
            settle_flush: Duration::from_millis(5),
            upkeep: Upkeep::default(),
            create: true,
            holder: "weir".to_owned(),
        }
    }
}

impl Options {
    /// Checks every field against its bounds.
    ///
    /// # Errors
    /// [`OpenError::Config`] names the first field that is out of its bounds, its value and the bound.
    pub fn validate(&self) -> Result<(), OpenError> {
        let refuse = |field, value: u64, bound: String| Err(OpenError::Config { field, value, bound });
        let size = self.segment_bytes;
        if !size.is_multiple_of(SECTOR as u64) || !((16 << 10)..=(1 << 30)).contains(&size) {
            let bound = "a multiple of 512 between 16384 and 1073741824".to_owned();
            return refuse("segment_bytes", size, bound);
        }
        if self.capacity < size.saturating_mul(3) {
            let bound = format!("at least three segments of {size}: {}", size.saturating_mul(3));
            return refuse("capacity", self.capacity, bound);
        }
        let longest = self.longest_record();
        if self.max_record > longest {
            let bound = format!("at most {longest} with segments of {size}");
            return refuse("max_record", self.max_record as u64, bound);
        }
        if self.batch_bytes < SECTOR {
            return refuse(
                "batch_bytes",
                self.batch_bytes as u64,
                format!("at least {SECTOR}"),
            );
        }
        Ok(())
    }

    /// The longest payload that segments of this size allow: two records always fit one segment.
    pub fn longest_record(&self) -> usize {
        let half = usize::try_from(self.usable() / 2).unwrap_or(usize::MAX);
        (half / SECTOR * SECTOR).saturating_sub(BATCH_HEADER + data_frame(0))
    }

    /// Bytes of a segment that batches can take.
    pub(crate) fn usable(&self) -> u64 {
        self.segment_bytes.saturating_sub(DATA_START)
    }

    /// How many segment files the cap allows.
    pub(crate) fn max_segments(&self) -> usize {
        usize::try_from(self.capacity / self.segment_bytes.max(1)).unwrap_or(usize::MAX)
    }

    /// Where a batch is closed: at `batch_bytes`, or at one longest record if that is more.
    pub(crate) fn batch_limit(&self) -> usize {
        let one = BATCH_HEADER + data_frame(self.max_record);
        let usable = usize::try_from(self.usable()).unwrap_or(usize::MAX);
        sectors(self.batch_bytes.max(one)).min(usable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        Options::default().validate().unwrap();
    }

    #[test]
    fn each_bound_is_told_by_field_and_value() {
        let base = Options {
            segment_bytes: 64 << 10,
            max_record: 1024,
            ..Options::default()
        };
        let cases = [
            (
                Options {
                    segment_bytes: 1000,
                    ..base.clone()
                },
                "segment_bytes",
            ),
            (
                Options {
                    capacity: 100_000,
                    ..base.clone()
                },
                "capacity",
            ),
            (
                Options {
                    max_record: 40_000,
                    ..base.clone()
                },
                "max_record",
            ),
            (
                Options {
                    batch_bytes: 3,
                    ..base.clone()
                },
                "batch_bytes",
            ),
        ];
        for (options, named) in cases {
            let told = options.validate().unwrap_err().to_string();
            assert!(told.contains(named), "{told}");
        }
        base.validate().unwrap();
        Options {
            max_record: base.longest_record(),
            ..base
        }
        .validate()
        .unwrap();
    }
}
