//! What the tests share: small journals, dice, payloads that name themselves.

use std::path::Path;
use std::sync::Arc;

use weir_journal::fs::FaultyFs;
use weir_journal::{Durability, Journal, Meta, OpenError, Options, Upkeep};

/// The root of journals on the faulty twin.
pub(crate) const ROOT: &str = "/host/root";

/// A twin whose disk holds the folder above [`ROOT`].
pub(crate) fn twin() -> FaultyFs {
    FaultyFs::new(Path::new("/host"))
}

/// A journal of few small segments without threads.
pub(crate) fn small(durability: Durability) -> Options {
    Options {
        durability,
        capacity: 5 * (16 << 10),
        segment_bytes: 16 << 10,
        max_record: 3900,
        batch_bytes: 4096,
        upkeep: Upkeep::Caller,
        ..Options::default()
    }
}

/// Opens `options` on the twin.
pub(crate) fn open(fs: &FaultyFs, options: &Options) -> Result<Journal, OpenError> {
    Journal::open_on(Arc::new(fs.clone()), Path::new(ROOT), options)
}

/// A label.
pub(crate) fn meta(step: u32) -> Meta {
    Meta { request: 0x77, step }
}

/// A payload of `len` bytes that can be told from every other number's.
pub(crate) fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|i| (number as usize * 31 + i) as u8));
    bytes
}

/// The seqs and payloads of all open records.
pub(crate) fn contents(journal: &Journal) -> Vec<(u64, Vec<u8>)> {
    journal
        .recover()
        .map(|record| record.unwrap())
        .map(|r| (r.entry.seq, r.payload))
        .collect()
}

/// Numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    /// True once in `n`.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
