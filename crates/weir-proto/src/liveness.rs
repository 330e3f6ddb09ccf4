//! When a lane must say something, and when its silence means that the peer is gone.
//!
//! Any byte counts. Silence counts only once the reader found nothing to read *after* the deadline passed, so a
//! process that was itself stopped reads first and judges then.

use std::time::Duration;

use crate::Time;

/// What silence means now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivenessVerdict {
    /// Ask again at this moment.
    Alive(Time),
    /// The deadline passed: read once more, then ask again.
    ReadFirst,
    /// The peer is gone.
    Silent,
}

/// A lane's receiving side.
#[derive(Debug)]
pub struct Liveness {
    timeout: Duration,
    heard: Time,
    asked: Option<Time>,
}

impl Liveness {
    /// Starts at `now`.
    pub fn new(timeout: Duration, now: Time) -> Self {
        Self {
            timeout,
            heard: now,
            asked: None,
        }
    }

    /// Bytes came.
    pub fn heard(&mut self, now: Time) {
        self.heard = now;
        self.asked = None;
    }

    /// Judges at `now`. The second call in a row past the deadline, with nothing heard in between, is the verdict.
    pub fn judge(&mut self, now: Time) -> LivenessVerdict {
        let deadline = self.heard + self.timeout;
        if now < deadline {
            return LivenessVerdict::Alive(deadline);
        }
        if self.asked.replace(now).is_none() {
            LivenessVerdict::ReadFirst
        } else {
            LivenessVerdict::Silent
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_reads_before_it_judges() {
        let mut liveness = Liveness::new(Duration::from_secs(5), Time::ZERO);
        let late = Time::from_origin(Duration::from_secs(60));
        assert_eq!(liveness.judge(late), LivenessVerdict::ReadFirst);
        liveness.heard(late);
        assert!(matches!(liveness.judge(late), LivenessVerdict::Alive(_)));
        let later = late + Duration::from_secs(5);
        assert_eq!(liveness.judge(later), LivenessVerdict::ReadFirst);
        assert_eq!(liveness.judge(later), LivenessVerdict::Silent);
    }
}
