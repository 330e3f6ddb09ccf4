//! Names for requests and answers, and seeds for requests that bring none.
//!
//! Invariant: no two answers of any frontend have the same id: 64 random bits of the process and a counter.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::{HeaderMap, header::HeaderValue};

/// Longest request id that is taken from a client.
const LONGEST: usize = 128;

/// Makes ids.
#[derive(Debug)]
pub(crate) struct Ids {
    process: u64,
    next: AtomicU64,
}

impl Ids {
    /// Ids of this process.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self {
            process: u64::from_le_bytes(bytes),
            next: AtomicU64::new(0),
        })
    }

    /// A new id.
    pub(crate) fn next(&self, prefix: &str) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}-{:016x}{number:08x}", self.process)
    }

    /// A seed that no other request has drawn; SplitMix64 of process and counter.
    pub(crate) fn seed(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut mixed = self
            .process
            .wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The client's own id for its request if it is short and plain, a new one otherwise.
    pub(crate) fn of_request(&self, headers: &HeaderMap) -> HeaderValue {
        let plain = |value: &&HeaderValue| {
            let bytes = value.as_bytes();
            !bytes.is_empty() && bytes.len() <= LONGEST && bytes.iter().all(u8::is_ascii_graphic)
        };
        let fresh = || HeaderValue::try_from(self.next("req")).unwrap_or(HeaderValue::from_static("req"));
        headers
            .get(REQUEST_ID)
            .filter(plain)
            .cloned()
            .unwrap_or_else(fresh)
    }
}

/// The header that carries a request's id, both ways.
pub(crate) const REQUEST_ID: &str = "x-request-id";

#[cfg(test)]
mod tests {
    use super::*;

    fn echoed(value: &[u8]) -> bool {
        let value = HeaderValue::from_bytes(value).unwrap();
        let headers = HeaderMap::from_iter([(REQUEST_ID.parse().unwrap(), value.clone())]);
        Ids::new().unwrap().of_request(&headers) == value
    }

    #[test]
    fn a_plain_id_is_echoed_and_others_are_replaced() {
        assert!(echoed(b"abc-123"));
        assert!(echoed(&[b'a'; 128]));
        assert!(!echoed(&[b'a'; 129]));
        assert!(!echoed(b""));
        assert!(!echoed(b"a b"));
        assert!(!echoed(&[0xc3, 0xa9]));
    }

    #[test]
    fn ids_and_seeds_differ_within_and_between_processes() {
        let (one, two) = (Ids::new().unwrap(), Ids::new().unwrap());
        let ids = [one.next("x"), one.next("x"), two.next("x"), two.next("x")];
        let seeds = [one.seed(), one.seed(), two.seed(), two.seed()];
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 4);
        assert_eq!(seeds.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }
}
