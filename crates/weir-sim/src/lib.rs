//! A seeded world of weir-proto nodes over lossy lanes.
