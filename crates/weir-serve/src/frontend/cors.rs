//! Answers to browsers that ask whether a page may call.
//!
//! Invariant: without configured origins no header is ever sent, so browsers keep foreign pages out.

use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue,
        ORIGIN, VARY,
    },
};

use super::http::{Body, whole};

/// The value for `access-control-allow-origin`, if the request's origin is one of `origins`.
pub(crate) fn allowed(headers: &HeaderMap, origins: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let known = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
    origins.iter().any(known).then(|| origin.clone())
}

/// Whether the request only asks what is allowed.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a request that only asks. It needs no key: browsers send none with it.
pub(crate) fn preflight() -> Response<Body> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST"),
    );
    let names = "authorization, content-type, x-api-key, x-request-id";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Marks a response as readable by the page of that origin.
pub(crate) fn mark(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("x-request-id"),
    );
    headers.insert(VARY, HeaderValue::from_static("origin"));
}
