//! The tasks that the loop of the service runs to completion, and that a stop waits for.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anabranch_record::text::Str;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep_until};

use crate::lifecycle::{LifecycleState, PipelineOutcome};

/// Time between two log lines that name what a stop waits for.
const TELL: Duration = Duration::from_secs(5);
/// Maximum number of tasks named in one line.
const MOST_NAMED: usize = 10;

/// A task that the loop of the service runs to completion.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) work: BoxFuture<'static, JobResult>,
}

/// The result of a job.
pub(super) enum JobResult {
    /// The life of a pipeline ended.
    Life(Str, PipelineOutcome),
    /// Any other task ended.
    Errand,
}

/// Description of a job for log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A pipeline runs.
    Life(Str),
    /// An operation on a pipeline, such as `a change` or `the deletion`.
    Errand(&'static str, Str),
    /// A configuration text is applied. The id of its pipeline is not known yet.
    Apply,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Life(id) => write!(f, "pipeline {id}"),
            Task::Errand(what, id) => write!(f, "{what} of pipeline {id}"),
            Task::Apply => f.write_str("an apply"),
        }
    }
}

/// The jobs that have not ended.
#[derive(Default)]
pub(super) struct Tasks {
    doing: FuturesUnordered<BoxFuture<'static, (u64, JobResult)>>,
    known: BTreeMap<u64, Task>,
    next: u64,
}

impl Tasks {
    pub(super) fn push(&mut self, Job { task, work }: Job) {
        let number = self.next;
        self.next += 1;
        self.known.insert(number, task);
        self.doing.push(Box::pin(async move { (number, work.await) }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.doing.is_empty()
    }

    /// Waits for the next job that ends; returns `None` if there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<JobResult> {
        let (number, done) = self.doing.next().await?;
        self.known.remove(&number);
        Some(done)
    }

    /// Logs what a stop still waits for. `seen` is the state of all pipelines.
    pub(super) fn tell(&self, seen: &[(Str, LifecycleState)]) {
        let named = self.known.values().map(|task| {
            let seen = seen.iter().find(|(id, _)| matches!(task, Task::Life(life) if life == id));
            match seen.map(|(_, seen)| in_flight(seen)) {
                Some(records @ 1..) => format!("{task} ({records} in flight)"),
                Some(0) | None => task.to_string(),
            }
        });
        if let Some(names) = bounded(named) {
            tracing::warn!("still stopping; waiting for {names}");
        }
    }

    /// Logs the tasks other than runs of pipelines that do not end.
    pub(super) fn leave_behind(&self) {
        let errands = self.known.values().filter(|task| !matches!(task, Task::Life(_)));
        if let Some(names) = bounded(errands.map(Task::to_string)) {
            tracing::warn!("the service ends without waiting for {names}");
        }
    }
}

/// Returns the number of records that were read in the current run and are not settled.
fn in_flight(seen: &LifecycleState) -> u64 {
    let lanes = seen.progress.as_ref().map(|progress| progress.lanes()).unwrap_or_default();
    lanes.iter().map(|lane| lane.read.saturating_sub(lane.settled)).sum()
}

/// Joins as many names as fit into a line; returns `None` if there are none.
fn bounded(names: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let mut text = names.join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    (!names.is_empty()).then_some(text)
}

/// A timer that fires when it is time to name what a stop waits for.
#[derive(Default)]
pub(super) struct Overdue {
    at: Option<Instant>,
}

impl Overdue {
    /// Returns 5 s after the first call, and then every 5 s. Cancel-safe.
    pub(super) async fn next(&mut self) {
        let at = *self.at.get_or_insert_with(|| Instant::now() + TELL);
        sleep_until(at).await;
        self.at = Some(Instant::now() + TELL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_stop_waits_for_has_names() {
        let mut tasks = Tasks::default();
        let begun = Instant::now();
        let hangs = || Box::pin(std::future::pending());
        tasks.push(Job { task: Task::Life("p".into()), work: Box::pin(async { JobResult::Errand }) });
        tasks.push(Job { task: Task::Errand("the deletion", "q".into()), work: hangs() });
        assert!(matches!(tasks.next().await, Some(JobResult::Errand)));
        let mut overdue = Overdue::default();
        tokio::select! {
            _ = tasks.next() => panic!("it hangs"),
            () = overdue.next() => {}
        }
        assert_eq!(begun.elapsed(), TELL);
        let names: Vec<String> = tasks.known.values().map(Task::to_string).collect();
        assert_eq!(names, ["the deletion of pipeline q"]);
    }

    #[test]
    fn a_line_names_a_few_and_counts_the_others() {
        let names = |n: usize| bounded((0..n).map(|i| format!("p{i}")));
        assert_eq!(names(0), None);
        assert_eq!(names(2).as_deref(), Some("p0, p1"));
        assert!(names(1000).unwrap().ends_with("p9 and 990 more"));
    }
}
