//! One request as it went: its stamps, its tokens, and how it failed if it did.

use serde::{Deserialize, Serialize};

/// The server's own count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(default)]
    pub prompt_tokens: u32,
    /// Tokens generated.
    #[serde(default)]
    pub completion_tokens: u32,
}

/// Why a request does not count as completed. A request has at most one: the first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The run was ended from outside.
    Cancelled,
    /// No connection, or it was lost before a response came.
    Connect,
    /// Not ended within the request timeout.
    Timeout,
    /// A status other than 200.
    Status,
    /// An error event inside a 200, or an event that no client can read.
    ErrorEvent,
    /// The stream ended, or its connection was lost, without `[DONE]`.
    NoDone,
    /// A clean stream without any content.
    NoContent,
    /// A clean stream with another number of tokens than asked for.
    WrongTokenCount,
}

impl Failure {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::ErrorEvent => "error_event",
            Self::NoDone => "no_done",
            Self::NoContent => "no_content",
            Self::WrongTokenCount => "wrong_token_count",
        }
    }
}

/// One line of `requests.jsonl`. Stamps are nanoseconds on the run's monotonic clock, `null` where it never came to
/// that; the run's `wall_origin_ns` plus a stamp is UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Number of the request, from 0.
    pub index: u64,
    /// Sent as `x-request-id`.
    pub request_id: String,
    /// The slot that sent it.
    pub slot: usize,
    /// When the slot was free for it.
    pub t_intended: u64,
    /// First byte handed to the kernel.
    pub t_send: Option<u64>,
    /// Response head read.
    pub t_headers: Option<u64>,
    /// First byte of the body.
    pub t_first_byte: Option<u64>,
    /// First event with content.
    pub t_first_content: Option<u64>,
    /// Last event with content.
    pub t_last_content: Option<u64>,
    /// End of the body, or of the attempt.
    pub t_done: u64,
    /// Every event with content.
    pub content: Vec<u64>,
    /// Tokens in each of those, where the server's chunks count them; else empty.
    pub content_tokens: Vec<u32>,
    /// Time spent on a connection of its own, when the slot's had gone.
    pub connect_ns: Option<u64>,
    /// Status of the response.
    pub status: Option<u16>,
    /// Why it ended, in the server's words.
    pub finish_reason: Option<String>,
    /// The server's count.
    pub usage: Option<Usage>,
    /// Tokens generated: the server's count, else the number of events with content.
    pub tokens: u32,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// What was seen when it failed.
    pub detail: Option<String>,
}

impl Record {
    /// From send to the first content, in milliseconds.
    pub fn ttft_ms(&self) -> Option<f64> {
        interval_ms(self.t_send, self.t_first_content)
    }

    /// From the intended time to the first content.
    pub fn ttft_intended_ms(&self) -> Option<f64> {
        interval_ms(Some(self.t_intended), self.t_first_content)
    }

    /// From send to the last content.
    pub fn e2e_ms(&self) -> Option<f64> {
        interval_ms(self.t_send, self.t_last_content)
    }

    /// From the intended time to send: what the client itself adds.
    pub fn client_lag_ms(&self) -> Option<f64> {
        interval_ms(Some(self.t_intended), self.t_send)
    }

    /// Mean time per token after the first chunk; tokens of the first chunk are 1 unless the server says more.
    pub fn itl_ms(&self) -> Option<f64> {
        let in_first = self.content_tokens.first().copied().unwrap_or(1);
        let after_first = self.tokens.checked_sub(in_first).filter(|&tokens| tokens > 0)?;
        Some(interval_ms(self.t_first_content, self.t_last_content)? / f64::from(after_first))
    }

    /// Gaps between neighbouring events with content.
    pub fn gaps_ms(&self) -> impl Iterator<Item = f64> {
        let pairs = self.content.iter().zip(self.content.iter().skip(1));
        pairs.filter_map(|(&from, &to)| interval_ms(Some(from), Some(to)))
    }

    /// Why it failed and what was seen then, in one line.
    pub fn complaint(&self) -> Option<String> {
        let failure = self.failure?;
        let status = self.status.filter(|_| failure == Failure::Status);
        let status = status.map(|status| status.to_string());
        let detail = self.detail.iter().flat_map(|detail| detail.split_whitespace());
        let words: Vec<&str> = std::iter::once(failure.name())
            .chain(status.as_deref())
            .chain(detail)
            .collect();
        Some(words.join(" "))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a run lasts less than 2^52 ns, 52 days"
)]
fn interval_ms(from: Option<u64>, to: Option<u64>) -> Option<f64> {
    Some(to?.saturating_sub(from?) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            t_intended: 1_000_000,
            t_send: Some(2_000_000),
            t_first_content: Some(12_000_000),
            t_last_content: Some(42_000_000),
            content: vec![12_000_000, 22_000_000, 42_000_000],
            tokens: 12,
            ..Record::default()
        }
    }

    #[test]
    fn a_complaint_is_one_line_with_the_status_if_that_is_the_failure() {
        let refused = Record {
            status: Some(404),
            failure: Some(Failure::Status),
            detail: Some("no\nsuch model".to_owned()),
            ..record()
        };
        assert_eq!(refused.complaint().as_deref(), Some("status 404 no such model"));
        let cut = Record {
            status: Some(200),
            failure: Some(Failure::NoDone),
            ..record()
        };
        assert_eq!(cut.complaint().as_deref(), Some("no_done"));
        assert_eq!(record().complaint(), None);
    }

    #[test]
    fn intervals_are_the_defined_ones() {
        let record = record();
        assert_eq!(record.client_lag_ms(), Some(1.0));
        assert_eq!(record.ttft_ms(), Some(10.0));
        assert_eq!(record.ttft_intended_ms(), Some(11.0));
        assert_eq!(record.e2e_ms(), Some(40.0));
        assert_eq!(record.gaps_ms().collect::<Vec<_>>(), [10.0, 20.0]);
    }

    #[test]
    fn itl_leaves_out_the_tokens_of_the_first_chunk() {
        assert_eq!(record().itl_ms(), Some(30.0 / 11.0));
        let counted = Record {
            content_tokens: vec![4, 4, 4],
            ..record()
        };
        assert_eq!(counted.itl_ms(), Some(30.0 / 8.0));
        let one = Record {
            tokens: 1,
            ..record()
        };
        assert_eq!(one.itl_ms(), None);
    }

    #[test]
    fn what_never_came_has_no_interval() {
        let empty = Record::default();
        assert_eq!(
            (
                empty.ttft_ms(),
                empty.e2e_ms(),
                empty.itl_ms(),
                empty.client_lag_ms()
            ),
            (None, None, None, None)
        );
    }

    #[test]
    fn names_are_those_of_the_json() {
        for failure in [
            Failure::Cancelled,
            Failure::ErrorEvent,
            Failure::WrongTokenCount,
            Failure::NoDone,
        ] {
            assert_eq!(serde_json::to_value(failure).unwrap(), failure.name());
        }
    }
}
