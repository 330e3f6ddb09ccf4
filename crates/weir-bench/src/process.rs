//! What a process knows about itself: CPU used, memory held, cores it may run on.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::{
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

/// CPU time, user and system, of all threads of this process since it started.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident memory of this process in MiB.
///
/// # Errors
/// `/proc/self/statm` cannot be read.
pub fn rss_mib() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u32 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .context("/proc/self/statm has no resident size")?;
    let page = u32::try_from(rustix::param::page_size()).context("page size")?;
    Ok(f64::from(pages) * f64::from(page) / 1_048_576.0)
}

/// The cores this process may run on.
///
/// # Errors
/// The system call failed.
pub fn allowed_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot read the CPU affinity")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Pins the calling thread, and every thread it starts from now on, to `core`.
///
/// # Errors
/// The core is not one that this process may run on.
pub fn pin_to(core: usize) -> Result<()> {
    let allowed = allowed_cores()?;
    if !allowed.contains(&core) {
        bail!("core {core} is not available (cores {allowed:?} are); choose another or use --no-pin");
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot pin to core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(cpu_time() > before);
    }

    #[test]
    fn an_absent_core_is_named() {
        let error = pin_to(CpuSet::MAX_CPU - 1).unwrap_err().to_string();
        assert!(
            error.contains(&(CpuSet::MAX_CPU - 1).to_string()) && error.contains("--no-pin"),
            "{error}"
        );
    }

    #[test]
    fn this_process_holds_memory() {
        assert!(rss_mib().unwrap() > 0.1);
    }
}
