//! Reading a request's body, with its limits.
//!
//! Invariant: no more than the limit is kept, and a body that is refused is not read on; the connection then lingers
//! so that the client gets its answer before the socket closes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    Request,
    body::{Body, Incoming},
};

use super::Exchange;
use crate::frontend::api::ApiError;

/// The whole body, at most `limit` bytes, each part of it within `patience`.
pub(crate) async fn read_body(
    request: Request<Incoming>,
    limit: usize,
    patience: Duration,
    exchange: &Exchange,
) -> Result<Bytes, ApiError> {
    let mut body = request.into_body();
    let announced = body
        .size_hint()
        .exact()
        .and_then(|size| usize::try_from(size).ok());
    if announced.is_some_and(|size| size > limit) {
        return Err(ApiError::too_large("request body", limit));
    }
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = tokio::time::timeout(patience, body.frame())
        .await
        .map_err(|_| ApiError::slow_body(patience))?
    {
        let frame =
            frame.map_err(|error| ApiError::malformed(format!("the request body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len().max(rest.len()).saturating_add(data.len()) > limit {
            return Err(ApiError::too_large("request body", limit));
        }
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    exchange.body_was_read();
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
