//! The task of a scripted engine: a queue of deadlines, and a look at every play after a waker was woken.

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
    let mut plays = Plays::default();
    let waker = intake.waker();
    loop {
        plays.take_arrivals(&intake);
        if intake.take_touched() {
            plays.look_at_all();
        }
        plays.step(&intake, &waker);
        match plays.next_deadline() {
            Some(deadline) => {
                tokio::select! {
                    () = intake.changed() => {}
                    () = sleep_until(deadline) => {}
                }
            }
            None => intake.changed().await,
        }
    }
}

/// All plays of one engine.
#[derive(Default)]
struct Plays {
    plays: BTreeMap<u64, Play>,
    /// When to look at which play.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Plays to look at now.
    ready: BTreeSet<u64>,
    next_key: u64,
}

impl Plays {
    fn take_arrivals(&mut self, intake: &Intake<Play>) {
        let mut progress = Progress::default();
        for play in intake.arrivals() {
            let key = self.next_key;
            self.next_key += 1;
            self.plays.insert(key, play);
            self.ready.insert(key);
            progress.began += 1;
        }
        intake.report(progress);
    }

    fn look_at_all(&mut self) {
        self.ready.extend(self.plays.keys());
        self.deadlines.clear();
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Steps every play that is ready or due.
    fn step(&mut self, intake: &Intake<Play>, waker: &Waker) {
        let now = Instant::now();
        while let Some(entry) = self
            .deadlines
            .first()
            .copied()
            .filter(|(deadline, _)| *deadline <= now)
        {
            self.deadlines.remove(&entry);
            self.ready.insert(entry.1);
        }
        let mut progress = Progress::default();
        for key in std::mem::take(&mut self.ready) {
            let Some(play) = self.plays.get_mut(&key) else {
                continue;
            };
            match play.step(now, waker, &mut progress.tokens) {
                Next::At(deadline) => {
                    self.deadlines.insert((deadline, key));
                }
                Next::OnWake => {}
                Next::End(ending) => {
                    progress.ended_running += 1;
                    if let Some(play) = self.plays.remove(&key) {
                        play.end(ending);
                    }
                }
            }
        }
        intake.report(progress);
    }
}
