//! The bodies that answers have.
//!
//! Invariant: the exchange ends when the body is dropped, so a connection is busy exactly as long as it has an answer
//! to give.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::Exchange;
use crate::frontend::stream::EventStream;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Body {
    content: Content,
    exchange: Option<Exchange>,
}

#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Events(Box<EventStream>),
}

/// A body that is there already.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Body {
        content: Content::Whole(bytes.into()),
        exchange: None,
    }
}

impl Body {
    /// A body of server-sent events.
    pub(crate) fn events(events: EventStream) -> Self {
        Self {
            content: Content::Events(Box::new(events)),
            exchange: None,
        }
    }

    /// Keeps the exchange until the body is dropped.
    pub(crate) fn of(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut self.get_mut().content {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(std::mem::take(bytes))),
            Content::Events(events) => events.poll_bytes(cx),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Events(events) => events.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Content::Events(_) => SizeHint::default(),
        }
    }
}
