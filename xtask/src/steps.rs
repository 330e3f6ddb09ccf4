//! A run of named steps, each timed.
//!
//! A failed step does not stop the next one, so that one run tells everything that is wrong; a step that others need
//! says so and ends the run. Invariant: the closing line counts every test and every step that has none.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::Count;

/// What a step came to.
#[derive(Debug)]
struct Done {
    name: &'static str,
    took: Duration,
    ok: bool,
}

/// The steps of one run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<Done>,
    count: Count,
}

impl Steps {
    /// Runs a step that passes or fails as a whole. True if it passed.
    pub(crate) fn check(&mut self, name: &'static str, step: impl FnOnce() -> Result<bool>) -> bool {
        self.tests(name, || {
            step().map(|ok| {
                (
                    ok,
                    Count {
                        passed: usize::from(ok),
                        failed: usize::from(!ok),
                    },
                )
            })
        })
    }

    /// Runs a step that counts its own tests. True if it passed.
    pub(crate) fn tests(&mut self, name: &'static str, step: impl FnOnce() -> Result<(bool, Count)>) -> bool {
        println!("\n==> {name}");
        let started = Instant::now();
        let (ok, mut count) = step().unwrap_or_else(|error| {
            println!("{error:#}");
            (false, Count::default())
        });
        if !ok && count.failed == 0 {
            count.failed = 1;
        }
        let took = started.elapsed();
        println!("<== {name}: {} after {}", word(ok), seconds(took));
        self.count.passed += count.passed;
        self.count.failed += count.failed;
        self.done.push(Done { name, took, ok });
        ok
    }

    /// Prints the table and the closing line. True if every step passed.
    pub(crate) fn close(&self) -> bool {
        println!();
        for step in &self.done {
            println!("{:>9}  {:<6} {}", seconds(step.took), word(step.ok), step.name);
        }
        let total: Duration = self.done.iter().map(|step| step.took).sum();
        println!("{:>9}  in all", seconds(total));
        println!("{} passed, {} failed", self.count.passed, self.count.failed);
        self.done.iter().all(|step| step.ok)
    }
}

fn word(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_run_and_the_next_one_still_runs() {
        let mut steps = Steps::default();
        assert!(!steps.check("first", || Ok(false)));
        assert!(steps.check("second", || Ok(true)));
        assert!(!steps.close());
        assert_eq!(steps.count, Count { passed: 1, failed: 1 });
    }

    #[test]
    fn a_runner_that_fails_before_its_tests_counts_as_a_failure() {
        let mut steps = Steps::default();
        assert!(!steps.tests("tests", || Ok((false, Count { passed: 3, failed: 0 }))));
        assert_eq!(steps.count, Count { passed: 3, failed: 1 });
    }
}
