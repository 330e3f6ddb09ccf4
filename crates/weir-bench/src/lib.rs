//! Load generator, plane bench and reports.
