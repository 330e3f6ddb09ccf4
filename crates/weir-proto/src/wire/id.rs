//! Names on the wire: nodes, slots, claim tokens.

use std::fmt;

/// 128 random bits that name a node for the life of its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 128 random bits that prove the right to claim a slot. Never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClaimToken(pub [u8; 16]);

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimToken(..)")
    }
}

/// A stream's place in the consumer's table. The generation tells apart the streams that used the place in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotRef {
    /// Index in the table, under 2^24.
    pub index: u32,
    /// Which use of the place.
    pub generation: u16,
}

impl SlotRef {
    /// Index and generation in one number, unique among slots.
    pub fn key(self) -> u64 {
        u64::from(self.index) << 16 | u64::from(self.generation)
    }
}
