//! The shapes of work: how many streams, over how many nodes, at which pace.

use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// One shape. Every record has [`Shape::RECORD_BYTES`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Its name in rows.
    pub name: String,
    /// Streams, all started at once.
    pub streams: u32,
    /// Nodes in the worker process; stream `i` comes from node `i % nodes`.
    pub nodes: u32,
    /// Records a stream.
    pub records: u32,
    /// Sleep after each record, in the stream's own task.
    pub pause: Duration,
}

impl Shape {
    /// Payload of a record in bytes.
    pub const RECORD_BYTES: usize = 160;
    /// Records a sender may run ahead of its consumer, in every arm.
    pub const WINDOW: u32 = 32;
    /// Names of the shapes that [`FromStr`] knows.
    pub const NAMES: [&'static str; 4] = ["paced-512", "paced-1024", "flat-2048", "single"];

    /// Records of all streams.
    pub fn total_records(&self) -> u64 {
        u64::from(self.streams) * u64::from(self.records)
    }
}

/// No shape has that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownShape(String);

impl std::fmt::Display for UnknownShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no shape is named {:?}; there are {}",
            self.0,
            Shape::NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownShape {}

impl FromStr for Shape {
    type Err = UnknownShape;
    fn from_str(name: &str) -> Result<Self, UnknownShape> {
        let (streams, nodes, records, pause_ms) = match name {
            "paced-512" => (512, 4, 200, 10),
            "paced-1024" => (1_024, 8, 200, 10),
            "flat-2048" => (2_048, 12, 918, 0),
            "single" => (1, 1, 1_000, 1),
            _ => return Err(UnknownShape(name.to_owned())),
        };
        let pause = Duration::from_millis(pause_ms);
        Ok(Self {
            name: name.to_owned(),
            streams,
            nodes,
            records,
            pause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_a_shape_of_that_name() {
        for name in Shape::NAMES {
            assert_eq!(name.parse::<Shape>().unwrap().name, name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "paced-9".parse::<Shape>().unwrap_err().to_string();
        assert!(
            error.contains("paced-9") && error.contains("flat-2048"),
            "{error}"
        );
    }
}
