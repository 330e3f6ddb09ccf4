//! The run's clock: monotonic nanoseconds since its origin, and the wall time of that origin.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Copies agree with each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    origin: Instant,
    /// UTC nanoseconds at the origin; for joins with other processes, never for intervals.
    pub(super) wall_ns: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            origin: Instant::now(),
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Nanoseconds since the origin, at least 1 so that 0 can mean "not yet".
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}
