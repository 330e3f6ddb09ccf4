//! Connections in the making: the accept loop, dialling, and what becomes of a finished handshake.
//!
//! Invariant: an unauthenticated connection costs one bounded task and ends at the handshake deadline, counted from
//! accept.

use std::{collections::VecDeque, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::timeout,
};
use weir_proto::wire::{Hello, RefuseCode};

use crate::{
    ConnectError,
    handshake::{self, HandshakeError},
    link::Link,
    node::{NodeShared, tune},
    reader, writer,
};

/// Listen backlog.
const BACKLOG: i32 = 4096;
/// Connections whose handshake is under way; one more ends the oldest.
const HANDSHAKES: usize = 256;
/// How long an accept that fails backs off, doubling.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// A listening socket.
pub(crate) fn listener(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(addr),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts until the node closes.
pub(crate) async fn run(node: Arc<NodeShared>, listener: TcpListener) {
    let mut shaking: VecDeque<AbortHandle> = VecDeque::new();
    let mut backoff = BACKOFF.0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = node.closed() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                backoff = BACKOFF.0;
                shaking.retain(|task| !task.is_finished());
                if shaking.len() >= HANDSHAKES {
                    shaking.pop_front().iter().for_each(AbortHandle::abort);
                }
                shaking.push_back(tokio::spawn(answer(node.clone(), stream, remote)).abort_handle());
            }
            Err(error) => {
                // The back-off also bounds the log: at worst a line per step, then one a second.
                tracing::warn!(%error, ?backoff, "accept failed");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }
}

async fn answer(node: Arc<NodeShared>, mut stream: TcpStream, remote: SocketAddr) {
    tune(&stream);
    let shaken = timeout(node.config.handshake_timeout, async {
        let peer = handshake::accept(&mut stream).await?;
        welcome(&node, stream, remote, peer).await
    });
    match shaken.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            node.counters.handshake_failed();
            tracing::info!(%remote, %error, "no link came of a connection");
        }
        Err(_) => {
            node.counters.handshake_failed();
            tracing::info!(%remote, "no hello in time");
        }
    }
}

async fn welcome(
    node: &Arc<NodeShared>,
    mut stream: TcpStream,
    remote: SocketAddr,
    peer: Hello,
) -> Result<(), HandshakeError> {
    let id = peer.node;
    let refusal = if id == node.id {
        Some((RefuseCode::Itself, "a node does not link to itself"))
    } else if node.is_closing() {
        Some((RefuseCode::Closing, "the node is closing"))
    } else {
        None
    };
    if let Some((code, message)) = refusal {
        handshake::refuse(&mut stream, code, message).await;
        return Err(HandshakeError::Refused(code, message.to_owned()));
    }
    let link = Arc::new(Link::new(node.clone(), peer, remote, false));
    if let Err(known) = node.adopt(&link) {
        let code = if known.dialed {
            RefuseCode::Crossing
        } else {
            RefuseCode::NodeIdInUse
        };
        let message = format!("node {id} has a link to this node already");
        handshake::refuse(&mut stream, code, &message).await;
        return Err(HandshakeError::Refused(code, message));
    }
    if let Err(error) = handshake::welcome(&mut stream, node.hello()).await {
        link.lose("the connection broke during the handshake");
        return Err(error.into());
    }
    start(&link, stream);
    Ok(())
}

/// Dials and shakes hands, or finds the link that exists.
pub(crate) async fn connect(node: &Arc<NodeShared>, addr: SocketAddr) -> Result<Arc<Link>, ConnectError> {
    if !addr.ip().is_loopback() {
        return Err(ConnectError::NotLoopback { addr });
    }
    let after = node.config.handshake_timeout;
    let shaken = timeout(after, async {
        let mut stream = TcpStream::connect(addr).await?;
        tune(&stream);
        let peer = handshake::dial(&mut stream, &node.hello()).await?;
        Ok::<_, HandshakeError>((stream, peer))
    });
    let (stream, peer) = match shaken.await {
        Err(_) => return Err(ConnectError::Timeout { addr, after }),
        Ok(Ok(shaken)) => shaken,
        Ok(Err(HandshakeError::Io(source))) => return Err(ConnectError::Io { addr, source }),
        Ok(Err(error)) => {
            if let Some(known) = refused_for(node, addr, &error) {
                return Ok(known);
            }
            return Err(ConnectError::Refused {
                addr,
                reason: error.to_string(),
            });
        }
    };
    if peer.node == node.id || node.is_closing() {
        let reason = if node.is_closing() {
            "this node is closing"
        } else {
            "that is this node"
        };
        return Err(ConnectError::Refused {
            addr,
            reason: reason.to_owned(),
        });
    }
    let link = Arc::new(Link::new(node.clone(), peer, addr, true));
    if let Err(known) = node.adopt(&link) {
        return Ok(known);
    }
    start(&link, stream);
    Ok(link)
}

/// The link for whose sake a dial was refused: the peer had dialled first.
fn refused_for(node: &NodeShared, addr: SocketAddr, error: &HandshakeError) -> Option<Arc<Link>> {
    let HandshakeError::Refused(RefuseCode::Crossing | RefuseCode::NodeIdInUse, _) = error else {
        return None;
    };
    let mut links = node.links().into_iter();
    links.find(|link| !link.dialed && link.peer.listen.parse() == Ok(addr))
}

/// The handshake is done: reader and writer take over. The handler list is the first numbered message.
fn start(link: &Arc<Link>, stream: TcpStream) {
    tracing::info!(peer = %link.peer.node, remote = %link.remote, dialed = link.dialed, "link is up");
    let names = link.node.handlers.names();
    link.stage(|outbox| outbox.announce(names.iter().map(|name| (true, name.as_str()))));
    let (read, write) = stream.into_split();
    let (reading, writing) = (Task(link.clone()), Task(link.clone()));
    let reader = tokio::spawn(async move { reader::run(reading.0.clone(), read).await });
    let writer = tokio::spawn(async move { writer::run(writing.0.clone(), write).await });
    link.keep_tasks([reader.abort_handle(), writer.abort_handle()]);
}

/// A link whose reader or writer panicked ends, with all its streams, instead of hanging.
struct Task(Arc<Link>);

impl Drop for Task {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose("its task panicked: this is a bug in weir");
        }
    }
}
