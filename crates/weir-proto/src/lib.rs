//! The wire and the link protocol as pure state machines.
