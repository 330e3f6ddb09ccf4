//! Log output: on stderr, in colour only on a terminal.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// What is logged unless `WEIR_LOG` or `RUST_LOG` says otherwise.
const DEFAULT: &str = "info";

/// Starts logging. A filter that cannot be read is named in the log and replaced by the default.
pub(crate) fn start() {
    let wanted = ["WEIR_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)));
    let parsed = wanted.as_ref().map(|(_, text)| EnvFilter::try_new(text));
    let (filter, bad) = match parsed {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(DEFAULT), Some(error)),
        None => (EnvFilter::new(DEFAULT), None),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        .init();
    if let (Some(error), Some((name, _))) = (bad, wanted) {
        tracing::warn!(%error, "{name} is no log filter; logging at {DEFAULT}");
    }
}
