//! The sink that an engine pushes one stream's tokens into, over the plane's sender.

use std::{pin::Pin, sync::Arc, task::Waker};

use weir_engine::{Demand, Emitted, EngineError, FinishReason, TokenEvent, TokenSink, Usage};
use weir_net::{Sender, TrySendError};

use super::endings::Endings;
use crate::envelope::{ENGINE_FAILED, Item};

/// One stream. The plane copies items as it stages them, so one buffer serves all tokens.
pub(super) struct StreamSink {
    sender: Sender,
    item: Vec<u8>,
    endings: Arc<Endings>,
}

impl StreamSink {
    pub(super) fn new(sender: Sender, endings: Arc<Endings>) -> Self {
        Self {
            sender,
            item: Vec::new(),
            endings,
        }
    }
}

impl TokenSink for StreamSink {
    fn emit(&mut self, event: TokenEvent<'_>) -> Emitted {
        self.item.clear();
        Item::Token {
            id: event.id,
            bytes: event.bytes,
        }
        .encode(&mut self.item);
        match self.sender.try_send(&self.item) {
            Ok(()) => Emitted::Taken,
            Err(TrySendError::Full) => Emitted::Full,
            Err(_) => Emitted::Gone,
        }
    }

    fn demand(&self) -> Demand {
        // A cancelled stream is stopped too, so the usual answer takes one look.
        if !self.sender.is_stopped() {
            Demand::More
        } else if self.sender.is_cancelled() {
            Demand::Cancelled
        } else {
            Demand::Stop
        }
    }

    fn wake_on_change(&mut self, waker: &Waker) {
        self.sender.wake_on_change(waker);
    }

    fn flush(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.sender.flush())
    }

    fn finish(mut self: Box<Self>, reason: FinishReason, usage: Usage) {
        self.item.clear();
        Item::Finish { reason, usage }.encode(&mut self.item);
        self.endings.finish(self.sender, self.item);
    }

    fn fail(self: Box<Self>, error: EngineError) {
        self.sender.fail(ENGINE_FAILED, &error.message);
    }
}
