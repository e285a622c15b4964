//! What sources have not read yet: when they are asked, and what they answered.

use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anabranch_plugin::source::{Backlog, Reader};
use anabranch_record::text::Str;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::meter::StageMeters;
use super::progress::{Progress, Role};

/// Shortest time between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// Longest time that an answer may take: the source does not read meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);

/// The latest answer of a source; `None` = it does not know.
pub(super) type Answer = Mutex<Option<Backlog>>;

/// The backlog of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBacklog {
    /// Id of its connector.
    pub connector: Str,
    /// The last answer of the source.
    pub backlog: Backlog,
}

impl SourceBacklog {
    /// Age of the next record to read, at least; zero where nothing waits, `None` where that is unknown.
    pub fn age(&self) -> Option<Duration> {
        match self.backlog.since {
            Some(since) => Some(SystemTime::now().duration_since(since).unwrap_or_default()),
            None => self.backlog.is_empty().then_some(Duration::ZERO),
        }
    }
}

/// When a source is asked.
pub(super) struct Questions {
    /// Elapses when it may be asked again.
    timer: Pin<Box<Sleep>>,
    /// Whether it knew the answer the last time.
    knows: bool,
    /// Whether another answer is to be expected although nothing is read: something was left, or was read since.
    open: bool,
}

impl Questions {
    pub(super) fn new() -> Self {
        Questions { timer: Box::pin(sleep(Duration::ZERO)), knows: false, open: true }
    }

    /// Notes that something was read.
    pub(super) fn reopen(&mut self) {
        self.open = true;
    }

    /// Whether it may be asked.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.timer.deadline()
    }

    /// Ends when a read that waits is to be dropped for a question: never where that would wake a source at rest.
    pub(super) async fn beside_read(&mut self) {
        if !self.knows || !self.open {
            std::future::pending::<()>().await;
        }
        self.timer.as_mut().await;
    }

    /// Asks, and keeps the answer. One that does not come in time is no answer: the one before it stays.
    pub(super) async fn ask(&mut self, reader: &mut dyn Reader, meters: &StageMeters) {
        if let Ok(answer) = timeout(PATIENCE, reader.backlog()).await {
            self.knows = answer.is_some();
            self.open = answer.is_some_and(|backlog| !backlog.is_empty());
            meters.set_backlog(answer);
        }
        self.timer.as_mut().reset(Instant::now() + EVERY);
    }

    /// Waits for something else than a read, and asks a source that knows meanwhile.
    pub(super) async fn beside<T>(
        &mut self,
        reader: &mut dyn Reader,
        meters: &StageMeters,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.ask_in_time(reader, meters) => {}
            }
        }
    }

    async fn ask_in_time(&mut self, reader: &mut dyn Reader, meters: &StageMeters) {
        if !self.knows {
            std::future::pending::<()>().await;
        }
        self.timer.as_mut().await;
        self.ask(reader, meters).await;
    }

    /// Notes that the source said that there is nothing more to read.
    pub(super) fn caught_up(&mut self, meters: &StageMeters) {
        meters.empty_backlog();
        self.open = false;
    }
}

impl Progress {
    /// What each source has not read yet, of those that know. In the order of the plan.
    pub fn backlogs(&self) -> Vec<SourceBacklog> {
        let reads = self.stages.iter().filter(|stage| stage.kind == Role::Read);
        let known = reads.filter_map(|stage| {
            let backlog = (*stage.backlog.lock().unwrap_or_else(PoisonError::into_inner))?;
            Some(SourceBacklog { connector: stage.steps.first()?.node.clone(), backlog })
        });
        known.collect()
    }
}

impl StageMeters {
    fn set_backlog(&self, answer: Option<Backlog>) {
        *self.backlog().lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    fn empty_backlog(&self) {
        let mut answer = self.backlog().lock().unwrap_or_else(PoisonError::into_inner);
        *answer = answer.map(Backlog::emptied);
    }
}
