//! The user of the cluster, who stops and starts the pipeline through the store.

use super::forms::ProgramVersion;
use super::world::State;

/// Time between two attempts of the user, in milliseconds.
const AGAIN: u64 = 500;

/// The user, who wants the pipeline to run or to stand still, and repeats the request until the store has it.
pub(super) struct User {
    wants_it: bool,
    is_done: bool,
    /// When to try again.
    next: u64,
    /// Since when the store knows that the pipeline is to be stopped.
    stopped: Option<u64>,
    /// Number of the latest request.
    requests: u64,
}

impl User {
    pub(super) fn new() -> User {
        User { wants_it: true, is_done: true, next: 0, stopped: None, requests: 1 }
    }

    /// Has the user stop or start the pipeline.
    pub(super) fn wants(&mut self, it: bool) {
        (self.wants_it, self.is_done, self.stopped) = (it, false, None);
    }

    pub(super) fn wants_it(&self) -> bool {
        self.wants_it
    }

    /// Returns since when the store knows that the pipeline is to be stopped.
    pub(super) fn stopped(&self) -> Option<u64> {
        self.stopped
    }

    /// Has the user repeat the request, because the store may have forgotten it.
    pub(super) fn looks_again(&mut self) {
        (self.is_done, self.stopped) = (false, None);
    }
}

impl State {
    /// Has the user do what is left to do, through a node of some version.
    pub(super) fn user_acts(&mut self) {
        if self.user.is_done || self.now < self.user.next {
            return;
        }
        self.user.next = self.now + AGAIN;
        if self.user.wants_it {
            self.user.requests += 1;
            let version = [ProgramVersion::Older, ProgramVersion::Newer][self.random.usize(..2)];
            let (newer, micros) = (version.field(self.user.requests), self.clock() * 1_000);
            self.tables.want(newer, micros);
            // A pipeline that is still being stopped cannot be started.
            self.user.is_done = self.tables.is_wanted();
        } else {
            self.tables.end_units();
            (self.user.is_done, self.user.stopped) = (true, Some(self.now));
        }
        let (wants_it, is_done) = (self.user.wants_it, self.user.is_done);
        self.note(|| format!("the user {} the pipeline: {is_done}", if wants_it { "starts" } else { "stops" }));
    }
}
