//! The signals that end a measurement early, with its results written.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on an interrupt or SIGTERM; never if signals cannot be had, and then the measurement ends by itself.
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
