//! One HTTP request to its route, and what every answer has in common.
//!
//! Order: cross-origin question, key, route, drain. Invariant: every request gets exactly one answer with a request
//! id, and whatever goes wrong is the JSON error object.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};

use super::{
    App,
    api::{ApiError, Endpoint},
    cors,
    generate::generate,
    http::{Body, Exchange, read_body},
    ids::REQUEST_ID,
    metrics::Route,
    observe::Observed,
    pages,
};

/// Answers one request.
pub(crate) async fn answer(app: Arc<App>, request: Request<Incoming>, exchange: Exchange) -> Response<Body> {
    let id = app.ids.of_request(request.headers());
    let origin = cors::allowed(request.headers(), &app.config.cors_origins);
    let mut response = if origin.is_some() && cors::is_preflight(&request) {
        cors::preflight()
    } else {
        let answered = AssertUnwindSafe(routed(&app, request, &exchange))
            .catch_unwind()
            .await;
        let id = id.to_str().unwrap_or_default();
        match answered {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => refusal(&error, id),
            Err(_) => refusal(&ApiError::internal(id), id),
        }
    };
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(origin) = origin {
        cors::mark(headers, origin);
    }
    // A body that was not read would have to be before the next request; a server that drains takes no next one.
    if exchange.has_unread_body() || app.is_draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.map(|body| body.of(exchange))
}

fn refusal(error: &ApiError, id: &str) -> Response<Body> {
    let (status, message) = (error.status.as_u16(), error.message());
    if status >= 500 {
        tracing::warn!(request = id, status, message, "request failed");
    } else {
        tracing::debug!(request = id, status, message, "request refused");
    }
    let mut body = Vec::with_capacity(256);
    error.render(&mut body);
    let mut response = pages::json_response(error.status, body);
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(methods) = error.allow() {
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    if error.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The route of a path, and the methods it answers to.
fn route(path: &str) -> (Route, &'static str) {
    const READ: &str = "GET, HEAD";
    match path {
        "/v1/chat/completions" => (Route::Chat, "POST"),
        "/v1/completions" => (Route::Completions, "POST"),
        "/v1/models" => (Route::Models, READ),
        "/health" => (Route::Health, READ),
        "/live" => (Route::Live, READ),
        "/metrics" => (Route::Metrics, READ),
        _ if path.starts_with("/v1/models/") => (Route::Models, READ),
        _ => (Route::Other, READ),
    }
}

async fn routed(
    app: &Arc<App>,
    request: Request<Incoming>,
    exchange: &Exchange,
) -> Result<Response<Body>, ApiError> {
    let (route, allow) = route(request.uri().path());
    let mut observed = Observed::begin(&app.metrics, route);
    let admitted = admit(app, &request, route, allow);
    admitted.inspect_err(|error| observed.finish(error.status))?;
    let endpoint = match route {
        Route::Chat => Endpoint::Chat,
        Route::Completions => Endpoint::Completions,
        _ => {
            let page = page(app, route, request.uri().path()).await;
            observed.finish(page.as_ref().map_or_else(|error| error.status, Response::status));
            return page;
        }
    };
    let body = read_body(request, app.config.max_body, app.config.stall_limit, exchange).await;
    let body = body.inspect_err(|error| observed.finish(error.status))?;
    generate(app, endpoint, body, observed).await
}

/// Whether the request may be answered at all.
fn admit(app: &App, request: &Request<Incoming>, route: Route, allow: &'static str) -> Result<(), ApiError> {
    let open = matches!(route, Route::Health | Route::Live);
    if !open
        && app
            .config
            .api_keys
            .as_ref()
            .is_some_and(|keys| !keys.admit(request.headers()))
    {
        return Err(ApiError::bad_key());
    }
    if route == Route::Other {
        return Err(ApiError::no_route(request.uri().path()));
    }
    let matches = match *request.method() {
        Method::POST => route.generates(),
        Method::GET | Method::HEAD => !route.generates(),
        _ => false,
    };
    if !matches {
        return Err(ApiError::bad_method(allow));
    }
    if route.generates() {
        if app.is_draining() {
            return Err(ApiError::draining());
        }
        check_content(request.headers())?;
    }
    Ok(())
}

/// A body must be JSON as it is. A request without a type is taken at its word.
fn check_content(headers: &HeaderMap) -> Result<(), ApiError> {
    let plain = headers
        .get(CONTENT_ENCODING)
        .is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let json = headers.get(CONTENT_TYPE).is_none_or(|value| {
        let essence = value
            .as_bytes()
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        essence.eq_ignore_ascii_case(b"application/json")
            || (essence.len() > 5 && essence[essence.len() - 5..].eq_ignore_ascii_case(b"+json"))
    });
    if plain && json {
        Ok(())
    } else {
        Err(ApiError::bad_content_type())
    }
}

async fn page(app: &App, route: Route, path: &str) -> Result<Response<Body>, ApiError> {
    match route {
        Route::Health => Ok(pages::health(app)),
        Route::Live => Ok(pages::live()),
        Route::Metrics => Ok(pages::metrics(app).await),
        _ => match path.strip_prefix("/v1/models/") {
            Some(name) => pages::model(app, &decoded(name)),
            None => Ok(pages::models(app)),
        },
    }
}

/// A path's text without its percent signs; what is no proper escape stays as it is.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let escape = after.split_at_checked(2).filter(|_| *byte == b'%');
        let value = escape.and_then(|(hex, _)| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (value, escape) {
            (Some(value), Some((_, after))) => {
                bytes.push(value);
                rest = after;
            }
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_is_decoded() {
        assert_eq!(decoded("org%2Fmodel"), "org/model");
        assert_eq!(decoded("a%zz%2"), "a%zz%2");
        assert_eq!(decoded("%c3%a9"), "é");
    }

    #[test]
    fn json_is_taken_in_its_spellings_and_nothing_else() {
        let taken = |kind: &'static str| {
            check_content(&HeaderMap::from_iter([(
                CONTENT_TYPE,
                HeaderValue::from_static(kind),
            )]))
            .is_ok()
        };
        assert!(check_content(&HeaderMap::new()).is_ok());
        assert!(
            taken("application/json")
                && taken("Application/JSON; charset=utf-8")
                && taken("application/x+json")
        );
        assert!(
            !taken("application/x-www-form-urlencoded")
                && !taken("text/plain")
                && !taken("")
                && !taken("json")
        );
    }
}
