//! Recovery: from the bytes of the segments to the open records, and to a verdict on where the log ends.
//!
//! Pure. It decides between two ends that look alike: a torn tail, which was never acknowledged and is cut, and
//! rot, which was and stops the open. A batch is proven acknowledged when a later one says so (`durable` in its
//! header), or when flipping one single bit makes it whole.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod damage;
pub(crate) mod flip;
pub(crate) mod order;
pub(crate) mod replay;
pub(crate) mod scan;

pub use damage::{Damage, DamageKind};
