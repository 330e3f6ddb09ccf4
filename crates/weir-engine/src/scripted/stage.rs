//! The task of a scripted engine: a queue of deadlines, and a look at each play whose sink changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    task::Waker,
};

use tokio::time::{Instant, sleep_until};

use super::play::{Next, Play};
use crate::intake::{Intake, Progress};

/// Runs one engine until its task is aborted.
pub(super) async fn run(intake: Arc<Intake<Play>>) {
    let mut stage = Stage::new(intake);
    loop {
        stage.take_arrivals();
        stage.step();
        let changed = stage.intake.changed();
        match stage.next_deadline() {
            Some(deadline) => {
                tokio::select! {
                    () = changed => {}
                    () = sleep_until(deadline) => {}
                }
            }
            None => changed.await,
        }
    }
}

/// All plays of one engine.
struct Stage {
    intake: Arc<Intake<Play>>,
    plays: BTreeMap<u64, Scheduled>,
    /// When to look at which play.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Plays to look at now.
    ready: BTreeSet<u64>,
    next_key: u64,
}

struct Scheduled {
    play: Play,
    waker: Waker,
    /// Its place in the queue of deadlines.
    deadline: Option<Instant>,
}

impl Stage {
    fn new(intake: Arc<Intake<Play>>) -> Self {
        Self {
            intake,
            plays: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ready: BTreeSet::new(),
            next_key: 0,
        }
    }

    fn take_arrivals(&mut self) {
        let mut progress = Progress::default();
        for play in self.intake.arrivals() {
            let key = self.next_key;
            self.next_key += 1;
            let waker = self.intake.waker(key);
            self.plays.insert(
                key,
                Scheduled {
                    play,
                    waker,
                    deadline: None,
                },
            );
            self.ready.insert(key);
            progress.began += 1;
        }
        self.intake.report(progress);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Steps every play that is new, changed or due.
    fn step(&mut self) {
        let now = Instant::now();
        self.ready.extend(self.intake.take_touched());
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        self.ready.extend(due.map(|(_, key)| *key));
        let mut progress = Progress::default();
        for key in std::mem::take(&mut self.ready) {
            self.step_one(key, now, &mut progress);
        }
        self.intake.report(progress);
    }

    fn step_one(&mut self, key: u64, now: Instant, progress: &mut Progress) {
        let Some(scheduled) = self.plays.get_mut(&key) else {
            return;
        };
        if let Some(deadline) = scheduled.deadline.take() {
            self.deadlines.remove(&(deadline, key));
        }
        match scheduled.play.step(now, &scheduled.waker, &mut progress.tokens) {
            Next::At(deadline) => {
                scheduled.deadline = Some(deadline);
                self.deadlines.insert((deadline, key));
            }
            Next::OnWake => {}
            Next::End(ending) => {
                progress.ended_running += 1;
                if let Some(ended) = self.plays.remove(&key) {
                    ended.play.end(ending);
                }
            }
        }
    }
}
