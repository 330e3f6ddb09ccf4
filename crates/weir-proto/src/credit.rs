//! Window arithmetic: absolute limits in records and bytes, counted in u64, never deltas.

use crate::Violation;

/// Records and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Records.
    pub records: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// How far a sender may run ahead of its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Records.
    pub records: u32,
    /// Bytes.
    pub bytes: u32,
}

impl Amount {
    /// This amount plus a window.
    #[must_use]
    pub fn plus(self, window: Window) -> Self {
        Self {
            records: self.records.saturating_add(u64::from(window.records)),
            bytes: self.bytes.saturating_add(u64::from(window.bytes)),
        }
    }

    /// Counts `records` more with `bytes` in all.
    pub(crate) fn add(&mut self, records: u64, bytes: usize) {
        self.records = self.records.saturating_add(records);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Whether both parts are at most `limit`'s.
    pub(crate) fn within(self, limit: Self) -> bool {
        self.records <= limit.records && self.bytes <= limit.bytes
    }
}

/// A sender's side of one stream's credit. Invariant: `sent` is within `limit`.
#[derive(Debug, Clone, Copy)]
pub struct SendCredit {
    sent: Amount,
    limit: Amount,
    max: Window,
}

impl SendCredit {
    /// Credit of a fresh stream: the ticket's window, and the largest window the peer declared.
    pub fn new(window: Window, max: Window) -> Self {
        Self {
            sent: Amount::default(),
            limit: Amount::default().plus(window),
            max,
        }
    }

    /// What was sent.
    pub fn sent(&self) -> Amount {
        self.sent
    }

    /// Whether an item of `bytes` may start: it must fit whole.
    pub fn admits(&self, bytes: usize) -> bool {
        self.sent.records < self.limit.records
            && self.sent.bytes.saturating_add(bytes as u64) <= self.limit.bytes
    }

    /// Counts an item as sent.
    pub fn spend(&mut self, bytes: usize) {
        self.sent.add(1, bytes);
    }

    /// Takes back an item that was counted and will not be sent.
    pub fn refund(&mut self, bytes: usize) {
        self.sent.records = self.sent.records.saturating_sub(1);
        self.sent.bytes = self.sent.bytes.saturating_sub(bytes as u64);
    }

    /// Raises the limit; a lower one changes nothing. Says whether anything was raised.
    ///
    /// # Errors
    /// [`Violation::GrantTooLarge`] beyond what was sent plus the largest window the peer declared.
    pub fn grant(&mut self, limit: Amount) -> Result<bool, Violation> {
        if !limit.within(self.sent.plus(self.max)) {
            return Err(Violation::GrantTooLarge);
        }
        let raised = limit.records > self.limit.records || limit.bytes > self.limit.bytes;
        self.limit.records = self.limit.records.max(limit.records);
        self.limit.bytes = self.limit.bytes.max(limit.bytes);
        Ok(raised)
    }
}
