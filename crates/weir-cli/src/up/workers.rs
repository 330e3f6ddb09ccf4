//! Keeps the worker processes running: one that ends is started again, after a pause that doubles.

use std::{ffi::OsString, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use super::child::{Child, Ended};

/// Pause before the first restart.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A worker that ran this long is restarted after the first pause again.
const SETTLED: Duration = Duration::from_secs(10);

/// All worker processes.
pub(super) struct Workers {
    keepers: JoinSet<()>,
    stop: watch::Sender<bool>,
    failures: mpsc::Receiver<Ended>,
}

impl Default for Workers {
    fn default() -> Self {
        Self::start([])
    }
}

impl Workers {
    /// Starts one process per name and command line.
    pub(super) fn start(commands: impl IntoIterator<Item = (String, Vec<OsString>)>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (failed, failures) = mpsc::channel(1);
        let mut keepers = JoinSet::new();
        for (name, args) in commands {
            keepers.spawn(keep(name, args, stopped.clone(), failed.clone()));
        }
        Self {
            keepers,
            stop,
            failures,
        }
    }

    /// Resolves when a worker has refused its command line or configuration: starting it again would not help.
    pub(super) async fn failed(&mut self) -> Ended {
        match self.failures.recv().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Lets every worker finish what it has and end.
    pub(super) async fn stop(&mut self) {
        self.stop.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

/// Keeps one worker running until it is to stop.
async fn keep(
    name: String,
    args: Vec<OsString>,
    mut stop: watch::Receiver<bool>,
    failed: mpsc::Sender<Ended>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        match run(&name, &args, &mut stop).await {
            Run::Stopped => return,
            Run::Refused(ended) => {
                // A full channel holds another worker's failure, which ends everything just as well.
                let _ = failed.try_send(ended);
                return;
            }
            Run::Died(how) => {
                if since.elapsed() >= SETTLED {
                    pause = FIRST_PAUSE;
                }
                tracing::warn!(worker = name, how, again_in = ?pause, "worker process ended; starting it again");
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped(&mut stop) => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How one run of a worker ended.
enum Run {
    Stopped,
    Refused(Ended),
    Died(String),
}

async fn run(name: &str, args: &[OsString], stop: &mut watch::Receiver<bool>) -> Run {
    let mut child = match Child::start(name, args) {
        Ok(child) => child,
        Err(error) => return Run::Died(format!("{error:#}")),
    };
    tokio::select! {
        ended = child.ended() => {
            if ended.is_usage() { Run::Refused(ended) } else { Run::Died(ended.to_string()) }
        }
        () = stopped(stop) => {
            child.terminate();
            child.ended().await;
            Run::Stopped
        }
    }
}

/// Resolves when everything is to stop, or when nobody is left to say so.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
