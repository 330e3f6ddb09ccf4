//! Closing, and the statistics.

use crate::core::Core;
use crate::format::record::HEAD;
use crate::format::sectors;
use crate::state::State;
use crate::stats::Stats;

impl Core {
    /// Writes what is left, marks the end of the log and makes all of it durable. A journal that cannot do so is
    /// left as after a crash, which loses nothing.
    pub(crate) fn close(&self) {
        if self.sync_all().is_err() {
            return;
        }
        let mut state = self.lock();
        if state.marks.is_empty() && self.seal_fits(&state) {
            let seed = state.active.seed;
            state.open.push_seal(seed);
            drop(state);
            // An error has poisoned the journal and is found at the next open.
            let _ = self.sync_all();
        }
    }

    fn seal_fits(&self, state: &State) -> bool {
        let end = state.active.offset + sectors(state.open.len() + HEAD) as u64;
        state.open.is_empty() && end <= self.options.segment_bytes
    }

    /// The statistics.
    pub(crate) fn stats(&self) -> Stats {
        let state = self.lock();
        let counters = &state.counters;
        Stats {
            open_records: state.index.len() as u64,
            open_bytes: state.segments.iter().map(|segment| segment.live_bytes).sum(),
            disk_bytes: state.files() as u64 * self.options.segment_bytes,
            capacity: self.options.capacity,
            free_bytes: state.free(&self.options),
            segments: state.segments.len() as u64,
            spares: state.supply.spares.len() as u64,
            appended: counters.appended,
            settled: counters.settled,
            unknown_settles: counters.unknown_settles,
            pending_marks: state.marks.len() as u64,
            refused: counters.refused,
            carried: counters.carried,
            rotations: counters.rotations,
            batch_records: counters.batch_records,
            write_us: counters.write_us,
            poisoned: state.poison.as_ref().map(ToString::to_string),
        }
    }
}
