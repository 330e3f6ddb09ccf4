//! The node's metrics: a snapshot of all counters, and its Prometheus text.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use weir_proto::Ending;

use crate::{
    counters::{LinkCounters, add},
    link::Link,
    node::NodeShared,
    sync::Mutex,
};

const ENDINGS: [&str; 8] = [
    "finished",
    "detached",
    "dropped",
    "failed",
    "cancelled",
    "peer_lost",
    "expired",
    "stalled",
];

/// Counted by the node; links add theirs when they end.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    retired: LinkCounters,
    violations: Mutex<BTreeMap<&'static str, u64>>,
    endings: [AtomicU64; ENDINGS.len()],
    handshakes_failed: AtomicU64,
    links_ended: AtomicU64,
}

impl NodeCounters {
    pub(crate) fn retire(&self, link: &Link) {
        link.counters.add_to(&self.retired);
        add(&self.links_ended, 1);
    }

    pub(crate) fn violation(&self, label: &'static str) {
        *self.violations.lock().entry(label).or_default() += 1;
    }

    pub(crate) fn handshake_failed(&self) {
        add(&self.handshakes_failed, 1);
    }

    pub(crate) fn ended(&self, ending: &Ending) {
        let place = match ending {
            Ending::Finished => 0,
            Ending::Detached => 1,
            Ending::Dropped => 2,
            Ending::Failed(..) => 3,
            Ending::Cancelled => 4,
            Ending::PeerLost => 5,
            Ending::Expired => 6,
            Ending::Stalled(_) => 7,
        };
        if let Some(counter) = self.endings.get(place) {
            add(counter, 1);
        }
    }
}

/// A copy of a node's counters and gauges. Counters are totals since the node started, over all links.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// Live links.
    pub links: u64,
    /// Links that ended.
    pub links_ended: u64,
    /// Slots in use: minted and not yet free again.
    pub live_slots: u64,
    /// Producer streams that are not over.
    pub live_senders: u64,
    /// Items waiting for room in a batch.
    pub waiting_items: u64,
    /// Bytes of items waiting for room in a batch.
    pub waiting_bytes: u64,
    /// Calls made here that are not over.
    pub calls_in_flight: u64,
    /// Entries in the deadline queue.
    pub deadlines: u64,
    /// Batch frames taken.
    pub frames_in: u64,
    /// Records taken.
    pub records_in: u64,
    /// Reads that brought bytes.
    pub reads: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Consumers and senders woken by readers.
    pub wakes: u64,
    /// Records dropped because their stream was over or unknown.
    pub stale_in: u64,
    /// Claims by peers that were refused.
    pub claims_refused: u64,
    /// Writes, each one batch.
    pub writes: u64,
    /// Records written.
    pub records_out: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Slots visited because they were dirty.
    pub dirty_visits: u64,
    /// Grants written.
    pub grants_out: u64,
    /// Grants received.
    pub grants_in: u64,
    /// Claims of ours that were refused.
    pub opens_refused: u64,
    /// Handshakes that failed.
    pub handshakes_failed: u64,
    /// Links ended for a violation, by kind.
    pub violations: BTreeMap<&'static str, u64>,
    /// Streams by ending, as their consumers saw them.
    pub endings: BTreeMap<&'static str, u64>,
}

impl NodeMetrics {
    pub(crate) fn of(node: &NodeShared) -> Self {
        let total = LinkCounters::default();
        node.counters.retired.add_to(&total);
        let mut metrics = Self {
            links_ended: node.counters.links_ended.load(Ordering::Relaxed),
            live_slots: u64::from(node.slots.live()),
            deadlines: node.deadlines.len() as u64,
            handshakes_failed: node.counters.handshakes_failed.load(Ordering::Relaxed),
            violations: node.counters.violations.lock().clone(),
            endings: ENDINGS
                .iter()
                .zip(&node.counters.endings)
                .map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
                .collect(),
            ..Self::default()
        };
        for link in node.links() {
            link.counters.add_to(&total);
            metrics.links += 1;
            let outbox = link.outbox.lock();
            metrics.live_senders += outbox.streams() as u64;
            metrics.calls_in_flight += outbox.calls_in_flight() as u64;
            let (items, bytes) = outbox.waiting();
            metrics.waiting_items += items as u64;
            metrics.waiting_bytes += bytes as u64;
        }
        metrics.with_totals(&total)
    }

    fn with_totals(self, total: &LinkCounters) -> Self {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            frames_in: get(&total.frames_in),
            records_in: get(&total.records_in),
            reads: get(&total.reads),
            bytes_in: get(&total.bytes_in),
            wakes: get(&total.wakes),
            stale_in: get(&total.stale_in),
            claims_refused: get(&total.claims_refused),
            writes: get(&total.writes),
            records_out: get(&total.records_out),
            bytes_out: get(&total.bytes_out),
            dirty_visits: get(&total.dirty_visits),
            grants_out: get(&total.grants_out),
            grants_in: get(&total.grants_in),
            opens_refused: get(&total.opens_refused),
            ..self
        }
    }

    fn gauges(&self) -> [(&'static str, &'static str, u64); 7] {
        [
            ("links", "Live links.", self.links),
            (
                "live_slots",
                "Slots minted and not yet free again; returns to zero.",
                self.live_slots,
            ),
            (
                "live_senders",
                "Producer streams that are not over.",
                self.live_senders,
            ),
            (
                "waiting_items",
                "Items waiting for room in a batch.",
                self.waiting_items,
            ),
            (
                "waiting_bytes",
                "Bytes of items waiting for room in a batch.",
                self.waiting_bytes,
            ),
            (
                "calls_in_flight",
                "Calls made here that are not over.",
                self.calls_in_flight,
            ),
            (
                "deadline_entries",
                "Entries in the deadline queue.",
                self.deadlines,
            ),
        ]
    }

    fn counters(&self) -> [(&'static str, &'static str, u64); 16] {
        [
            ("links_ended_total", "Links that ended.", self.links_ended),
            ("frames_in_total", "Batch frames taken.", self.frames_in),
            ("records_in_total", "Records taken.", self.records_in),
            ("reads_total", "Reads that brought bytes.", self.reads),
            ("in_bytes_total", "Bytes read.", self.bytes_in),
            (
                "wakes_total",
                "Consumers and senders woken by readers.",
                self.wakes,
            ),
            (
                "records_stale_total",
                "Records dropped: stream over or unknown.",
                self.stale_in,
            ),
            (
                "claims_refused_total",
                "Claims by peers that were refused.",
                self.claims_refused,
            ),
            ("writes_total", "Writes, each one batch.", self.writes),
            ("records_out_total", "Records written.", self.records_out),
            ("out_bytes_total", "Bytes written.", self.bytes_out),
            (
                "dirty_visits_total",
                "Slots visited because they were dirty.",
                self.dirty_visits,
            ),
            ("grants_sent_total", "Grants written.", self.grants_out),
            ("grants_received_total", "Grants received.", self.grants_in),
            (
                "opens_refused_total",
                "Claims of ours that were refused.",
                self.opens_refused,
            ),
            (
                "handshakes_failed_total",
                "Handshakes that failed.",
                self.handshakes_failed,
            ),
        ]
    }

    /// Appends the metrics in Prometheus text form, names `weir_*`.
    pub fn render(&self, out: &mut String) {
        for (kind, values) in [("gauge", &self.gauges()[..]), ("counter", &self.counters()[..])] {
            for (name, help, value) in values {
                line(
                    out,
                    format_args!(
                        "# HELP weir_{name} {help}\n# TYPE weir_{name} {kind}\nweir_{name} {value}\n"
                    ),
                );
            }
        }
        labelled(
            out,
            "violations_total",
            "Links ended for a violation.",
            "kind",
            &self.violations,
        );
        labelled(
            out,
            "streams_ended_total",
            "Streams by ending.",
            "ending",
            &self.endings,
        );
    }
}

fn labelled(out: &mut String, name: &str, help: &str, label: &str, values: &BTreeMap<&'static str, u64>) {
    line(
        out,
        format_args!("# HELP weir_{name} {help}\n# TYPE weir_{name} counter\n"),
    );
    for (value, count) in values {
        line(out, format_args!("weir_{name}{{{label}=\"{value}\"}} {count}\n"));
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}
