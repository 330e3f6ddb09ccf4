//! One process's endpoint in the plane.
//!
//! Owns the listener, the links, the slot table, the handlers and the deadline queue. Invariant: at most one live link
//! per peer.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, sync::Notify, time::Instant};
use weir_proto::{LaneKey, Time, Violation, wire::Hello};

pub use weir_proto::wire::NodeId;

use crate::{
    Anchor, BindError, ConnectError, Handler, NodeConfig, OpenError, Peer, Sender, Ticket,
    call::Handlers,
    deadline_queue::{self, DeadlineQueue},
    link::Link,
    listen,
    metrics::{NodeCounters, NodeMetrics},
    slot_table::SlotTable,
    sync::Mutex,
    tokens::TokenPool,
};

/// How long `close` waits for peers to take what was sent.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// What the node's tasks and handles share.
#[derive(Debug)]
pub(crate) struct NodeShared {
    pub(crate) id: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) config: NodeConfig,
    pub(crate) addr: SocketAddr,
    pub(crate) slots: SlotTable,
    pub(crate) deadlines: DeadlineQueue,
    pub(crate) handlers: Handlers,
    pub(crate) counters: NodeCounters,
    pub(crate) tokens: TokenPool,
    links: RwLock<HashMap<NodeId, Arc<Link>>>,
    dialing: Mutex<HashMap<SocketAddr, Arc<tokio::sync::Mutex<()>>>>,
    origin: Instant,
    lanes: AtomicU64,
    closing: AtomicBool,
    closed: Notify,
}

impl NodeShared {
    /// Now, on the node's clock.
    pub(crate) fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    /// The runtime's name for a moment of the node's clock.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.origin + time.since_origin()
    }

    pub(crate) fn next_lane(&self) -> LaneKey {
        LaneKey(self.lanes.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Resolves when the node closes.
    pub(crate) async fn closed(&self) {
        loop {
            let notified = self.closed.notified();
            if self.is_closing() {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn hello(&self) -> Hello {
        Hello {
            node: self.id,
            incarnation: self.incarnation,
            max_window_records: self.config.window_records,
            max_window_bytes: self.config.window_bytes,
            listen: self.addr.to_string(),
        }
    }

    pub(crate) fn link(&self, peer: NodeId) -> Option<Arc<Link>> {
        self.links
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&peer)
            .cloned()
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.links
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Makes `link` the link to its peer. Gives back the one that stays if that is another: a live link is replaced
    /// only in a crossing, by the connection that this side dialled, and only if this side has the lower id. Nobody who
    /// dials in can end a live link by giving its peer's id.
    pub(crate) fn adopt(&self, link: &Arc<Link>) -> Result<(), Arc<Link>> {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let peer = link.peer.node;
        let replaced = match links.get(&peer) {
            Some(old) if old.is_gone() => None,
            Some(old) => {
                let wins = link.dialed && !old.dialed && self.id < peer;
                if !wins {
                    return Err(old.clone());
                }
                Some(old.clone())
            }
            None => None,
        };
        links.insert(peer, link.clone());
        drop(links);
        if let Some(old) = replaced {
            old.lose("replaced by a crossing connection");
        }
        Ok(())
    }

    pub(crate) fn forget(&self, link: &Arc<Link>) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if links
            .get(&link.peer.node)
            .is_some_and(|known| Arc::ptr_eq(known, link))
        {
            links.remove(&link.peer.node);
        }
        drop(links);
        self.counters.retire(link);
    }

    pub(crate) fn count_violation(&self, violation: Violation) {
        self.counters.violation(violation.label());
    }

    fn shut(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.closed.notify_waiters();
        self.links().iter().for_each(|link| link.close());
    }
}

/// Closes the node when the last handle goes.
#[derive(Debug)]
struct Guard(Arc<NodeShared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.shut();
    }
}

/// A handle to the node; clones share it. When the last clone is dropped its links say `Bye` and end.
#[derive(Debug, Clone)]
pub struct Node {
    shared: Arc<NodeShared>,
    _guard: Arc<Guard>,
}

impl Node {
    /// Listens and starts the node's tasks on the current tokio runtime.
    ///
    /// # Errors
    /// [`BindError`] names the field or the address.
    #[expect(
        clippy::unused_async,
        reason = "binds inside a runtime, and lookups by name may come"
    )]
    pub async fn bind(config: NodeConfig) -> Result<Self, BindError> {
        config.validate()?;
        let addr = config.listen;
        let io = |source| BindError::Io { addr, source };
        let listener = listen::listener(addr).map_err(io)?;
        let addr = listener.local_addr().map_err(io)?;
        let [id, incarnation] = random().map_err(io)?;
        let [i0, i1, i2, i3, i4, i5, i6, i7, ..] = incarnation;
        let shared = Arc::new(NodeShared {
            id: NodeId(id),
            incarnation: u64::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
            slots: SlotTable::new(config.max_slots),
            config,
            addr,
            deadlines: DeadlineQueue::default(),
            handlers: Handlers::default(),
            counters: NodeCounters::default(),
            tokens: TokenPool::default(),
            links: RwLock::default(),
            dialing: Mutex::default(),
            origin: Instant::now(),
            lanes: AtomicU64::new(1),
            closing: AtomicBool::new(false),
            closed: Notify::new(),
        });
        tokio::spawn(listen::run(shared.clone(), listener));
        tokio::spawn(deadline_queue::run(shared.clone()));
        Ok(Self {
            _guard: Arc::new(Guard(shared.clone())),
            shared,
        })
    }

    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.shared.addr
    }

    /// Dials `addr` and completes the hello. If a link made by dialling `addr`, or one to the node found there, exists
    /// already, returns it. Cancel safe: a dropped future leaves no half-made link.
    ///
    /// # Errors
    /// [`ConnectError`] names the address.
    pub async fn connect(&self, addr: SocketAddr) -> Result<Peer, ConnectError> {
        let turn = self.shared.dialing.lock().entry(addr).or_default().clone();
        let result = {
            let _turn = turn.lock().await;
            let known = self
                .shared
                .links()
                .into_iter()
                .find(|link| link.dialed && link.remote == addr);
            match known {
                Some(link) => Ok(link),
                None => listen::connect(&self.shared, addr).await,
            }
        };
        let mut dialing = self.shared.dialing.lock();
        if Arc::strong_count(&turn) == 2 {
            dialing.remove(&addr);
        }
        drop(dialing);
        result.map(Peer::new)
    }

    /// Peers with a live link now.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.links().into_iter().map(Peer::new).collect()
    }

    /// Makes `handler` answer calls and casts to `name` (at most 255 bytes) on every link, present and future.
    pub fn handle(&self, name: &str, handler: impl Handler) {
        self.shared.handlers.insert(name, handler);
        for link in self.shared.links() {
            link.stage(|outbox| outbox.announce(std::iter::once((true, name))));
        }
    }

    /// A new anchor; it holds no slot until a ticket is minted.
    pub fn anchor(&self) -> Anchor {
        Anchor::new(self.shared.clone())
    }

    /// Opens a stream to the node that minted `ticket`. No round trip: the first item may be sent at once.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was sent.
    pub fn open(&self, ticket: &Ticket) -> Result<Sender, OpenError> {
        Sender::open(&self.shared, ticket)
    }

    /// Resolves once everything staged so far on every link has been handed to the kernel, or its link is gone.
    pub async fn flush(&self) {
        for link in self.shared.links() {
            crate::sender::flush(link).await;
        }
    }

    /// Counters and gauges now.
    pub fn metrics(&self) -> NodeMetrics {
        NodeMetrics::of(&self.shared)
    }

    /// The metrics in Prometheus text form, names `weir_*`.
    pub fn render_metrics(&self, out: &mut String) {
        self.metrics().render(out);
    }

    /// Stops listening, writes what is staged and says `Bye` on every link, and waits up to 1 s until the peers have
    /// taken it. Streams that are still open end as `PeerLost`.
    pub async fn close(&self) {
        let links = self.shared.links();
        self.shared.shut();
        let deadline = Instant::now() + CLOSE_WITHIN;
        for link in links {
            if tokio::time::timeout_at(deadline, link.wait_gone()).await.is_err() {
                let (sent, acked) = (
                    link.sent.load(Ordering::Acquire),
                    link.acked.load(Ordering::Acquire),
                );
                link.lose(&format!(
                    "closed with {} frames unacknowledged",
                    sent - acked.min(sent)
                ));
            }
        }
    }
}

/// 32 random bytes from the operating system.
fn random() -> std::io::Result<[[u8; 16]; 2]> {
    let mut bytes = [[0; 16]; 2];
    for half in &mut bytes {
        getrandom::fill(half).map_err(|error| std::io::Error::other(error.to_string()))?;
    }
    Ok(bytes)
}

/// Socket options every lane has.
pub(crate) fn tune(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!(%error, "TCP_NODELAY cannot be set; small batches may wait 40 ms");
    }
}
