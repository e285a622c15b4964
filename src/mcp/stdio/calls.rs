//! Calls that run or wait, and their end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use serde_json::Value;

use crate::mcp::{Answer, Cancellation, Server};

/// Tools that run at a time: some take long, and a client asks others meanwhile.
pub(super) const AT_A_TIME: usize = 4;
/// Calls that wait for one of those to end; more are refused.
pub(super) const WAITING: usize = 64;
/// How long calls that run at the end of the input may take: whoever pipes requests in reads the answers after it.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of a client.
#[derive(Default)]
pub(super) struct Calls {
    state: Mutex<State>,
    /// Told when a call ends.
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
    /// Different for all calls; their ids are the client's matter.
    number: u64,
    message: Value,
    cancellation: Cancellation,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call as soon as there is a place for it, and writes its answer.
    ///
    /// # Errors
    /// The message, where too many wait.
    pub(super) fn begin<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &'scope Server,
        write: &'scope (impl Fn(Answer) + Sync),
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
                // Who gave it up waits for no answer.
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

    /// Ends a call, and gives the one that takes its place.
    fn ended(&self, number: u64) -> Option<Job> {
        let mut state = self.lock();
        state.running.retain(|job| job.number != number);
        let next = state.waiting.pop_front();
        state.running.extend(next.clone());
        self.ended.notify_all();
        next
    }

    /// Gives a call up, whether it runs or waits.
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

    /// Gives up what waits, and after a moment what runs.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        let waited = self.ended.wait_timeout_while(state, GRACE, |state| !state.running.is_empty());
        let running = waited.unwrap_or_else(PoisonError::into_inner).0.running.clone();
        running.iter().for_each(|job| job.cancellation.cancel());
    }
}
