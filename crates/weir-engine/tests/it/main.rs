//! Behaviour of the engine crate through its public API.

mod vocabulary;
