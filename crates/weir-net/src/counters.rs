//! What a link counts. Plain atomics, added to once a pass, rendered at scrape.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: AtomicU64,)* }

        impl $name {
            /// Adds every counter to `to`'s.
            pub(crate) fn add_to(&self, to: &Self) {
                $(add(&to.$field, self.$field.load(Ordering::Relaxed));)*
            }
        }
    };
}

counters! {
    /// Counted by a link's reader and writer.
    LinkCounters {
        /// Batch frames taken.
        frames_in,
        /// Records taken.
        records_in,
        /// Read passes that brought bytes.
        reads,
        /// Bytes read.
        bytes_in,
        /// Consumers woken.
        wakes,
        /// Records dropped because their stream is over or unknown.
        stale_in,
        /// Claims by the peer that were refused.
        claims_refused,
        /// Writes, each one batch.
        writes,
        /// Records written.
        records_out,
        /// Bytes written.
        bytes_out,
        /// Slots visited because they were dirty.
        dirty_visits,
        /// Grants written.
        grants_out,
        /// Grants received.
        grants_in,
        /// Claims of ours that were refused.
        opens_refused,
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    if by > 0 {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
