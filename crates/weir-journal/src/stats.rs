//! What a journal tells about itself.

use std::time::Duration;

use serde::Serialize;

/// Counters under the journal's lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appended: u64,
    pub(crate) settled: u64,
    pub(crate) unknown_settles: u64,
    pub(crate) refused: u64,
    pub(crate) carried: u64,
    pub(crate) rotations: u64,
    pub(crate) batch_records: Histogram,
    pub(crate) write_us: Histogram,
}

/// Counts by power of two: bucket `i` holds values from 2^(i-1) to 2^i - 1, bucket 0 holds zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// The counts.
    pub buckets: [u64; 24],
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        let bucket = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(0);
        let last = self.buckets.len() - 1;
        if let Some(count) = self.buckets.get_mut(bucket.min(last)) {
            *count += 1;
        }
    }

    pub(crate) fn add_micros(&mut self, took: Duration) {
        self.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the `q` quantile (0 to 1), good to a factor of two.
    pub fn quantile(&self, q: f64) -> u64 {
        let total = self.count();
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            #[expect(
                clippy::cast_precision_loss,
                reason = "a quantile of counts is no exact matter"
            )]
            if total > 0 && seen as f64 >= q * total as f64 {
                return (1 << bucket) - 1;
            }
        }
        0
    }
}

/// The state of a journal at one moment. Nothing here costs a system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Records that are appended and not settled.
    pub open_records: u64,
    /// Bytes of them, framing included.
    pub open_bytes: u64,
    /// Bytes that the journal's files take.
    pub disk_bytes: u64,
    /// The cap on that.
    pub capacity: u64,
    /// Bytes left for records, without what moving stragglers would free.
    pub free_bytes: u64,
    /// Segments that hold the log.
    pub segments: u64,
    /// Segments ready to be written to.
    pub spares: u64,
    /// Records appended since open.
    pub appended: u64,
    /// Records settled since open.
    pub settled: u64,
    /// Settles of records that were not open, since open.
    pub unknown_settles: u64,
    /// Settle marks that are not in the log yet.
    pub pending_marks: u64,
    /// Appends refused as full since open.
    pub refused: u64,
    /// Records moved since open.
    pub carried: u64,
    /// Changes of segment since open.
    pub rotations: u64,
    /// Records per batch.
    pub batch_records: Histogram,
    /// Microseconds per write, with its sync where there is one.
    pub write_us: Histogram,
    /// Why the journal has stopped, if it has.
    pub poisoned: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_a_factor_of_two() {
        let mut histogram = Histogram::default();
        for value in 0..1000 {
            histogram.add(value);
        }
        assert_eq!(histogram.count(), 1000);
        let p50 = histogram.quantile(0.5);
        assert!((500..1000).contains(&p50), "{p50}");
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
