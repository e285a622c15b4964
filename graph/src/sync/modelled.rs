//! `loom` types, and a model of tokio's `Notify` that follows its documentation and guarantees nothing beyond it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a model fails by panicking")]

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Model of `tokio::sync::Notify`.
#[derive(Debug)]
pub(crate) struct Notify {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A `notify_one` that found no waiter.
    permit: bool,
    /// Number of calls of `notify_waiters`. Each completes every `Notified` created before it, polled or not.
    calls: u64,
    next: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    waker: Option<Waker>,
    /// True if a `notify_one` chose this waiter.
    chosen: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Notify { state: Mutex::new(State::default()) }
    }
}

impl State {
    fn choose(&mut self) -> Option<Waker> {
        match self.waiting.iter_mut().find(|waiting| !waiting.chosen) {
            Some(waiting) => {
                waiting.chosen = true;
                waiting.waker.take()
            }
            None => {
                self.permit = true;
                None
            }
        }
    }
}

impl Notify {
    pub(crate) fn new() -> Self {
        Notify::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn notify_one(&self) {
        let waker = self.state().choose();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn notify_waiters(&self) {
        let mut state = self.state();
        state.calls += 1;
        // Waiters that are already chosen complete by that choice.
        let wakers: Vec<Waker> = state.waiting.iter_mut().filter_map(|waiting| waiting.waker.take()).collect();
        state.waiting.retain(|waiting| waiting.chosen);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        let calls = self.state().calls;
        Notified { notify: self, calls, place: WaitState::None }
    }
}

/// Model of `tokio::sync::futures::Notified`.
#[derive(Debug)]
pub(crate) struct Notified<'a> {
    notify: &'a Notify,
    calls: u64,
    place: WaitState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitState {
    None,
    Queue(u64),
    Done,
}

impl Notified<'_> {
    pub(crate) fn enable(self: Pin<&mut Self>) -> bool {
        self.get_mut().advance(None).is_ready()
    }

    fn advance(&mut self, waker: Option<&Waker>) -> Poll<()> {
        let mut state = self.notify.state();
        let state = &mut *state;
        let ready = match self.place {
            WaitState::Done => true,
            _ if state.calls != self.calls => {
                if let WaitState::Queue(id) = self.place {
                    state.waiting.retain(|waiting| waiting.id != id);
                }
                true
            }
            WaitState::None if state.permit => {
                state.permit = false;
                true
            }
            WaitState::None => {
                let id = state.next;
                state.next += 1;
                state.waiting.push_back(Waiting { id, waker: waker.cloned(), chosen: false });
                self.place = WaitState::Queue(id);
                false
            }
            WaitState::Queue(id) => {
                let at = state.waiting.iter().position(|waiting| waiting.id == id).expect("in the queue");
                let chosen = state.waiting[at].chosen;
                if chosen {
                    state.waiting.remove(at);
                } else if let Some(waker) = waker {
                    state.waiting[at].waker = Some(waker.clone());
                }
                chosen
            }
        };
        if ready {
            self.place = WaitState::Done;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.get_mut().advance(Some(context.waker()))
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let WaitState::Queue(id) = self.place else { return };
        let mut state = self.notify.state();
        let Some(at) = state.waiting.iter().position(|waiting| waiting.id == id) else { return };
        let waiting = state.waiting.remove(at);
        // A choice that the waiter did not consume passes to another waiter.
        let waker = waiting.filter(|waiting| waiting.chosen).and_then(|_| state.choose());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
