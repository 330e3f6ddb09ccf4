//! Two linked nodes in one process, and waiting for conditions.

use std::time::Duration;

use weir_net::{Anchor, Node, NodeConfig, Peer, Sender};

/// A consumer's node linked to a producer's.
pub(crate) struct Pair {
    pub(crate) consumer: Node,
    pub(crate) producer: Node,
    /// The producer, as the consumer sees it.
    pub(crate) peer: Peer,
}

impl Pair {
    pub(crate) async fn new() -> Self {
        Self::with(NodeConfig::default()).await
    }

    pub(crate) async fn with(config: NodeConfig) -> Self {
        let consumer = Node::bind(config.clone()).await.unwrap();
        let producer = Node::bind(config).await.unwrap();
        let peer = consumer.connect(producer.addr()).await.unwrap();
        until(|| producer.peers().len() == 1).await;
        Self {
            consumer,
            producer,
            peer,
        }
    }

    /// A stream that is open on both sides.
    pub(crate) fn stream(&self) -> (Anchor, Sender) {
        let mut anchor = self.consumer.anchor();
        let ticket = anchor.mint(&self.peer).unwrap();
        let sender = self.producer.open(&ticket).unwrap();
        (anchor, sender)
    }

    /// All slots and senders are gone again.
    pub(crate) async fn settled(&self) {
        until(|| {
            self.consumer.metrics().live_slots == 0
                && self.producer.metrics().live_senders == 0
                && self.consumer.metrics().calls_in_flight == 0
        })
        .await;
    }
}

/// Waits until `condition` holds, at most 20 s.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("the condition never held");
}

/// Everything the stream delivers before it ends.
pub(crate) async fn drain(anchor: &mut Anchor) -> (Vec<Vec<u8>>, Result<(), weir_net::StreamError>) {
    let mut items = Vec::new();
    loop {
        match anchor.next().await {
            Ok(Some(item)) => items.push(item.to_vec()),
            Ok(None) => return (items, Ok(())),
            Err(error) => return (items, Err(error)),
        }
    }
}
