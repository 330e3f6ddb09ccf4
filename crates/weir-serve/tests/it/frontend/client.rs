//! A raw HTTP/1.1 client: it sends exactly what a test says and shows exactly what came.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Longest a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One connection to a frontend.
pub(crate) struct Client {
    socket: TcpStream,
    unread: Vec<u8>,
}

/// One whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the error object and gives its code.
    pub(crate) fn error_code(&self) -> Value {
        assert!(self.body.len() < 4096);
        assert_eq!(self.header("content-type"), Some("application/json"));
        let error = self.json()["error"].clone();
        assert!(
            error["message"].is_string() && error["type"].is_string(),
            "{error}"
        );
        error["code"].clone()
    }

    /// The payloads of the events of a streamed answer.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = std::str::from_utf8(&self.body).expect("UTF-8");
        let text = text
            .strip_suffix("\n\n")
            .unwrap_or_else(|| panic!("cut event in {text:?}"));
        let payload = |event: &str| {
            event
                .strip_prefix("data: ")
                .unwrap_or_else(|| panic!("{event:?}"))
                .to_owned()
        };
        text.split("\n\n").map(payload).collect()
    }
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self {
            socket: TcpStream::connect(addr).await.expect("a connection"),
            unread: Vec::new(),
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// Sends a request with a JSON body.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) {
        let body = body.to_string();
        self.send(post_head(path, body.len(), "") + &body).await;
    }

    /// Sends a request without a body.
    pub(crate) async fn get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    }

    async fn more(&mut self) -> bool {
        let read = timeout(PATIENCE, self.socket.read_buf(&mut self.unread))
            .await
            .expect("bytes in time");
        read.is_ok_and(|count| count > 0)
    }

    async fn until(&mut self, mark: &str) -> String {
        loop {
            let at = self
                .unread
                .windows(mark.len())
                .position(|window| window == mark.as_bytes());
            if let Some(at) = at {
                let rest = self.unread.split_off(at + mark.len());
                let taken = std::mem::replace(&mut self.unread, rest);
                return String::from_utf8(taken).expect("UTF-8");
            }
            assert!(
                self.more().await,
                "closed before {mark:?}: {:?}",
                String::from_utf8_lossy(&self.unread)
            );
        }
    }

    async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.more().await, "closed within a body");
        }
        let rest = self.unread.split_off(count);
        std::mem::replace(&mut self.unread, rest)
    }

    /// The head of the next answer.
    pub(crate) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// The next piece of a chunked body; empty at its end.
    pub(crate) async fn chunk(&mut self) -> Vec<u8> {
        let size = self.until("\r\n").await;
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk size");
        let mut chunk = self.exactly(size + 2).await;
        chunk.truncate(size);
        chunk
    }

    /// The next answer, whole.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .expect("a status");
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk().await;
                if chunk.is_empty() {
                    return answer;
                }
                answer.body.extend(chunk);
            }
        }
        let length = answer
            .header("content-length")
            .map_or(0, |length| length.parse().expect("a length"));
        answer.body = self.exactly(length).await;
        answer
    }

    /// Waits until the server has closed the connection; what came before.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.unread)
    }
}

/// The head of a request with a JSON body of `length` bytes.
pub(crate) fn post_head(path: &str, length: usize, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n"
    )
}
