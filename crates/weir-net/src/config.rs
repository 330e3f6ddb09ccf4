//! Configuration of a node: a plain struct, its defaults and one `validate`.

use std::{net::SocketAddr, time::Duration};

/// How a node behaves. Every field has a default; [`NodeConfig::validate`] is called by `Node::bind`.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Address to listen on. Default `127.0.0.1:0`. Anything beyond loopback is refused until links have security.
    pub listen: SocketAddr,
    /// Records a stream's sender may run ahead of its consumer. Default 32.
    pub window_records: u32,
    /// Bytes a stream's sender may run ahead of its consumer; also the largest stream item. Default 64 KiB.
    pub window_bytes: u32,
    /// A link that is silent this long is dead. Default 5 s.
    pub peer_timeout: Duration,
    /// How long grants may wait for a batch to ride with. Default 1 ms.
    pub reply_linger: Duration,
    /// From accept or dial to a verified hello. Default 5 s.
    pub handshake_timeout: Duration,
    /// From mint to claim. Default 120 s.
    pub ticket_lifetime: Duration,
    /// Largest number of slots, so of live inbound streams. Default 65,536; at most 262,144.
    pub max_slots: u32,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            window_records: 32,
            window_bytes: 64 * 1024,
            peer_timeout: Duration::from_secs(5),
            reply_linger: Duration::from_millis(1),
            handshake_timeout: Duration::from_secs(5),
            ticket_lifetime: Duration::from_secs(120),
            max_slots: 65_536,
        }
    }
}

/// A field of [`NodeConfig`] is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {bound}")]
pub struct ConfigError {
    /// Which field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub bound: &'static str,
}
