//! The locks, atomics and wakers whose orderings are proven: std's, or loom's under `cfg(weir_loom)`.
//!
//! The mutex ignores poisoning: no lock here is held over code that can leave its data half changed.

use std::sync::PoisonError;

#[cfg(not(weir_loom))]
pub(crate) use std::sync::{
    MutexGuard, OnceLock,
    atomic::{AtomicU8, AtomicU32, AtomicU64},
};

#[cfg(not(weir_loom))]
pub(crate) use atomic_waker::AtomicWaker;
#[cfg(weir_loom)]
pub(crate) use under_loom::{AtomicU8, AtomicU32, AtomicU64, AtomicWaker, MutexGuard, OnceLock};

#[cfg(weir_loom)]
use loom::sync as chosen;
#[cfg(not(weir_loom))]
use std::sync as chosen;

/// Short critical sections only; never held over an await.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(chosen::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(chosen::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(weir_loom)]
mod under_loom {
    use std::{sync::atomic::Ordering, task::Waker};

    pub(crate) use loom::sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64},
    };

    /// loom's, with the signature of the crate `atomic-waker`.
    #[derive(Debug)]
    pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

    impl AtomicWaker {
        pub(crate) fn new() -> Self {
            Self(loom::future::AtomicWaker::new())
        }

        pub(crate) fn register(&self, waker: &Waker) {
            self.0.register_by_ref(waker);
        }

        pub(crate) fn wake(&self) {
            self.0.wake();
        }
    }

    /// A once-lock whose publication loom sees; loom has none of its own.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        ready: AtomicBool,
        filling: loom::sync::Mutex<()>,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self {
                ready: AtomicBool::new(false),
                filling: loom::sync::Mutex::new(()),
                value: std::sync::OnceLock::new(),
            }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.ready
                .load(Ordering::Acquire)
                .then(|| self.value.get())
                .flatten()
        }

        pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            if let Some(value) = self.get() {
                return value;
            }
            let _filling = self.filling.lock();
            let value = self.value.get_or_init(init);
            self.ready.store(true, Ordering::Release);
            value
        }
    }
}
