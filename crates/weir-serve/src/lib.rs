//! OpenAI frontend, router, discovery and worker host.
//!
//! The frontend turns an HTTP request into a [`weir_engine::Request`], mints a ticket and calls a worker; the worker
//! host opens the ticket and hands a sink to its engine. Invariant: every HTTP request ends in exactly one outcome.

pub mod discovery;
pub mod envelope;
pub mod frontend;
mod router;
pub mod worker;
