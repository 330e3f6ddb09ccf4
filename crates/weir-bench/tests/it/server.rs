//! A raw TCP server that answers each request with the next script, byte for byte.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// What the server does next on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Waits for ever.
    Hang,
    /// Closes with a reset.
    Reset,
    /// Closes cleanly.
    Close,
}

/// One request as the server read it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Value,
}

#[derive(Debug)]
struct Shared {
    scripts: Vec<Vec<Step>>,
    received: Mutex<Vec<Received>>,
    connections: Mutex<usize>,
    arrived: Notify,
}

/// The running server; the last script answers all further requests.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(crate) async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (received, connections, arrived) = Default::default();
        let shared = Arc::new(Shared {
            scripts,
            received,
            connections,
            arrived,
        });
        let server = Self {
            addr,
            shared: Arc::clone(&shared),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                *lock(&shared.connections) += 1;
                tokio::spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *lock(&self.shared.connections)
    }

    /// Resolves when `count` requests have come.
    pub(crate) async fn has_received(&self, count: usize) {
        loop {
            let arrived = self.shared.arrived.notified();
            if lock(&self.shared.received).len() >= count {
                return;
            }
            arrived.await;
        }
    }
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    socket.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut socket, &mut buffer).await {
        let script = {
            let mut received = lock(&shared.received);
            received.push(request);
            shared.scripts[(received.len() - 1).min(shared.scripts.len() - 1)].clone()
        };
        shared.arrived.notify_waiters();
        for step in script {
            match step {
                Step::Write(bytes) => socket.write_all(&bytes).await.unwrap_or(()),
                Step::Hang => std::future::pending().await,
                Step::Reset => {
                    socket.set_zero_linger().unwrap();
                    return;
                }
                Step::Close => return,
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Received> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap().to_lowercase();
            let length = head
                .split_once("content-length: ")?
                .1
                .lines()
                .next()?
                .parse::<usize>()
                .ok()?;
            if buffer.len() >= end + 4 + length {
                let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).unwrap();
                buffer.drain(..end + 4 + length);
                return Some(Received { head, body });
            }
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// The head of a streaming 200.
pub(crate) const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// `text` as one HTTP chunk.
pub(crate) fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// The end of a chunked body.
pub(crate) const END: &[u8] = b"0\r\n\r\n";

/// A streaming 200 with these events, each in its own chunk, and a clean end of the body.
pub(crate) fn stream(events: &[&str]) -> Vec<Step> {
    let mut steps = open_stream(events);
    steps.push(Step::Write(END.to_vec()));
    steps
}

/// The same without the end of the body.
pub(crate) fn open_stream(events: &[&str]) -> Vec<Step> {
    let head = Step::Write(HEAD.as_bytes().to_vec());
    let events = events
        .iter()
        .map(|event| Step::Write(chunk(&format!("data: {event}\n\n"))));
    std::iter::once(head).chain(events).collect()
}

/// Four tokens, usage and `[DONE]`.
pub(crate) const GOOD: [&str; 6] = [
    r#"{"choices":[{"text":"a"}]}"#,
    r#"{"choices":[{"text":"b"}]}"#,
    r#"{"choices":[{"text":"c"}]}"#,
    r#"{"choices":[{"text":"d","finish_reason":"length"}]}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4,"total_tokens":12}}"#,
    "[DONE]",
];
