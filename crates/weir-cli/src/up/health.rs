//! Asks the frontend how many workers it routes to.

use std::time::Duration;

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{interval, timeout},
};

/// How often the frontend is asked.
const INTERVAL: Duration = Duration::from_millis(50);
/// Longest time and largest size of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_ANSWER: u64 = 1 << 20;

/// The part of `/health` that is needed here.
#[derive(Debug, Deserialize)]
struct Health {
    workers: u64,
}

/// Waits until the frontend at `url` routes to `count` workers.
pub(super) async fn until_workers(url: &str, count: u64) {
    let addr = url.trim_start_matches("http://");
    let mut tick = interval(INTERVAL);
    loop {
        tick.tick().await;
        // A frontend that does not answer yet is asked again; one that has ended is noticed elsewhere.
        if let Ok(Some(health)) = timeout(PATIENCE, ask(addr)).await
            && health.workers >= count
        {
            return;
        }
    }
}

async fn ask(addr: &str) -> Option<Health> {
    let mut socket = TcpStream::connect(addr).await.ok()?;
    let request = format!("GET /health HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    socket.take(MAX_ANSWER).read_to_string(&mut answer).await.ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}
