//! Load generator, plane bench and reports.

pub mod journal;
