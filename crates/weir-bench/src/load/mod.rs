//! The load generator: a closed loop of streaming requests to an OpenAI-compatible endpoint.
//!
//! Each slot is one task with one keep-alive connection; it sends its next request when the last one has ended. Every
//! request ends in exactly one [`Record`], failed ones too, and every wait has a deadline, so a run always ends and
//! says how: [`State`]. Intervals are taken on one monotonic clock; the wall clock is read once, for joins.

mod clock;
mod config;
mod connection;
mod event;
mod exchange;
mod output;
mod prompt;
mod record;
mod report;
mod run;
mod slot;
mod sse;
mod summary;

pub use config::{Endpoint, InvalidConfig, LoadConfig};
pub use record::{Failure, Record, Usage};
pub use report::render;
pub use run::run;
pub use sse::{EventTooLarge, Sse, SseEvent};
pub use summary::{Client, Phase, Requests, State, Summary, Validity};
