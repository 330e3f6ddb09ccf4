//! Load generator and plane bench.
//!
//! [`load`] drives an OpenAI-compatible endpoint over HTTP and measures what a client sees. [`plane`] drives response
//! planes without HTTP, frontend and workers as two pinned processes, so that only the plane is measured. [`model`] times
//! the model engine, [`journal`] the hop journal. All write JSON for scripts and a table for people; neither judges its figures.

pub mod journal;
pub mod load;
pub mod model;
pub mod plane;
pub mod process;
pub mod progress;
mod rng;
pub mod stats;
