//! Claim tokens from the operating system's randomness, fetched many at a time: a system call for each would be a
//! seventh of what a short stream costs. Invariant: no byte is handed out twice, and used bytes are wiped.

use weir_proto::wire::ClaimToken;

use crate::sync::Mutex;

const TOKEN: usize = 16;
/// Bytes fetched at once.
const POOL: usize = 64 * TOKEN;

/// See the module.
pub(crate) struct TokenPool(Mutex<Pool>);

struct Pool {
    bytes: [u8; POOL],
    /// Bytes below this are still to be handed out.
    left: usize,
}

impl std::fmt::Debug for TokenPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenPool(..)")
    }
}

impl Default for TokenPool {
    fn default() -> Self {
        Self(Mutex::new(Pool {
            bytes: [0; POOL],
            left: 0,
        }))
    }
}

impl TokenPool {
    /// A token nobody has.
    pub(crate) fn take(&self) -> Result<ClaimToken, getrandom::Error> {
        let mut pool = self.0.lock();
        if pool.left < TOKEN {
            getrandom::fill(&mut pool.bytes)?;
            pool.left = POOL;
        }
        let end = pool.left;
        pool.left = end - TOKEN;
        let mut token = ClaimToken([0; TOKEN]);
        if let Some(place) = pool.bytes.get_mut(end - TOKEN..end) {
            token.0.copy_from_slice(place);
            place.fill(0);
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_token_comes_twice_over_many_refills() {
        let pool = TokenPool::default();
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let token = pool.take().unwrap().0;
            assert!(token != [0; TOKEN] && seen.insert(token));
        }
    }
}
