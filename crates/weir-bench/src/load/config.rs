//! What a load run is told.

use std::{path::PathBuf, str::FromStr, time::Duration};

use hyper::Uri;
use serde::Serialize;

/// A load run. Written to `config.json`, but for the API key.
#[derive(Debug, Clone, Serialize)]
pub struct LoadConfig {
    /// Base URL of the server, `http://HOST:PORT`, with or without `/v1`.
    pub url: String,
    /// Model to ask for.
    pub model: String,
    /// Which API.
    pub endpoint: Endpoint,
    /// Slots, so requests in flight.
    pub concurrency: usize,
    /// Requests in all.
    pub requests: u64,
    /// Prompt length: tokens with [`Endpoint::Completions`], words with [`Endpoint::Chat`].
    pub isl: u32,
    /// Tokens to generate; another count is a failure.
    pub osl: u32,
    /// Seed of the prompts.
    pub seed: u64,
    /// From a request's intended time to its end; a request that takes longer fails as a timeout.
    pub request_timeout: Duration,
    /// Requests that start earlier than this after the phase's start are not steady state.
    pub steady_after: Duration,
    /// Directory for `requests.jsonl`, `summary.json`, `config.json` and `run.log`; created if absent.
    pub out: Option<PathBuf>,
    /// Bearer token.
    #[serde(skip)]
    pub api_key: Option<String>,
}

/// Which API carries the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// `/v1/completions` with an array of token ids, so that a prompt has exactly the tokens asked for.
    Completions,
    /// `/v1/chat/completions` with words; the server's count of tokens is reported.
    Chat,
}

/// A field of [`LoadConfig`] cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidConfig(pub(super) String);

impl std::fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidConfig {}

impl FromStr for Endpoint {
    type Err = InvalidConfig;
    fn from_str(name: &str) -> Result<Self, InvalidConfig> {
        match name {
            "completions" => Ok(Self::Completions),
            "chat" => Ok(Self::Chat),
            _ => Err(InvalidConfig(format!(
                "no endpoint is named {name:?}; there are completions, chat"
            ))),
        }
    }
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// `HOST:PORT`, for the connection and the `Host` header.
    pub(super) authority: String,
    pub(super) path: String,
}

/// One connection and one task each: more than this and the generator is what is measured.
const MAX_CONCURRENCY: u64 = 65_536;
/// A prompt is made and held for each request in flight.
const MAX_TOKENS: u64 = 1 << 20;

impl LoadConfig {
    /// Checks all fields and resolves the URL.
    pub(super) fn target(&self) -> Result<Target, InvalidConfig> {
        let counts = [
            ("--concurrency", self.concurrency as u64, MAX_CONCURRENCY),
            ("--requests", self.requests, u64::MAX),
            ("--isl", u64::from(self.isl), MAX_TOKENS),
            ("--osl", u64::from(self.osl), MAX_TOKENS),
        ];
        for (flag, count, most) in counts {
            if count == 0 {
                return Err(InvalidConfig(format!("{flag} is 0; it must be at least 1")));
            }
            if count > most {
                return Err(InvalidConfig(format!(
                    "{flag} is {count}; it must be at most {most}"
                )));
            }
        }
        if self.request_timeout.is_zero() {
            return Err(InvalidConfig(
                "--request-timeout is 0; it must be longer".to_owned(),
            ));
        }
        self.resolve()
    }

    fn resolve(&self) -> Result<Target, InvalidConfig> {
        let invalid = |why: &str| {
            InvalidConfig(format!(
                "--url {:?} {why}; it is like http://127.0.0.1:8000",
                self.url
            ))
        };
        let uri: Uri = self.url.parse().map_err(|_| invalid("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid("is not plain http, and TLS is not supported"));
        }
        let host = uri.host().ok_or_else(|| invalid("has no host"))?;
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let tail = match self.endpoint {
            Endpoint::Completions => "completions",
            Endpoint::Chat => "chat/completions",
        };
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        Ok(Target {
            authority,
            path: format!("{base}/v1/{tail}"),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn config(url: &str) -> LoadConfig {
        LoadConfig {
            url: url.to_owned(),
            model: "m".to_owned(),
            endpoint: Endpoint::Completions,
            concurrency: 1,
            requests: 1,
            isl: 4,
            osl: 4,
            seed: 1,
            request_timeout: Duration::from_secs(30),
            steady_after: Duration::from_secs(10),
            out: None,
            api_key: None,
        }
    }

    #[test]
    fn a_base_url_with_or_without_v1_leads_to_the_same_path() {
        for url in ["http://h:9", "http://h:9/", "http://h:9/v1", "http://h:9/v1/"] {
            let target = config(url).target().unwrap();
            assert_eq!(
                (target.authority.as_str(), target.path.as_str()),
                ("h:9", "/v1/completions")
            );
        }
        let chat = LoadConfig {
            endpoint: Endpoint::Chat,
            ..config("http://h/x/v1")
        };
        assert_eq!(
            chat.target().unwrap(),
            Target {
                authority: "h:80".into(),
                path: "/x/v1/chat/completions".into()
            }
        );
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let error = |config: LoadConfig| config.target().unwrap_err().to_string();
        assert!(error(config("https://h")).contains("https://h"));
        assert!(error(config("nonsense")).contains("nonsense"));
        assert!(
            error(LoadConfig {
                requests: 0,
                ..config("http://h")
            })
            .contains("--requests")
        );
        assert!(
            error(LoadConfig {
                osl: 0,
                ..config("http://h")
            })
            .contains("--osl")
        );
        let isl = u32::MAX;
        let over = error(LoadConfig {
            isl,
            ..config("http://h")
        });
        assert_eq!(over, "--isl is 4294967295; it must be at most 1048576");
    }

    #[test]
    fn the_api_key_is_not_written() {
        let secret = LoadConfig {
            api_key: Some("sk-1".into()),
            ..config("http://h")
        };
        assert!(!serde_json::to_string(&secret).unwrap().contains("sk-1"));
    }
}
