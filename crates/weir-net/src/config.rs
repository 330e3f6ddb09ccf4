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
    /// How long grants and closes may wait for a batch to ride with. Default 1 ms.
    pub reply_linger: Duration,
    /// The same for a grant whose sender has more than half its window left. Default 5 ms.
    pub grant_linger: Duration,
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
            grant_linger: Duration::from_millis(5),
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

impl NodeConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is out of bounds, its value and the bound.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = |ok: bool, field, value: String, bound| {
            if ok {
                Ok(())
            } else {
                Err(ConfigError { field, value, bound })
            }
        };
        check(
            self.listen.ip().is_loopback(),
            "listen",
            self.listen.to_string(),
            "links have no security yet: listen on a loopback address",
        )?;
        check(
            (1..=65_536).contains(&self.window_records),
            "window_records",
            self.window_records.to_string(),
            "must be 1 to 65,536",
        )?;
        check(
            (1024..=16 << 20).contains(&self.window_bytes),
            "window_bytes",
            self.window_bytes.to_string(),
            "must be 1 KiB to 16 MiB",
        )?;
        check(
            (1..=crate::slot_set::CAPACITY).contains(&self.max_slots),
            "max_slots",
            self.max_slots.to_string(),
            "must be 1 to 262,144",
        )?;
        let durations = [
            ("peer_timeout", self.peer_timeout, Duration::from_millis(100)),
            (
                "handshake_timeout",
                self.handshake_timeout,
                Duration::from_millis(10),
            ),
            ("ticket_lifetime", self.ticket_lifetime, Duration::from_millis(10)),
        ];
        for (field, value, least) in durations {
            check(value >= least, field, format!("{value:?}"), "is too short")?;
        }
        let lingers = [
            ("reply_linger", self.reply_linger),
            ("grant_linger", self.grant_linger),
        ];
        for (field, value) in lingers {
            let fits = value <= self.peer_timeout / 4;
            check(
                fits,
                field,
                format!("{value:?}"),
                "must be at most a quarter of peer_timeout",
            )?;
        }
        Ok(())
    }
}
