//! Memory that holds weights: the mapped file, and anonymous regions backed by huge pages.
//!
//! This is the one place that maps files. A mapped model must not be truncated while it is open; weights are copied
//! into regions at load, so after that only embedding rows are read through the mapping.

use std::fs::File;

use memmap2::{Advice, Mmap, MmapMut, UncheckedAdvice};

/// A read-only file mapping, or bytes that stand in for one.
#[derive(Debug)]
pub(crate) enum MappedFile {
    Map(Mmap),
    Owned(Vec<u8>),
}

impl MappedFile {
    #[expect(unsafe_code, reason = "mapping a file cannot be expressed safely")]
    pub(crate) fn map(file: &File) -> std::io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::Owned(Vec::new()));
        }
        // SAFETY: the mapping is private and read-only, and every reader bounds-checks against its length. A writer
        // that changes the file changes numbers, not memory safety of typed data: the bytes are only ever read as
        // plain integers. Truncation by another process ends this process with SIGBUS, as documented.
        Ok(Self::Map(unsafe { Mmap::map(file)? }))
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }

    pub(crate) fn release_pages(&self) {
        self.release_range(0, self.bytes().len());
    }

    #[expect(
        unsafe_code,
        reason = "dropping resident pages of a mapping cannot be expressed safely"
    )]
    pub(crate) fn release_range(&self, begin: usize, len: usize) {
        if let Self::Map(map) = self
            && begin.checked_add(len).is_some_and(|end| end <= map.len())
        {
            // The pages at both ends may be shared with a neighbour; dropping them costs a page fault at most.
            let begin = begin & !4095;
            let len = len + 4095;
            let len = len.min(map.len() - begin);
            // SAFETY: the mapping is read-only and backed by the file, so a dropped page comes back with the same
            // bytes. Advice that the kernel refuses changes nothing.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, begin, len) };
        }
    }
}

/// Zeroed memory for weights, on huge pages where the kernel grants them.
#[derive(Debug)]
pub(crate) struct Region {
    map: Option<MmapMut>,
}

impl Region {
    pub(crate) fn zeroed(bytes: usize) -> std::io::Result<Self> {
        if bytes == 0 {
            return Ok(Self { map: None });
        }
        let map = MmapMut::map_anon(bytes)?;
        let _ = map.advise(Advice::HugePage);
        Ok(Self { map: Some(map) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

/// Bytes that can be reserved without pushing anything out: what the system reports, within the limit of its group.
pub(crate) fn free_bytes() -> usize {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let number = |text: String| text.trim().parse::<usize>().ok();
    let available = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? << 10)
    });
    let group = read("/sys/fs/cgroup/memory.max")
        .and_then(number)
        .zip(read("/sys/fs/cgroup/memory.current").and_then(number))
        .map(|(most, used)| most.saturating_sub(used));
    available.unwrap_or(usize::MAX).min(group.unwrap_or(usize::MAX))
}
