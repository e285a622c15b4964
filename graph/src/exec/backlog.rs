//! Backlogs of sources: when a source is asked, and its answers.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anabranch_plugin::source::{Backlog, Reader};
use anabranch_record::text::Str;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::meter::StageMeters;
use super::progress::{Progress, Role};

/// Minimum time between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum time for an answer, during which the source does not read.
const PATIENCE: Duration = Duration::from_millis(100);

/// Latest answer of a source; `None` = unknown.
pub(super) type LatestBacklog = Mutex<Option<Backlog>>;

/// The backlog of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBacklog {
    /// Id of the connector.
    pub connector: Str,
    /// Latest answer of the source.
    pub backlog: Backlog,
}

impl SourceBacklog {
    /// Returns the minimum age of the next record to read: zero if the backlog is empty, `None` if unknown.
    pub fn age(&self) -> Option<Duration> {
        match self.backlog.since {
            Some(since) => Some(SystemTime::now().duration_since(since).unwrap_or_default()),
            None => self.backlog.is_empty().then_some(Duration::ZERO),
        }
    }
}

/// Schedule for asking a source for its backlog.
pub(super) struct Questions {
    /// Elapses when the source may be asked again.
    timer: Pin<Box<Sleep>>,
    /// True if the source knew the answer the last time.
    knows: bool,
    /// True if the answer may change without a read: the backlog was not empty, or records were read since.
    open: bool,
}

impl Questions {
    pub(super) fn new() -> Self {
        Questions { timer: Box::pin(sleep(Duration::ZERO)), knows: false, open: true }
    }

    /// Notes that records were read.
    pub(super) fn reopen(&mut self) {
        self.open = true;
    }

    /// Returns `true` if the source may be asked.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.timer.deadline()
    }

    /// Completes when a waiting read is to be interrupted for a question. Never completes if the question would wake an
    /// idle source.
    pub(super) async fn beside_read(&mut self) {
        if !self.knows || !self.open {
            std::future::pending::<()>().await;
        }
        self.timer.as_mut().await;
    }

    /// Asks the source and stores the answer. If the answer takes too long, the previous one stays.
    pub(super) async fn ask(&mut self, reader: &mut dyn Reader, meters: &StageMeters) {
        if let Ok(answer) = timeout(PATIENCE, reader.backlog()).await {
            self.knows = answer.is_some();
            // The retained data of an idle source grows when other programs write.
            self.open = answer.as_ref().is_some_and(|backlog| !backlog.is_empty() || backlog.retention.is_some());
            meters.set_backlog(answer);
        }
        self.timer.as_mut().reset(Instant::now() + EVERY);
    }

    /// Completes when a source that can answer is to be asked, while there is no room to read.
    pub(super) async fn beside_wait(&mut self) {
        if !self.knows {
            std::future::pending::<()>().await;
        }
        self.timer.as_mut().await;
    }

    /// Notes that the source has nothing more to read. It is asked once more: it may have counted records that are missing.
    pub(super) fn caught_up(&mut self, meters: &StageMeters) {
        meters.empty_backlog();
    }
}

impl Progress {
    /// Returns the known backlogs of sources, in plan order.
    pub fn backlogs(&self) -> Vec<SourceBacklog> {
        let reads = self.stages.iter().filter(|stage| stage.kind == Role::Read);
        let known = reads.filter_map(|stage| {
            let backlog = stage.backlog.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
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
        *answer = answer.take().map(Backlog::emptied);
    }
}
