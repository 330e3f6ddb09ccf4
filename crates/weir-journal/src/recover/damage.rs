//! What can be wrong with bytes that had been acknowledged, and where.

use std::fmt;

/// A place in a journal that does not verify though it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment's file name; empty when the file itself is missing.
    pub file: String,
    /// The segment's id; 0 when its header cannot be read.
    pub segment: u64,
    /// Where in the file.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DamageKind,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// A batch does not verify, and a later one proves that it had been acknowledged.
    Batch {
        /// The number of the later batch.
        proof: u64,
    },
    /// A batch does not verify, and one flipped bit explains it: it can be healed.
    OneBit {
        /// The bit, counted from the start of the file, lowest bit of a byte first.
        bit: u64,
    },
    /// Neither copy of a segment's header can be read.
    Header,
    /// A segment's file is shorter than its header says.
    Short {
        /// Bytes that are there.
        have: u64,
        /// Bytes that should be.
        want: u64,
    },
    /// A segment that holds open work is not there.
    Missing,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            segment,
            offset,
            kind,
        } = self;
        match kind {
            DamageKind::Batch { proof } => write!(
                f,
                "segments/{file} (segment {segment}) at offset {offset}: a batch does not verify though batch {proof} proves it was acknowledged"
            ),
            DamageKind::OneBit { bit } => {
                write!(
                    f,
                    "segments/{file} (segment {segment}) at offset {offset}: bit {bit} of the file is flipped"
                )
            }
            DamageKind::Header => write!(f, "segments/{file}: neither copy of its header can be read"),
            DamageKind::Short { have, want } => {
                write!(
                    f,
                    "segments/{file} (segment {segment}) has {have} bytes of {want}"
                )
            }
            DamageKind::Missing => write!(f, "segment {segment}, which holds open work, is missing"),
        }
    }
}
