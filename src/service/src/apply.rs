//! Applying a configuration text to a pipeline: the plan of changes, and the switch.

mod difference;
mod set;

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::plan::CompileOptions;
use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use anabranch_store::{Origin, Status, StopReason, StoredPipeline};
use tokio::time::{sleep, timeout};

pub use difference::Difference;
use difference::{add, base, differences, hash, is_asked_to_start, revalued};
pub use set::{DesiredSet, PlannedSet};

use crate::control::{Control, ControlError};
use crate::document::Read;
use crate::edit::{EditError, dropped, errors};
use crate::hold::ExclusiveAccess;
use crate::lifecycle::LifecycleCommand;
use crate::pipeline::Pipeline;
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::renames::{RereadSource, rereads};
use crate::tasks::{JobResult, Task};

/// How long a switch waits until the new pipeline is open; after this it has failed. Together with the time for
/// draining the old pipeline it is less than an HTTP response may take.
const OPENING: Duration = Duration::from_secs(10);

/// The waits between attempts to restore the store after a failure.
const RESTORE_WAITS: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// The desired state of a pipeline.
#[derive(Debug)]
pub struct Desired {
    /// The text of a pipeline file.
    pub text: String,
    /// The id of the pipeline to apply, if the text has several.
    pub pipeline: Option<String>,
    /// True if warnings are errors, even if the settings of the service do not say so.
    pub strict: bool,
}

/// The plan of applying a text.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The id of the pipeline.
    pub id: Str,
    /// The differences, in the order in which they are reported.
    pub changes: Vec<Difference>,
    /// True if the pipeline runs and has to be drained and restarted.
    pub restart: bool,
    /// Sources that read from their beginning although they seem to replace others.
    pub rereads: Vec<RereadSource>,
    /// Notes for the user: the effect on stored positions, and whether the pipeline stays stopped.
    pub notes: Vec<String>,
    /// Hash of all of this and of the whole text.
    pub hash: String,
    /// True if a file declares the pipeline. The file decides again at the next start of the service.
    pub from_file: bool,
    /// Failures of follow-up work after the plan was applied.
    pub warnings: Vec<String>,
}

/// A pipeline that was applied and does not open, with the state to restore in the store.
struct FailedApply {
    applied: StoredPipeline,
    before: Option<StoredPipeline>,
    /// The status to restore, if the pipeline did not run.
    status: Option<Status>,
}

/// A text that was read and compiled, with the pipeline that is stored.
struct Proposal {
    planned: Planned,
    old: Option<StoredPipeline>,
    desired: StoredPipeline,
}

impl Control {
    /// Returns the plan of applying a text. Opens nothing.
    ///
    /// # Errors
    /// The text has errors, or the store cannot be read.
    pub async fn plan(&self, desired: Desired) -> Result<Planned, EditError> {
        let pipeline = Arc::new(self.understood(desired).await?);
        self.check_cycle(&NextStart::Good(pipeline.clone())).await?;
        Ok(self.propose(&pipeline, false).await?.planned)
    }

    /// Applies a text. A running pipeline is drained, switched and resumed. If the new pipeline cannot be opened, the
    /// old one is restored. Sources that exist in both resume from their positions.
    ///
    /// # Errors
    /// The errors of [`Control::plan`]; `hash` differs from the hash of the current plan; or the new pipeline cannot be
    /// opened within 10 s.
    pub async fn apply(&self, desired: Desired, hash: String) -> Result<Planned, EditError> {
        let control = self.clone();
        self.to_the_end(Task::Apply, async move {
            let pipeline = control.understood(desired).await?;
            control.put_in_place(pipeline, Some(&hash), false).await
        })
        .await
    }

    /// Applies a pipeline whose file was saved, like [`Control::apply`]. Restarts a degraded pipeline even if its file
    /// did not change.
    ///
    /// # Errors
    /// Another request holds the pipeline, it was created through the API, or the new pipeline cannot be opened.
    pub async fn take_up(&self, pipeline: Pipeline) -> Result<Planned, EditError> {
        let control = self.clone();
        let task = Task::Errand("applying the file", pipeline.config.id.value.clone());
        self.to_the_end(task, async move {
            let id = &pipeline.config.id.value;
            if control.stored(id).await?.is_some_and(|stored| stored.origin == Origin::Api) {
                let what = "a pipeline with this id was created through the API".into();
                return Err(ControlError::Invalid { id: id.clone(), what }.into());
            }
            let planned = control.put_in_place(pipeline, None, true).await?;
            let failed = control.seen(&planned.id).is_some_and(|seen| matches!(seen.status, Status::Degraded { .. }));
            if planned.changes.is_empty() && failed {
                control.start(&planned.id).await?;
            }
            Ok(planned)
        })
        .await
    }

    /// Replaces the pipeline with the same id. `hash` is the hash of the plan that the client reviewed. `saved` is true
    /// if the pipeline comes from a file that was just saved.
    async fn put_in_place(&self, pipeline: Pipeline, hash: Option<&str>, saved: bool) -> Result<Planned, EditError> {
        let pipeline = Arc::new(pipeline);
        let id = pipeline.config.id.value.clone();
        let is_stale = |planned: &Planned| hash.is_some_and(|hash| planned.hash != hash);
        loop {
            let making = self.making().await;
            if self.entry(&id).is_err() {
                let proposal = self.propose(&pipeline, saved).await?;
                if is_stale(&proposal.planned) {
                    return Err(EditError::Stale(id));
                }
                self.add(&proposal, pipeline).await?;
                return Ok(proposal.planned);
            }
            drop(making);
            let (entry, gate) = match self.gate(&id).await {
                Ok(held) => held,
                // Another request deleted it meanwhile.
                Err(ControlError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut proposal = self.propose(&pipeline, saved).await?;
            if is_stale(&proposal.planned) {
                return Err(EditError::Stale(id));
            }
            if proposal.planned.restart && !saved && !self.shared().live_restart {
                return Err(EditError::RunsOn(id));
            }
            if !proposal.planned.changes.is_empty() {
                let mut hold = self.hold_with(entry, gate).await;
                // A connector that is missing in a saved file may be back with the next save.
                let to_notify = match &proposal.old {
                    Some(old) if !saved => self.to_notify(old, dropped(old, &proposal.desired)).await?,
                    _ => Vec::new(),
                };
                self.switch(&mut hold, &proposal, pipeline).await?;
                proposal.planned.warnings = self.notify_set_aside(&id, to_notify).await;
            }
            return Ok(proposal.planned);
        }
    }

    async fn understood(&self, desired: Desired) -> Result<Pipeline, EditError> {
        let options =
            CompileOptions { strict: desired.strict || self.shared().compile.strict, ..self.shared().compile };
        let mut read = Read::text(self.shared(), options, "the text", desired.text).await?;
        if let Some(which) = desired.pipeline
            && let Some(at) = read.pipelines.good.iter().position(|good| *good.config.id.value == *which)
        {
            return Ok(read.pipelines.good.swap_remove(at));
        }
        let pipelines = &read.pipelines;
        let wrong = errors(&pipelines.findings);
        if !wrong.is_empty() {
            return Err(EditError::Invalid(wrong));
        }
        let declared = pipelines.good.len() + pipelines.invalid.len();
        if declared != 1 {
            return Err(EditError::NotOne(declared));
        }
        read.into_pipeline().ok_or(EditError::NotOne(0))
    }

    async fn propose(&self, pipeline: &Pipeline, saved: bool) -> Result<Proposal, EditError> {
        let stored = self.shared().store.pipelines().await?;
        self.compare(pipeline, saved, &stored, &[]).await
    }

    /// Compares a pipeline with the stored ones. Its sources may replace those of pipelines that are set aside, and of those
    /// that are `leaving`.
    async fn compare(
        &self,
        pipeline: &Pipeline,
        saved: bool,
        stored: &[StoredPipeline],
        leaving: &[Str],
    ) -> Result<Proposal, EditError> {
        let mut desired = StoredPipeline::from(&pipeline.config);
        let id = desired.id.clone();
        let old = stored.iter().find(|stored| stored.id == id).cloned();
        let declared = self.entry(&id).is_ok() && old.as_ref().is_none_or(|old| old.origin == Origin::File);
        let from_file = saved || (declared && old.as_ref().is_none_or(|old| !old.detached));
        desired.origin = if from_file { Origin::File } else { Origin::Api };
        let mut changes = differences(old.as_ref(), &desired);
        let runs = match self.entry(&id).map(|entry| entry.plan()) {
            Ok(NextStart::Good(runs)) => Some(runs),
            _ => None,
        };
        if let Some(runs) = &runs {
            add(&mut changes, revalued(&runs.config, &pipeline.config));
        }
        let status = match &old {
            // Another node of the cluster runs it, or none.
            Some(old) if !self.has(&id) => Some(old.status.clone()),
            _ => self.seen(&id).map(|seen| seen.status),
        };
        let live = status.as_ref().is_some_and(Status::is_live);
        let is_gone = |other: &&StoredPipeline| other.detached || leaving.contains(&other.id);
        let gone: Vec<_> = stored.iter().filter(is_gone).cloned().collect();
        let rereads = rereads(&self.shared().store, old.as_ref(), &desired, &gone).await?;
        let mut notes = self.redirected(pipeline, &changes).await?;
        let is_stopped = matches!(status, Some(Status::Stopped { reason: StopReason::User }));
        let is_back = old.as_ref().is_some_and(|old| old.detached);
        if is_stopped && !is_back && desired.autostart && !is_asked_to_start(&changes) {
            notes.push(format!(
                "pipeline {id} is stopped and stays stopped: run `anabranch pipelines start {id}` to start it"
            ));
        }
        let planned = Planned {
            hash: hash(&changes, &rereads, [old.as_ref(), Some(&desired)], [runs.as_deref(), Some(pipeline)]),
            restart: live && !changes.is_empty(),
            notes,
            changes,
            rereads,
            from_file,
            id,
            warnings: Vec::new(),
        };
        Ok(Proposal { planned, old, desired })
    }

    /// Describes the sources that keep their position but read another file than before.
    async fn redirected(&self, pipeline: &Pipeline, changes: &[Difference]) -> Result<Vec<String>, StoreError> {
        let id = &pipeline.config.id.value;
        let files = pipeline.compiled.stages.stages.iter().filter_map(|stage| match &stage.kind {
            StageKind::Read(read) => Some((&read.connector, read.source.file()?)),
            _ => None,
        });
        let is_redirected = |(connector, _): &(&Str, &str)| {
            let full = format!("{id}:{connector}");
            let updates = changes.iter().filter(|change| change.id == full && change.action == "update");
            let mut paths = updates.flat_map(|change| &change.config_paths);
            paths.any(|path| path.ends_with("/settings/path"))
        };
        let redirected: Vec<_> = files.filter(is_redirected).collect();
        if redirected.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.shared().store.positions(id).await?;
        let told = redirected.into_iter().filter(|(source, _)| known.keys().any(|lane| lane.connector == **source));
        let told = told.map(|(source, path)| {
            format!(
                "source {id}:{source} has a position in the file of its former path. If {path} begins with the text \
                 that the source has already read, the source continues after that text; otherwise, it reads {path} \
                 from the beginning. The unread rest of the former file is not read."
            )
        });
        Ok(told.collect())
    }

    /// Replaces a pipeline that is held with a new one.
    async fn switch(
        &self,
        hold: &mut ExclusiveAccess,
        proposal: &Proposal,
        pipeline: Arc<Pipeline>,
    ) -> Result<(), EditError> {
        let Proposal { planned, old, desired } = proposal;
        let entry = hold.entry.clone();
        let before = entry.seen.borrow().status.clone();
        let old_plan = entry.plan();
        {
            let (_placing, plan) = (self.placing().await, NextStart::Good(pipeline));
            self.check_cycle(&plan).await?;
            self.shared().store.replace(desired.clone()).await?;
            entry.set_plan(plan);
        }
        let ran = std::mem::replace(&mut hold.resumes, false);
        let asked = is_asked_to_start(&planned.changes);
        let starts = ran || asked || matches!(before, Status::Degraded { .. } | Status::Finished | Status::Invalid);
        if !desired.autostart || !starts {
            if ran {
                self.settle(&entry, Status::Stopped { reason: StopReason::User }).await?;
            }
            return Ok(());
        }
        let Err(error) = self.try_out(&entry).await else { return Ok(()) };
        tracing::error!(
            pipeline = %entry.id, %error,
            "the new pipeline could not be opened: the service restores the old one"
        );
        // The old pipeline runs again first, even if the store fails.
        entry.set_plan(old_plan);
        let begun = match ran {
            true => self.begin(&entry),
            false => {
                entry.show(before.clone());
                Ok(())
            }
        };
        let after = if ran { "the old pipeline runs again" } else { "the old pipeline was restored" };
        let back = FailedApply { applied: desired.clone(), before: old.clone(), status: (!ran).then_some(before) };
        self.put_back(back).await;
        begun?;
        Err(EditError::SwitchFailed { id: entry.id.clone(), error, after })
    }

    /// Adds a pipeline that the service does not have.
    async fn add(&self, proposal: &Proposal, pipeline: Arc<Pipeline>) -> Result<(), EditError> {
        let Proposal { old, desired, .. } = proposal;
        let store = &self.shared().store;
        let entry = {
            let (_placing, plan) = (self.placing().await, NextStart::Good(pipeline));
            self.check_cycle(&plan).await?;
            store.replace(desired.clone()).await?;
            self.put(&desired.id, plan, Status::Stopped { reason: StopReason::User })
        };
        // The gate is free, since the entry is not in the table yet. Holding it prevents a stop or deletion during the
        // trial start.
        let _gate = entry.gate.clone().lock_owned().await;
        if !desired.autostart {
            return Ok(());
        }
        let Err(error) = self.try_out(&entry).await else { return Ok(()) };
        self.remove(&entry);
        self.put_back(FailedApply { applied: desired.clone(), before: old.clone(), status: None }).await;
        Err(EditError::SwitchFailed { id: desired.id.clone(), error, after: "the new pipeline was removed" })
    }

    /// Restores in the store what it held before a pipeline was applied. Retries after a failure until it succeeds,
    /// another request has stored something, or the service stops.
    async fn put_back(&self, undone: FailedApply) {
        let Err(error) = self.undo(&undone).await else { return };
        let id = undone.applied.id.clone();
        tracing::warn!(
            pipeline = %id, %error,
            "the store still contains the applied pipeline; the service retries to restore the old one"
        );
        let control = self.clone();
        self.see_to(Task::Errand("restoring the stored configuration", id.clone()), async move {
            for failures in 1.. {
                sleep(RESTORE_WAITS.after(failures)).await;
                if control.is_stopping() {
                    break;
                }
                match control.undo(&undone).await {
                    Ok(()) => break,
                    Err(error) => tracing::debug!(pipeline = %id, %error, "the stored pipeline cannot be restored yet"),
                }
            }
            JobResult::Errand
        });
    }

    async fn undo(&self, FailedApply { applied, before, status }: &FailedApply) -> Result<(), StoreError> {
        let store = &self.shared().store;
        let stored = store.pipeline(&applied.id).await?;
        // Another request has changed the pipeline.
        if stored.as_ref().is_some_and(|stored| base(stored) != base(applied)) {
            return Ok(());
        }
        match before {
            Some(before) => drop(store.replace(before.clone()).await?),
            None if stored.is_some() => store.delete(&applied.id).await?,
            None => {}
        }
        match status {
            Some(status) => store.set_status(&applied.id, status.clone()).await,
            None => Ok(()),
        }
    }

    /// Starts a pipeline and waits until it is open. A pipeline that fails has stopped when this returns.
    async fn try_out(&self, entry: &Arc<PipelineEntry>) -> Result<(), String> {
        entry.set_on_trial(true);
        let begun = self.begin(entry).map_err(|error| error.to_string());
        let result = match begun {
            Ok(()) => opened(entry).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            entry.stop(LifecycleCommand::Kill { by: StopReason::System });
            entry.wait_until_stopped().await;
        }
        entry.set_on_trial(false);
        result
    }

    /// Shows and stores the status of a pipeline that does not run.
    async fn settle(&self, entry: &PipelineEntry, status: Status) -> Result<(), EditError> {
        entry.show(status.clone());
        Ok(self.shared().store.set_status(&entry.id, status).await?)
    }
}

async fn opened(entry: &PipelineEntry) -> Result<(), String> {
    let mut seen = entry.seen.subscribe();
    let decided = seen.wait_for(|seen| seen.status != Status::Starting);
    match timeout(OPENING, decided).await {
        Ok(Ok(seen)) => match &seen.status {
            Status::Recovering { error } | Status::Degraded { error } => Err(error.clone()),
            Status::Starting | Status::Running | Status::Stopped { .. } | Status::Finished | Status::Invalid => Ok(()),
        },
        // The sender is in `entry`, which outlives this function.
        Ok(Err(_)) => Ok(()),
        Err(_) => Err(format!(
            "it was not open after {} s (if it needs longer: stop the pipeline, apply the change, and start the \
             pipeline)",
            OPENING.as_secs()
        )),
    }
}
