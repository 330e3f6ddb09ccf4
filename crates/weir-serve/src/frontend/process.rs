//! What the operating system and the runtime know of this process, for `/metrics`.
//!
//! Invariant: nothing here is kept; every scrape asks anew.

use super::metrics::gauge;

/// Appends the process's gauges.
pub(crate) fn render(out: &mut String) {
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    gauge(out, "weir_runtime_tasks", "Live tokio tasks.", to_u64(tasks));
    for (name, help, dir) in [
        (
            "weir_process_open_fds",
            "Open file descriptors, the one that counts them not included.",
            "/proc/self/fd",
        ),
        ("weir_process_threads", "Threads.", "/proc/self/task"),
    ] {
        // Where there is no /proc the gauge is absent rather than wrong.
        if let Ok(entries) = std::fs::read_dir(dir) {
            let own = usize::from(dir.ends_with("fd"));
            gauge(out, name, help, to_u64(entries.count().saturating_sub(own)));
        }
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
