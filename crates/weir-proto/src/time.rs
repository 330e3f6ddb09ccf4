//! Time as the core sees it: nanoseconds since a moment of the driver's choice. It never reads a clock.

use std::{ops::Add, time::Duration};

/// A moment on the driver's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);

    /// The moment `since` after the driver's origin.
    pub fn from_origin(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long after the driver's origin this is.
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How long this moment lies after `earlier`; zero if it does not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// At most the end of time.
    fn add(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
