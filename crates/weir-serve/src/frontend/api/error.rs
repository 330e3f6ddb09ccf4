//! What a client is told when a request fails: status, OpenAI error object, `Retry-After`.
//!
//! The same object is the body of an unary error and the payload of an error event in a stream. Invariant: the
//! rendered body stays under 4 KiB and never echoes more of the request than a short, cut value.

use std::{borrow::Cow, time::Duration};

use hyper::StatusCode;

use super::json;

/// Longest message, in bytes: escaped, each may take six, and the body still stays under 4 KiB.
const MESSAGE_LIMIT: usize = 600;

/// One failure, as the client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<Cow<'static, str>>,
    message: String,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

impl ApiError {
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: Option<&'static str>,
        message: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_LIMIT {
            message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
            message.push_str("...");
        }
        Self {
            status,
            kind,
            code,
            param: None,
            message,
            retry_after: None,
            allow: None,
        }
    }

    fn request(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, message)
    }

    fn server(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(status, "server_error", Some(code), message)
    }

    fn retry_in(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    fn of_param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// 400: a field has a wrong type or value.
    pub(crate) fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::request(StatusCode::BAD_REQUEST, None, message).of_param(param)
    }

    /// 400: the body as a whole is wrong.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::request(StatusCode::BAD_REQUEST, None, message)
    }

    /// 400: the prompt with the tokens asked for does not fit the model's context.
    pub(crate) fn context_length(param: &'static str, message: impl Into<String>) -> Self {
        Self::request(StatusCode::BAD_REQUEST, Some("context_length_exceeded"), message).of_param(param)
    }

    /// 401.
    pub(crate) fn bad_key() -> Self {
        let message = "no valid API key: send one as 'Authorization: Bearer KEY'";
        Self::request(StatusCode::UNAUTHORIZED, Some("invalid_api_key"), message)
    }

    /// 404: no worker has ever served this model here.
    pub(crate) fn no_model(model: &str) -> Self {
        let message = format!(
            "the model '{}' does not exist here; GET /v1/models lists those that do",
            cut(model)
        );
        Self::request(StatusCode::NOT_FOUND, Some("model_not_found"), message).of_param("model")
    }

    /// 404: no such path.
    pub(crate) fn no_route(path: &str) -> Self {
        Self::request(
            StatusCode::NOT_FOUND,
            Some("not_found"),
            format!("no such path: {}", cut(path)),
        )
    }

    /// 405: the path exists for the methods in `allow`.
    pub(crate) fn bad_method(allow: &'static str) -> Self {
        let message = format!("this path answers to {allow} only");
        let mut error = Self::request(
            StatusCode::METHOD_NOT_ALLOWED,
            Some("method_not_allowed"),
            message,
        );
        error.allow = Some(allow);
        error
    }

    /// 408: the request's body did not arrive.
    pub(crate) fn slow_body(limit: Duration) -> Self {
        let message = format!("no byte of the request body came within {limit:?}");
        Self::request(StatusCode::REQUEST_TIMEOUT, Some("timeout"), message)
    }

    /// 413.
    pub(crate) fn too_large(what: &str, limit: usize) -> Self {
        let message = format!("the {what} is over the limit of {limit} bytes");
        Self::request(StatusCode::PAYLOAD_TOO_LARGE, Some("request_too_large"), message)
    }

    /// 415.
    pub(crate) fn bad_content_type() -> Self {
        let message = "send the body as 'Content-Type: application/json'";
        Self::request(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Some("unsupported_media_type"),
            message,
        )
    }

    /// 429: this frontend's limit on concurrent requests is reached.
    pub(crate) fn rate_limited(limit: u64) -> Self {
        let message = format!("{limit} requests are in progress, which is this server's limit");
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            Some("rate_limit_exceeded"),
            message,
        )
        .retry_in(Duration::from_secs(1))
    }

    /// 500; the message names the request so that it can be found in the log.
    pub(crate) fn internal(request_id: &str) -> Self {
        let message = format!(
            "internal error; the server's log has it under request {}",
            cut(request_id)
        );
        Self::server(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// 502: a worker failed with this request.
    pub(crate) fn engine(message: impl Into<String>) -> Self {
        Self::server(StatusCode::BAD_GATEWAY, "engine_error", message)
    }

    /// 502: the worker that ran this request is gone.
    pub(crate) fn worker_lost(message: impl Into<String>) -> Self {
        Self::server(StatusCode::BAD_GATEWAY, "worker_lost", message)
    }

    /// 503: nobody can serve this model now.
    pub(crate) fn no_workers(message: impl Into<String>) -> Self {
        Self::server(StatusCode::SERVICE_UNAVAILABLE, "no_workers", message).retry_in(Duration::from_secs(1))
    }

    /// 503: every worker refused for now.
    pub(crate) fn overloaded(message: impl Into<String>) -> Self {
        Self::server(StatusCode::SERVICE_UNAVAILABLE, "server_overloaded", message)
            .retry_in(Duration::from_secs(1))
    }

    /// 503: this frontend is shutting down.
    pub(crate) fn draining() -> Self {
        let message = "this server is shutting down and takes no new requests";
        Self::server(StatusCode::SERVICE_UNAVAILABLE, "server_overloaded", message)
            .retry_in(Duration::from_secs(1))
    }

    /// 504: nothing came from the worker in time.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::server(StatusCode::GATEWAY_TIMEOUT, "timeout", message)
    }

    /// Seconds for the `Retry-After` header.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs().max(1))
    }

    /// Value of the `Allow` header.
    pub(crate) fn allow(&self) -> Option<&'static str> {
        self.allow
    }

    /// The message alone, for logs.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Appends `{"error":{...}}`.
    pub(crate) fn render(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"error\":{\"message\":");
        json::string(out, &self.message);
        out.extend_from_slice(b",\"type\":");
        json::string(out, self.kind);
        out.extend_from_slice(b",\"param\":");
        json::optional(out, self.param.as_deref());
        out.extend_from_slice(b",\"code\":");
        json::optional(out, self.code);
        out.extend_from_slice(b"}}");
    }
}

/// The first characters of a client's value, short enough to echo.
pub(crate) fn cut(value: &str) -> Cow<'_, str> {
    const ECHO: usize = 64;
    if value.len() <= ECHO {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{}...", &value[..value.floor_char_boundary(ECHO)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(error: &ApiError) -> serde_json::Value {
        let mut out = Vec::new();
        error.render(&mut out);
        assert!(out.len() < 4096, "{} bytes", out.len());
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn an_error_has_all_four_members() {
        let json = body(&ApiError::invalid("top_p", "top_p must be between 0 and 1"));
        let error = &json["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["param"], "top_p");
        assert_eq!(error["message"], "top_p must be between 0 and 1");
        assert!(error["code"].is_null() && error.as_object().unwrap().len() == 4);
    }

    #[test]
    fn no_input_makes_a_body_of_4_kib() {
        for text in [
            "\u{1}".repeat(100_000),
            "\u{2028}".repeat(100_000),
            "\"".repeat(100_000),
            "é".repeat(100_000),
        ] {
            body(&ApiError::no_model(&text));
            body(&ApiError::no_route(&text));
            body(&ApiError::internal(&text));
        }
        body(&ApiError::engine("\u{2028}".repeat(100_000)));
        body(&ApiError::invalid("stop", "\"".repeat(100_000)));
    }

    #[test]
    fn who_may_retry_is_told_when() {
        assert_eq!(ApiError::no_workers("x").retry_after(), Some(1));
        assert_eq!(ApiError::draining().retry_after(), Some(1));
        assert_eq!(ApiError::rate_limited(4).retry_after(), Some(1));
        assert_eq!(ApiError::bad_key().retry_after(), None);
    }
}
