//! API keys.
//!
//! Invariant: comparing takes the same time for every key of the same length, and no key is ever shown.

use std::fmt;

use hyper::{HeaderMap, header::AUTHORIZATION};

/// The keys that open this server. `Debug` shows how many, not which.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeys(Vec<Box<[u8]>>);

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

impl ApiKeys {
    /// The keys in `text`, one a line; empty lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    /// What is wrong with it, without showing it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let key = line.trim();
            if key.is_empty() || key.starts_with('#') {
                continue;
            }
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "line {number} is no key: use printable ASCII without spaces"
                ));
            }
            keys.push(key.as_bytes().into());
        }
        if keys.is_empty() {
            Err("it holds no key; write one a line".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Whether the request carries a key: as a bearer token, or as `x-api-key`.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        let bearer = headers
            .get(AUTHORIZATION)
            .map(|value| value.as_bytes())
            .and_then(bearer);
        let given = bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()));
        given.is_some_and(|given| self.0.iter().fold(false, |found, key| found | same(key, given)))
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// Compares without a branch on the content.
fn same(key: &[u8], given: &[u8]) -> bool {
    let difference = key
        .iter()
        .zip(given)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    key.len() == given.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn admits(name: &'static str, value: &'static str) -> bool {
        let keys = ApiKeys::parse("# ours\nalpha\n\n  beta  \n").unwrap();
        keys.admit(&HeaderMap::from_iter([(
            name.parse().unwrap(),
            HeaderValue::from_static(value),
        )]))
    }

    #[test]
    fn any_of_the_keys_opens() {
        assert!(admits("authorization", "Bearer alpha"));
        assert!(admits("authorization", "bearer beta"));
        assert!(admits("x-api-key", "beta"));
    }

    #[test]
    fn nothing_else_does() {
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "alpha",
            "Basic alpha",
            "Bearer alph",
            "Bearer alphaa",
            "Bearer # ours",
        ] {
            assert!(!admits("authorization", value), "{value}");
        }
        assert!(!ApiKeys::parse("k").unwrap().admit(&HeaderMap::new()));
    }

    #[test]
    fn a_file_without_keys_is_refused_and_keys_are_not_shown() {
        assert!(ApiKeys::parse("\n# nothing\n").is_err());
        assert!(!ApiKeys::parse("one two").unwrap_err().contains("one"));
        assert!(!format!("{:?}", ApiKeys::parse("secret").unwrap()).contains("secret"));
    }
}
