//! The one object behind all handles of a root: the state, its lock, and who waits for what.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::error::Poison;
use crate::fs::Step;
use crate::options::{Options, Upkeep};
use crate::slots::Slots;
use crate::state::State;

/// The lock's guard.
pub(crate) type Guard<'a> = MutexGuard<'a, State>;

/// Behind all handles of one root.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) slots: Slots,
    pub(crate) options: Options,
    pub(crate) journal: u128,
    state: Mutex<State>,
    /// Waits for the batches of either parity: only those whose batch is done, and one of the next, are woken.
    turn: [Condvar; 2],
    /// Waits for room.
    room: Condvar,
    /// The upkeep thread waits here.
    pub(crate) work: Condvar,
    /// The commit thread waits here.
    pub(crate) flush: Condvar,
}

impl Core {
    pub(crate) fn new(slots: Slots, options: Options, state: State) -> Self {
        Self {
            slots,
            options,
            journal: state.journal,
            state: Mutex::new(state),
            turn: [Condvar::new(), Condvar::new()],
            room: Condvar::new(),
            work: Condvar::new(),
            flush: Condvar::new(),
        }
    }

    /// The lock. A panic under it leaves counters that are still consistent: they change together, at the end.
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn threaded(&self) -> bool {
        self.options.upkeep == Upkeep::Threads
    }

    /// Waits until a batch of `number`'s parity is done or it is someone's turn to lead.
    pub(crate) fn wait_turn<'a>(&self, mut state: Guard<'a>, number: u64) -> Guard<'a> {
        let [even, odd] = &self.turn;
        let turn = if number.is_multiple_of(2) { even } else { odd };
        let parity = usize::from(!number.is_multiple_of(2));
        count(&mut state.waiting, parity, 1);
        let mut state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        count(&mut state.waiting, parity, -1);
        state
    }

    /// Waits until something about room has changed.
    pub(crate) fn wait_room<'a>(&self, mut state: Guard<'a>) -> Guard<'a> {
        state.waiting_room += 1;
        let mut state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting_room -= 1;
        state
    }

    /// Wakes who waited for batch `number`, and one who can lead the next. The wakers are for the caller to wake
    /// once it has let go of the lock.
    #[must_use]
    pub(crate) fn wake(&self, state: &mut State, number: u64) -> Vec<Waker> {
        let [even, odd] = &self.turn;
        let [at_even, at_odd] = state.waiting;
        let (done, next) = if number.is_multiple_of(2) {
            ((even, at_even), (odd, at_odd))
        } else {
            ((odd, at_odd), (even, at_even))
        };
        if done.1 > 0 {
            done.0.notify_all();
        }
        if next.1 > 0 {
            next.0.notify_one();
        }
        let mut woken = self.wake_room(state);
        let mut kept = Vec::new();
        for (batch, waker) in state.wakers.drain(..) {
            if batch <= number {
                woken.push(waker);
            } else {
                kept.push((batch, waker));
            }
        }
        state.wakers = kept;
        if !state.wakers.is_empty() && next.1 == 0 {
            self.flush.notify_one();
        }
        woken
    }

    /// Wakes who waited for room.
    #[must_use]
    pub(crate) fn wake_room(&self, state: &mut State) -> Vec<Waker> {
        if state.waiting_room > 0 {
            self.room.notify_all();
        }
        std::mem::take(&mut state.room_wakers)
    }

    /// Stops the journal for good. The first cause stands; everyone who waits is woken.
    #[must_use]
    pub(crate) fn poison(&self, state: &mut State, step: Step, cause: &str) -> Vec<Waker> {
        state.poison.get_or_insert_with(|| Poison {
            step,
            cause: cause.into(),
        });
        for turn in &self.turn {
            turn.notify_all();
        }
        self.room.notify_all();
        self.work.notify_all();
        self.flush.notify_all();
        let mut woken = std::mem::take(&mut state.room_wakers);
        woken.extend(state.wakers.drain(..).map(|(_, waker)| waker));
        woken
    }
}

fn count(waiting: &mut [u32; 2], parity: usize, by: i32) {
    if let Some(n) = waiting.get_mut(parity) {
        *n = n.saturating_add_signed(by);
    }
}

/// Wakes each of `wakers`; never under the lock.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
