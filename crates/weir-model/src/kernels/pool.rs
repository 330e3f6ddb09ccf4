//! Threads that share the parts of one job at a time, and sleep otherwise.
//!
//! The caller of [`Pool::run`] works too. Parts are taken from a counter, so a thread that is late or preempted costs only
//! the part it holds. A worker that finds nothing looks again for [`SPIN`], then sleeps until it is woken: an idle pool uses
//! no processor time.
//!
//! One word says everything about the job on offer: an epoch, whether it is open, and how many workers are inside.
//! A worker enters by adding itself to an open word; the caller closes the word and waits until nobody is inside. So the
//! borrowed closure is never touched after `run` returns.
#![expect(
    unsafe_code,
    reason = "lends a borrowed closure to threads that outlive the borrow"
)]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread looks for work before it sleeps: the gap between two matrices of a layer, not between tokens.
const SPIN: Duration = Duration::from_micros(40);

const INSIDE: u64 = 0xffff;
const OPEN: u64 = 1 << 16;
const EPOCH: u64 = 1 << 17;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// A fixed set of threads.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One job at a time: callers of the same pool take turns.
    turn: Mutex<()>,
}

struct Shared {
    word: AtomicU64,
    work: UnsafeCell<Option<*const Work<'static>>>,
    next: AtomicUsize,
    parts: AtomicUsize,
    asleep: Vec<AtomicBool>,
    caller: Mutex<Option<Thread>>,
    caller_asleep: AtomicBool,
    panicked: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: `work` is written only while the word is closed and nobody is inside, and read only by threads inside.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `work` is only followed by threads inside, as above.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared")
            .field("workers", &self.asleep.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller of `run` counted as one of them.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        let extra = threads.clamp(1, 256) - 1;
        let shared = Arc::new(Shared {
            word: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
            asleep: (0..extra).map(|_| AtomicBool::new(false)).collect(),
            caller: Mutex::new(None),
            caller_asleep: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self {
            shared,
            workers: Vec::new(),
            turn: Mutex::new(()),
        };
        for index in 0..extra {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("weir-kernel-{index}"));
            pool.workers.push(worker.spawn(move || shared.serve(index))?);
        }
        Ok(pool)
    }

    /// Threads, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once with each number below `parts`, on all threads, and returns when all calls have.
    ///
    /// # Panics
    /// When a call panics.
    pub(crate) fn run(&self, parts: usize, work: &Work<'_>) {
        if self.workers.is_empty() || parts < 2 {
            (0..parts).for_each(work);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let closing = self.shared.open(parts, work);
        self.workers
            .iter()
            .zip(&self.shared.asleep)
            .for_each(|(worker, asleep)| {
                if asleep.swap(false, Ordering::SeqCst) {
                    worker.thread().unpark();
                }
            });
        self.shared.take_parts(work);
        drop(closing);
        assert!(
            !self.shared.panicked.swap(false, Ordering::SeqCst),
            "a part of a parallel job panicked"
        );
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

/// Closes the job when dropped, so that a panicking caller waits for the workers too.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let shared = self.0;
        shared.word.fetch_and(!OPEN, Ordering::SeqCst);
        let begin = Instant::now();
        while shared.word.load(Ordering::SeqCst) & INSIDE != 0 {
            if begin.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            *shared.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
            shared.caller_asleep.store(true, Ordering::SeqCst);
            if shared.word.load(Ordering::SeqCst) & INSIDE != 0 {
                thread::park();
            }
            shared.caller_asleep.store(false, Ordering::SeqCst);
        }
    }
}

impl Shared {
    fn open(&self, parts: usize, work: &Work<'_>) -> Closing<'_> {
        // SAFETY: only the lifetime is changed. The pointer is followed by threads inside the word only, and `Closing`
        // waits for all of them before `run` returns.
        let lent = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        // SAFETY: the word is closed and nobody is inside: the last `Closing` waited for that, and `run` is held by one
        // caller at a time.
        unsafe { *self.work.get() = Some(lent) };
        self.next.store(0, Ordering::Relaxed);
        self.parts.store(parts, Ordering::Relaxed);
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
        Closing(self)
    }

    fn take_parts(&self, work: &Work<'_>) {
        let parts = self.parts.load(Ordering::Relaxed);
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return;
            }
            work(part);
        }
    }

    fn serve(&self, index: usize) {
        let mut last = 0;
        let mut idle_since = Instant::now();
        while !self.stop.load(Ordering::SeqCst) {
            let word = self.word.load(Ordering::SeqCst);
            if word & OPEN != 0 && word / EPOCH != last {
                if self
                    .word
                    .compare_exchange(word, word + 1, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
                {
                    last = word / EPOCH;
                    self.work_inside();
                    idle_since = Instant::now();
                }
                continue;
            }
            if idle_since.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            self.sleep(index, last);
            idle_since = Instant::now();
        }
    }

    /// Works on the job that was entered, then leaves it.
    fn work_inside(&self) {
        // SAFETY: this thread is inside, so the pointer is set and what it points to is alive.
        let work = unsafe { (*self.work.get()).map(|work| &*work) };
        if let Some(work) = work
            && catch_unwind(AssertUnwindSafe(|| self.take_parts(work))).is_err()
        {
            self.panicked.store(true, Ordering::SeqCst);
        }
        self.word.fetch_sub(1, Ordering::SeqCst);
        if self.caller_asleep.load(Ordering::SeqCst)
            && let Some(caller) = &*self.caller.lock().unwrap_or_else(PoisonError::into_inner)
        {
            caller.unpark();
        }
    }

    fn sleep(&self, index: usize, last: u64) {
        let Some(asleep) = self.asleep.get(index) else {
            return;
        };
        asleep.store(true, Ordering::SeqCst);
        let word = self.word.load(Ordering::SeqCst);
        let work = word & OPEN != 0 && word / EPOCH != last;
        if !work && !self.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_exactly_once() {
        let pool = Pool::new(4).unwrap();
        for parts in [0, 1, 2, 3, 17, 1000] {
            let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..200 {
                pool.run(parts, &|part| {
                    counts[part].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 200));
        }
    }

    #[test]
    fn several_callers_take_turns() {
        let pool = Pool::new(3).unwrap();
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(8, &|_| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 3200);
    }

    #[test]
    fn a_panicking_part_panics_the_caller_and_leaves_the_pool_usable() {
        let pool = Pool::new(2).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(64, &|part| assert_ne!(part, 40))));
        assert!(caught.is_err());
        let total = AtomicUsize::new(0);
        pool.run(64, &|_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.load(Ordering::Relaxed), 64);
    }
}
