//! Behaviour of the engine crate through its public API.

mod die;
mod mock;
mod recorder;
mod scripted;
mod vocabulary;
