//! Settling, and the thread that commits for who cannot wait: awaited appends and settle marks left over.

use crate::core::{Core, Guard, wake_all};
use crate::state::State;

impl Core {
    /// Settles record `seq`; its mark rides with the next batch. False when it was not open.
    pub(crate) fn settle(&self, seq: u64) -> bool {
        let mut state = self.lock();
        let settled = state.settle(seq);
        if settled && !state.marks_armed && self.threaded() {
            state.marks_armed = true;
            self.flush.notify_one();
        }
        self.call_upkeep(&mut state);
        let woken = self.wake_room(&mut state);
        drop(state);
        wake_all(woken);
        self.upkeep_inline();
        settled
    }

    /// Has the commit thread send the open batch out.
    pub(crate) fn call_commit(&self, state: &State) {
        if !state.leading {
            self.flush.notify_one();
        }
    }

    /// The commit thread.
    pub(crate) fn commit_thread(&self) {
        let mut state = self.lock();
        loop {
            if state.closing {
                return;
            }
            let asked = !state.wakers.is_empty() && !state.open.is_empty() && state.poison.is_none();
            state = if asked && !state.leading {
                self.lead(state)
            } else if state.marks_armed {
                self.watch_marks(state)
            } else {
                self.flush
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            };
        }
    }

    /// Gives settle marks a ride of their own when no batch went out for `settle_flush`.
    fn watch_marks<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        let before = state.written;
        let waited = self.flush.wait_timeout(state, self.options.settle_flush);
        let (mut state, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if !timeout.timed_out() {
            return state;
        }
        if state.marks.is_empty() || state.poison.is_some() {
            state.marks_armed = false;
        } else if state.written == before && !state.leading {
            state.marks_armed = false;
            return self.lead(state);
        }
        state
    }
}
