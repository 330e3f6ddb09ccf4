//! The load generator against a scripted server, over real sockets.

mod load_failures;
mod load_runs;
mod server;
