//! A live link to every registered process.
//!
//! One task per process dials, waits until the link is gone and dials again. Invariant: a process that is registered
//! no more has no task, and its workers are picked no more, whatever its link does.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::AbortHandle};
use weir_net::{Node, Peer};

use super::Fleet;
use crate::{discovery::Registration, envelope};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Follows `registrations` for as long as the future is polled.
pub(crate) async fn supervise(
    fleet: Arc<Fleet>,
    node: Node,
    mut registrations: watch::Receiver<Vec<Registration>>,
) {
    let mut dialers: HashMap<String, (Registration, Dialer)> = HashMap::new();
    loop {
        let now = registrations.borrow_and_update().clone();
        dialers.retain(|name, (registration, _)| {
            let stays = now.contains(registration);
            if !stays {
                tracing::info!(process = %name, "worker process is registered no more");
                fleet.remove(name);
            }
            stays
        });
        for registration in now {
            dialers.entry(registration.name.clone()).or_insert_with(|| {
                fleet.add(&registration);
                let dial = dial(
                    Arc::clone(&fleet),
                    node.clone(),
                    registration.name.clone(),
                    registration.addr,
                );
                (registration, Dialer(tokio::spawn(dial).abort_handle()))
            });
        }
        if registrations.changed().await.is_err() {
            // Discovery has ended; what is known stays.
            return std::future::pending().await;
        }
    }
}

/// Ends its task when dropped.
struct Dialer(AbortHandle);

impl Drop for Dialer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a link to one process.
async fn dial(fleet: Arc<Fleet>, node: Node, process: String, addr: SocketAddr) {
    let mut wait = FIRST_WAIT;
    // A failure is worth a warning once, until a link has been there.
    let mut said = false;
    loop {
        match link(&node, addr).await {
            Ok(peer) => {
                said = false;
                tracing::info!(process, %addr, "linked to worker process");
                let since = Instant::now();
                fleet.set_link(&process, Some(peer.clone()));
                let reason = peer.gone().await;
                fleet.set_link(&process, None);
                tracing::warn!(process, %addr, reason, "lost the link to worker process");
                if since.elapsed() > LONGEST_WAIT {
                    wait = FIRST_WAIT;
                }
            }
            Err(reason) if said => tracing::debug!(process, %addr, reason, "still no link to worker process"),
            Err(reason) => {
                said = true;
                tracing::warn!(process, %addr, reason, "cannot link to worker process; retrying");
            }
        }
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(LONGEST_WAIT);
    }
}

/// A link over which requests can be sent.
async fn link(node: &Node, addr: SocketAddr) -> Result<Peer, String> {
    let peer = node.connect(addr).await.map_err(|error| error.to_string())?;
    peer.wait_for_handler(envelope::GENERATE)
        .await
        .map_err(|error| error.to_string())?;
    Ok(peer)
}
