//! The open HTTP connections and what each is doing.
//!
//! A connection's task looks at one flag per wake to learn that it shall end; nothing is shared between connections on
//! that path. Invariant: a connection is counted from its accept until its task is over, whatever ends it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::Waker,
};

use tokio::{sync::Notify, time::Instant};

/// What a connection is asked to do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// Serve on.
    Open,
    /// End after the request that is being answered, now if there is none.
    Finish,
    /// End now.
    Abort,
}

/// One connection, as its task, its socket and the shutdown see it.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    wish: AtomicU8,
    /// The connection's task, once it has run.
    task: OnceLock<Waker>,
    requests: AtomicU64,
    busy: AtomicBool,
    unread: AtomicBool,
    stalled: AtomicBool,
}

impl Connection {
    /// Notes the task that has to be woken; a task keeps its waker for life.
    pub(crate) fn register(&self, waker: &Waker) {
        self.task.get_or_init(|| waker.clone());
    }

    fn wake(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// What is asked of the connection now.
    pub(crate) fn wish(&self) -> Wish {
        match self.wish.load(Ordering::Acquire) {
            0 => Wish::Open,
            1 => Wish::Finish,
            _ => Wish::Abort,
        }
    }

    fn ask(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Ordering::Release);
        self.wake();
    }

    /// Requests that have begun on this connection.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// A request begins; it ends when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, has_body: bool) -> Exchange {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
        self.unread.store(has_body, Ordering::Relaxed);
        Exchange(Arc::clone(self))
    }

    /// The client may still be sending a body that nobody reads: its socket must not be closed under it.
    pub(crate) fn has_unread_body(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// The client did not read.
    pub(crate) fn note_stall(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }
}

/// One request and its answer, until the answer's last byte is with hyper.
#[derive(Debug)]
pub(crate) struct Exchange(Arc<Connection>);

impl Exchange {
    /// The request's body was read to its end.
    pub(crate) fn body_was_read(&self) {
        self.0.unread.store(false, Ordering::Relaxed);
    }

    /// Whether some of the request's body may still be on its way.
    pub(crate) fn has_unread_body(&self) -> bool {
        self.0.has_unread_body()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
        // hyper has looked at the socket already; its next look begins to count the client's silence.
        self.0.wake();
    }
}

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    accepted: AtomicU64,
    ended: Notify,
}

impl Connections {
    /// Counts a new connection unless `limit` are open.
    pub(crate) fn open(self: &Arc<Self>, limit: usize) -> Option<Open> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= limit {
            return None;
        }
        let key = self.accepted.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::default());
        open.insert(key, Arc::clone(&connection));
        Some(Open {
            connections: Arc::clone(self),
            key,
            connection,
        })
    }

    /// Connections open now.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Connections accepted since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Asks every open connection.
    pub(crate) fn ask_all(&self, wish: Wish) {
        // Woken outside the lock: a task that ends takes it.
        let open: Vec<_> = self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        open.iter().for_each(|connection| connection.ask(wish));
    }

    /// Waits until no connection is left on which a request has ever begun; false if `by` came first.
    pub(crate) async fn served(&self, by: Instant) -> bool {
        self.wait_until(by, |connection| connection.requests() == 0).await
    }

    /// Waits until no connection is left; false if `by` came first.
    pub(crate) async fn all_ended(&self, by: Instant) -> bool {
        self.wait_until(by, |_| false).await
    }

    async fn wait_until(&self, by: Instant, ignored: impl Fn(&Connection) -> bool) -> bool {
        loop {
            let ended = self.ended.notified();
            let left = {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.values().any(|connection| !ignored(connection))
            };
            if !left {
                return true;
            }
            if tokio::time::timeout_at(by, ended).await.is_err() {
                return false;
            }
        }
    }
}

/// One counted connection.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Arc<Connections>,
    key: u64,
    pub(crate) connection: Arc<Connection>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
        self.connections.ended.notify_waiters();
    }
}
