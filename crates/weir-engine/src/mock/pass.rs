//! The pass loop: admit, wait for the end of the pass, push one token per running request.
//!
//! While a pass lasts the task still takes arrivals in and lets go of waiting and stalled requests that nobody wants
//! any more. Invariant: a request whose sink is full holds up no other; when nothing can run the task parks.

use std::{collections::VecDeque, sync::Arc, task::Waker};

use tokio::time::{Instant, sleep_until};

use super::{
    MockConfig,
    run::{Run, Step},
    timing::{PassClock, pass_time},
};
use crate::{
    Demand, FinishReason,
    intake::{Intake, Progress},
};

/// Runs one engine until its task is aborted.
pub(super) async fn run(intake: Arc<Intake<Run>>, config: MockConfig) {
    let mut requests = Requests::new(&intake, &config);
    let mut clock = PassClock::new(Instant::now());
    loop {
        requests.look_around();
        let prompt_tokens = requests.admit();
        if !requests.can_run() {
            intake.changed().await;
            clock.restart(Instant::now());
            continue;
        }
        let deadline = clock.pass(Instant::now(), pass_time(&config, prompt_tokens));
        while Instant::now() < deadline {
            tokio::select! {
                () = intake.changed() => requests.look_around(),
                () = sleep_until(deadline) => {}
            }
        }
        requests.pass();
        // A late or infinitely fast engine never sleeps; the writers of its tokens must still get their turn.
        tokio::task::yield_now().await;
    }
}

/// All requests of one engine.
struct Requests<'a> {
    intake: &'a Intake<Run>,
    max_running: usize,
    waker: Waker,
    waiting: VecDeque<Run>,
    running: Vec<Run>,
    /// How many of `running` are stalled.
    stalled: usize,
}

impl<'a> Requests<'a> {
    fn new(intake: &'a Arc<Intake<Run>>, config: &MockConfig) -> Self {
        Self {
            intake,
            max_running: config.max_running.max(1) as usize,
            waker: intake.waker(0),
            waiting: VecDeque::new(),
            running: Vec::new(),
            stalled: 0,
        }
    }

    fn can_run(&self) -> bool {
        self.running.len() > self.stalled
    }

    /// Takes in what arrived and changed since the last call.
    fn look_around(&mut self) {
        self.take_arrivals();
        if !self.intake.take_touched().is_empty() {
            self.react();
        }
    }

    fn take_arrivals(&mut self) {
        let mut progress = Progress::default();
        for run in self.intake.arrivals() {
            if let Some(run) = keep_waiting(run, &self.waker, &mut progress) {
                self.waiting.push_back(run);
            }
        }
        self.intake.report(progress);
    }

    /// Moves waiting requests into free places; returns the prompt tokens they bring.
    fn admit(&mut self) -> u64 {
        let free = self
            .max_running
            .saturating_sub(self.running.len())
            .min(self.waiting.len());
        if free == 0 {
            return 0;
        }
        let prompt_tokens = self.waiting.iter().take(free).map(Run::prompt_tokens).sum();
        self.running.extend(self.waiting.drain(..free));
        self.intake.report(Progress {
            began: free as u64,
            ..Progress::default()
        });
        prompt_tokens
    }

    /// Pushes a token for each running request that is not stalled.
    fn pass(&mut self) {
        self.step_where(|run| !run.stalled);
    }

    /// After a sink's waker was woken: pushes what waits for credit, lets go of what nobody wants.
    fn react(&mut self) {
        let mut progress = Progress::default();
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting
            .into_iter()
            .filter_map(|run| keep_waiting(run, &self.waker, &mut progress))
            .collect();
        self.intake.report(progress);
        self.step_where(|run| run.stalled);
    }

    fn step_where(&mut self, chosen: impl Fn(&Run) -> bool) {
        let mut progress = Progress::default();
        let mut at = 0;
        while let Some(run) = self.running.get_mut(at) {
            if chosen(run) {
                let step = step_or_watch(run, &self.waker);
                progress.tokens += u64::from(matches!(step, Step::Token | Step::Last(_)));
                if let Some(end) = end_of(step) {
                    progress.ended_running += 1;
                    finish(self.running.swap_remove(at), end);
                    continue;
                }
            }
            at += 1;
        }
        self.stalled = self.running.iter().filter(|run| run.stalled).count();
        self.intake.report(progress);
    }
}

/// How a request ends; `None` for one that nobody wants.
type End = Option<FinishReason>;

fn end_of(step: Step) -> Option<End> {
    match step {
        Step::Token | Step::Stalled => None,
        Step::Last(reason) | Step::Done(reason) => Some(Some(reason)),
        Step::Gone => Some(None),
    }
}

fn finish(run: Run, end: End) {
    if let Some(reason) = end {
        run.finish(reason);
    }
}

/// One step; a full sink is asked to wake the task, and tried once more in case it changed before it was asked.
fn step_or_watch(run: &mut Run, waker: &Waker) -> Step {
    match run.step() {
        Step::Stalled => {
            let _ = run.watch(waker);
            run.step()
        }
        step => step,
    }
}

/// Watches a waiting request, or ends it if it is no longer wanted.
fn keep_waiting(mut run: Run, waker: &Waker, progress: &mut Progress) -> Option<Run> {
    let end = match run.watch(waker) {
        Demand::More => return Some(run),
        Demand::Stop => Some(FinishReason::Stop),
        Demand::Cancelled => None,
    };
    progress.ended_waiting += 1;
    finish(run, end);
    None
}
