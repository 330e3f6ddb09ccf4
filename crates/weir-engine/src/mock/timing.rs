//! How long a pass takes, and when it ends.
//!
//! Invariant: deadlines are absolute. A pass that wakes late does not move the next one, up to [`CATCH_UP`].

use std::time::Duration;

use tokio::time::Instant;

use super::MockConfig;

/// How far behind its deadlines an engine may be and still catch up; what is beyond is lost time.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The modelled time of one pass over `prompt_tokens` new prompt tokens.
pub(super) fn pass_time(config: &MockConfig, prompt_tokens: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "prompts are far below 2^52 tokens")]
    let prefill = config.prefill_per_token.as_secs_f64() * prompt_tokens as f64;
    let seconds = (config.pass.as_secs_f64() + prefill) / config.speedup;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// The modelled clock of one engine.
#[derive(Debug)]
pub(super) struct PassClock {
    deadline: Instant,
}

impl PassClock {
    pub(super) fn new(now: Instant) -> Self {
        Self { deadline: now }
    }

    /// The engine was idle until `now`.
    pub(super) fn restart(&mut self, now: Instant) {
        self.deadline = now;
    }

    /// When a pass of this length ends that begins where the last one ended.
    pub(super) fn pass(&mut self, now: Instant, length: Duration) -> Instant {
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        self.deadline = self.deadline.max(earliest) + length;
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_costs_its_prefill_and_speedup_divides_both() {
        let mut config = MockConfig::default();
        assert_eq!(pass_time(&config, 0), Duration::from_millis(8));
        assert_eq!(pass_time(&config, 1000), Duration::from_millis(23));
        config.speedup = 10.0;
        assert_eq!(pass_time(&config, 1000), Duration::from_micros(2300));
        config.speedup = f64::INFINITY;
        assert_eq!(pass_time(&config, 1000), Duration::ZERO);
    }

    #[test]
    fn late_wakes_do_not_add_up() {
        let start = Instant::now();
        let (mut clock, pass) = (PassClock::new(start), Duration::from_millis(10));
        let mut now = start;
        for n in 1..=20 {
            let deadline = clock.pass(now, pass);
            assert_eq!(deadline, start + pass * n);
            now = deadline + Duration::from_millis(1);
        }
        let stalled = now + Duration::from_secs(5);
        assert_eq!(clock.pass(stalled, pass), stalled - CATCH_UP + pass);
    }
}
