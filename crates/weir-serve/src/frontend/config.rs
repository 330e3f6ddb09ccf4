//! Configuration of a frontend: a plain struct, its defaults and one `validate`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use weir_engine::{PromptEncoder, tokenizer::Tokenizer};

use super::auth::ApiKeys;

/// How a frontend behaves. [`FrontendConfig::validate`] is called by `Frontend::bind`.
#[derive(Debug, Clone)]
pub struct FrontendConfig {
    /// Address to listen on for HTTP. Default `127.0.0.1:8000`.
    pub listen: SocketAddr,
    /// Keys of which a request must carry one; `/health` and `/live` need none. Default `None`: no key is asked for.
    pub api_keys: Option<ApiKeys>,
    /// Allows to listen beyond loopback without keys. Default false.
    pub insecure: bool,
    /// Origins whose pages may call from a browser, or `*` for all. Default: none.
    pub cors_origins: Vec<String>,
    /// From a request's head to its first token; then 504. Default 30 s.
    pub first_token_timeout: Duration,
    /// Between two tokens of a request; then an error event. Default 30 s.
    pub progress_timeout: Duration,
    /// How long a client may leave unread what waits for it, or unsent what it has announced. Default 30 s.
    pub stall_limit: Duration,
    /// How long requests in progress may go on after a shutdown began. Default 30 s.
    pub drain_timeout: Duration,
    /// How long a connection may be idle between requests. Default 120 s; at least 75 s spares clients that pool
    /// connections a reset.
    pub idle_timeout: Duration,
    /// From the first byte of a request's head to its last. Default 10 s.
    pub head_timeout: Duration,
    /// Most connections open at a time; more are answered 503 and closed. Default 16,384.
    pub max_connections: usize,
    /// Most generating requests in progress; more are answered 429. Default `None`: no limit.
    pub max_requests: Option<u64>,
    /// Largest request body in bytes. Default 32 MiB.
    pub max_body: usize,
    /// How many other workers a request may move to before its first token. Default 3.
    pub migration_limit: u32,
    /// Sends the role of a streamed chat at once, before the first token, as some servers do; errors before the
    /// first token are then events instead of statuses. Default false.
    pub early_role: bool,
    /// Turns prompts into token ids; workers with another tokenizer are not used. Default: the tokenizer that ships
    /// with weir, which the mock and the scripted engine speak.
    pub encoder: Arc<dyn PromptEncoder>,
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            api_keys: None,
            insecure: false,
            cors_origins: Vec::new(),
            first_token_timeout: Duration::from_secs(30),
            progress_timeout: Duration::from_secs(30),
            stall_limit: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            head_timeout: Duration::from_secs(10),
            max_connections: 16_384,
            max_requests: None,
            max_body: 32 << 20,
            migration_limit: 3,
            early_role: false,
            encoder: Arc::new(Tokenizer::builtin()),
        }
    }
}

/// A field of [`FrontendConfig`] is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {bound}")]
pub struct FrontendConfigError {
    /// Which field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub bound: &'static str,
}

/// Longest duration that is taken: far beyond use, and far from overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl FrontendConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), FrontendConfigError> {
        let fail = |field, value: String, bound| Err(FrontendConfigError { field, value, bound });
        for (field, value) in [
            ("first_token_timeout", self.first_token_timeout),
            ("progress_timeout", self.progress_timeout),
            ("stall_limit", self.stall_limit),
            ("drain_timeout", self.drain_timeout),
            ("idle_timeout", self.idle_timeout),
            ("head_timeout", self.head_timeout),
        ] {
            if value.is_zero() || value > LONGEST {
                return fail(field, format!("{value:?}"), "it must be over 0 and at most a day");
            }
        }
        for (field, value) in [
            ("max_connections", self.max_connections),
            ("max_body", self.max_body),
        ] {
            if value == 0 {
                return fail(field, value.to_string(), "it must be at least 1");
            }
        }
        if self.max_requests == Some(0) {
            return fail("max_requests", "0".to_owned(), "it must be at least 1");
        }
        if let Some(origin) = self.cors_origins.iter().find(|origin| !is_origin(origin)) {
            let bound = "it must be * or an origin such as https://example.org";
            return fail("cors_origins", origin.clone(), bound);
        }
        if !self.listen.ip().is_loopback() && self.api_keys.is_none() && !self.insecure {
            let bound =
                "beyond loopback it needs --api-key-file, or --insecure to serve everyone without a key";
            return fail("listen", self.listen.to_string(), bound);
        }
        Ok(())
    }
}

fn is_origin(origin: &str) -> bool {
    let host = origin
        .strip_prefix("https://")
        .or_else(|| origin.strip_prefix("http://"));
    let plain = |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    origin == "*" || host.is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(change: impl Fn(&mut FrontendConfig)) -> &'static str {
        let mut config = FrontendConfig::default();
        change(&mut config);
        config.validate().unwrap_err().field
    }

    #[test]
    fn defaults_are_valid_and_bad_fields_are_named() {
        FrontendConfig::default().validate().unwrap();
        assert_eq!(field(|config| config.stall_limit = Duration::ZERO), "stall_limit");
        assert_eq!(
            field(|config| config.drain_timeout = Duration::MAX),
            "drain_timeout"
        );
        assert_eq!(field(|config| config.max_connections = 0), "max_connections");
        assert_eq!(field(|config| config.max_requests = Some(0)), "max_requests");
        assert_eq!(
            field(|config| config.cors_origins = vec!["example.org".to_owned()]),
            "cors_origins"
        );
        assert_eq!(
            field(|config| config.cors_origins = vec!["https://a/b".to_owned()]),
            "cors_origins"
        );
    }

    #[test]
    fn beyond_loopback_keys_are_needed() {
        let open = |config: &mut FrontendConfig| config.listen = SocketAddr::from(([0, 0, 0, 0], 8000));
        assert_eq!(field(open), "listen");
        let mut config = FrontendConfig::default();
        open(&mut config);
        config.insecure = true;
        config.validate().unwrap();
        config.insecure = false;
        config.api_keys = Some(ApiKeys::parse("key").unwrap());
        config.validate().unwrap();
    }
}
