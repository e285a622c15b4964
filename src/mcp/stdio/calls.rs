//! Running and waiting calls.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use serde_json::Value;

use crate::mcp::{Cancellation, McpAnswer, Server};

/// Maximum number of tools that run at the same time: some take long, and clients call others meanwhile.
pub(super) const AT_A_TIME: usize = 4;
/// Maximum number of waiting calls; more are refused.
pub(super) const WAITING: usize = 64;
/// How long running calls may take after the end of the input. A client that pipes its requests in reads the answers
/// after that.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of a client.
#[derive(Default)]
pub(super) struct Calls {
    state: Mutex<State>,
    /// Notified when a call ends.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<Job>,
    waiting: VecDeque<Job>,
}

/// A message with a call.
#[derive(Clone)]
struct Job {
    /// Unique number of the call. The ids of messages are chosen by the client and may repeat.
    number: u64,
    message: Value,
    cancellation: Cancellation,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call as soon as there is a free place, and writes its answer.
    ///
    /// # Errors
    /// Returns the message if too many calls are waiting.
    pub(super) fn begin<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &'scope Server,
        write: &'scope (impl Fn(McpAnswer) + Sync),
        message: Value,
    ) -> Result<(), Value> {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let job = Job { number, message, cancellation: Cancellation::default() };
        let mut state = self.lock();
        if state.running.len() >= AT_A_TIME {
            if state.waiting.len() >= WAITING {
                return Err(job.message);
            }
            state.waiting.push_back(job);
            return Ok(());
        }
        state.running.push(job.clone());
        drop(state);
        let started = job.clone();
        let run = move || {
            let mut next = Some(started);
            while let Some(job) = next {
                let answer = server.answer_to(&job.message, None, &job.cancellation);
                // A cancelled call needs no answer.
                if !job.cancellation.is_cancelled() {
                    write(answer);
                }
                next = self.ended(job.number);
            }
        };
        if thread::Builder::new().name("anabranch-mcp".to_owned()).spawn_scoped(scope, run).is_err() {
            self.lock().running.retain(|running| running.number != job.number);
            return Err(job.message);
        }
        Ok(())
    }

    /// Removes a finished call, and returns the waiting call that takes its place.
    fn ended(&self, number: u64) -> Option<Job> {
        let mut state = self.lock();
        state.running.retain(|job| job.number != number);
        let next = state.waiting.pop_front();
        state.running.extend(next.clone());
        self.ended.notify_all();
        next
    }

    /// Cancels a running or waiting call.
    pub(super) fn cancel(&self, id: &Value) {
        if id.is_null() {
            return;
        }
        let cancelled: Vec<Job> = {
            let mut state = self.lock();
            state.waiting.retain(|job| job.message["id"] != *id);
            state.running.iter().filter(|job| job.message["id"] == *id).cloned().collect()
        };
        cancelled.iter().for_each(|job| job.cancellation.cancel());
    }

    /// Discards waiting calls, and cancels running ones after a short time.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        let waited = self.ended.wait_timeout_while(state, GRACE, |state| !state.running.is_empty());
        let running = waited.unwrap_or_else(PoisonError::into_inner).0.running.clone();
        running.iter().for_each(|job| job.cancellation.cancel());
    }
}
