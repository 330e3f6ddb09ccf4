//! The load generator against a scripted server, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod load_failures;
mod load_runs;
mod server;
