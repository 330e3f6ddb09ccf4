//! What happened, for people: kept only when a failed seed is run again.

use std::collections::VecDeque;

use weir_proto::Time;

/// Lines kept.
const LINES: usize = 600;

/// See the module.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) on: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Self {
        Self {
            on,
            lines: VecDeque::new(),
        }
    }

    pub(crate) fn say(&mut self, now: Time, line: impl FnOnce() -> String) {
        if !self.on {
            return;
        }
        if self.lines.len() >= LINES {
            self.lines.pop_front();
        }
        let at = now.since_origin();
        self.lines
            .push_back(format!("{:>12.6}  {}", at.as_secs_f64(), line()));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.on && std::thread::panicking() {
            self.lines.iter().for_each(|line| eprintln!("{line}"));
        }
    }
}
