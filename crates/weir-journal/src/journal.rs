//! The handle, and what all handles of a root in one process share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use crate::append::Append;
use crate::core::Core;
use crate::error::{AppendError, OpenError, Poison, ReadError};
use crate::fs::{Fs, Hold, RealFs};
use crate::open::{Opened, Report, open};
use crate::options::Options;
use crate::read::Recovered;
use crate::record::{Meta, OpenRecord, Record};
use crate::stats::Stats;

/// A durable journal of work that is open: append a record before acting on it, settle it once the act is done,
/// find after a crash exactly what was not settled.
///
/// Handles are cheap to clone and may be used from any thread. A second [`open`](Self::open) of the same root in
/// one process gives another handle of the same journal; another process is refused. The last handle to be
/// dropped closes the journal.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    report: Report,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _hold: Box<dyn Hold>,
}

type Registry = BTreeMap<(u64, u64), Weak<Shared>>;

/// The journals that this process has open, by the identity of their root.
static OPEN: Mutex<Registry> = Mutex::new(Registry::new());

impl Journal {
    /// Opens the journal in the folder `root`, or makes it.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was acknowledged, and bytes that do not verify are left as they are.
    pub fn open(root: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(RealFs), root, options)
    }

    /// [`open`](Self::open) on another file system.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(fs: Arc<dyn Fs>, root: &Path, options: &Options) -> Result<Self, OpenError> {
        let mut registry = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        registry.retain(|_, shared| shared.strong_count() > 0);
        // A root that is not there yet has no identity, and nobody has it open.
        let known = fs.identity(root).ok().flatten();
        if let Some(shared) = known.and_then(|id| registry.get(&id)).and_then(Weak::upgrade) {
            if shared.core.options != *options {
                return Err(OpenError::OptionsDiffer {
                    root: root.to_owned(),
                });
            }
            return Ok(Self { shared });
        }
        let Opened { core, report, hold } = open(&fs, root, options)?;
        let shared =
            Arc::new(Shared::start(core, report, hold).map_err(OpenError::io("starting threads for", root))?);
        if let Some(id) = fs.identity(root).ok().flatten() {
            registry.insert(id, Arc::downgrade(&shared));
        }
        Ok(Self { shared })
    }

    /// What opening found.
    pub fn report(&self) -> &Report {
        &self.shared.report
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.shared.core.options
    }

    /// Appends a record; ready with its seq once it is as durable as [`Options::durability`] promises.
    ///
    /// Cancel safe: dropped before it is ready, the record is taken back and is not left open.
    pub fn append<'a>(&self, meta: Meta, payload: &'a [u8]) -> Append<'a> {
        Append::new(Arc::clone(&self.shared.core), meta, payload)
    }

    /// [`append`](Self::append) for a thread that may wait.
    ///
    /// # Errors
    /// With [`AppendError::Poisoned`] the record may or may not be on the disk and must not be acted on; with any
    /// other error nothing was written.
    pub fn append_blocking(&self, meta: Meta, payload: &[u8]) -> Result<u64, AppendError> {
        self.shared.core.append_blocking(meta, payload)
    }

    /// Settles record `seq`: it will not be listed again. Costs no write of its own: its mark goes out with the
    /// next batch or after [`Options::settle_flush`]. A crash before that lists the record once more, so receivers
    /// drop repeats by (journal id, seq). False when the record was not open.
    pub fn settle(&self, seq: u64) -> bool {
        self.shared.core.settle(seq)
    }

    /// Makes everything durable that was appended or settled before the call, whatever the durability.
    ///
    /// # Errors
    /// When the journal has stopped.
    pub fn sync(&self) -> Result<(), Poison> {
        self.shared.core.sync_all()
    }

    /// The open records in order of seq, without their payloads. Reads nothing.
    pub fn open_records(&self) -> Vec<OpenRecord> {
        self.shared.core.open_records()
    }

    /// The records open now, in order of seq, each read as it is asked for. Records settled meanwhile are skipped.
    pub fn recover(&self) -> Recovered {
        let seqs: Vec<u64> = self.shared.core.lock().index.keys().copied().collect();
        Recovered {
            core: Arc::clone(&self.shared.core),
            seqs: seqs.into_iter(),
        }
    }

    /// Reads one open record.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, seq: u64) -> Result<Record, ReadError> {
        self.shared.core.read(seq)
    }

    /// The journal's counters. Costs no system call.
    pub fn stats(&self) -> Stats {
        self.shared.core.stats()
    }

    /// Why the journal has stopped, if it has.
    pub fn poisoned(&self) -> Option<Poison> {
        self.shared.core.lock().poison.clone()
    }
}

impl Shared {
    fn start(core: Core, report: Report, hold: Box<dyn Hold>) -> std::io::Result<Self> {
        let core = Arc::new(core);
        let mut threads = Vec::new();
        if core.threaded() {
            let (upkeep, commit) = (Arc::clone(&core), Arc::clone(&core));
            let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
            threads.push(named("journal-upkeep").spawn(move || upkeep.upkeep_thread())?);
            threads.push(named("journal-commit").spawn(move || commit.commit_thread())?);
        } else {
            core.upkeep_inline();
        }
        Ok(Self {
            core,
            report,
            threads: Mutex::new(threads),
            _hold: hold,
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.lock().closing = true;
        self.core.work.notify_all();
        self.core.flush.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has stopped the journal; there is nobody left to tell.
            let _ = thread.join();
        }
        self.core.close();
    }
}
