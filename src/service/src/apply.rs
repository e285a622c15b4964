//! Applying a configuration text to a pipeline: the plan of changes, and the switch.

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::config::{PipelineConfig, ProcessorConfig};
use anabranch_graph::plan::CompileOptions;
use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::settings::{Setting, Settings};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use anabranch_store::{
    Action, Entity, Origin, Status, StopReason, StoredConnector, StoredPipeline, StoredProcessor, StoredSetting,
    between,
};
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};

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

/// One difference between the stored and the desired pipeline. It contains no values.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// `pipeline`, `connector` or `processor`.
    pub resource: &'static str,
    /// Its id: `pipeline`, `pipeline:connector`, `pipeline:connector:processor`.
    pub id: String,
    /// `create`, `update` or `delete`.
    pub action: &'static str,
    /// JSON pointers to the places that are new or different in the text.
    pub config_paths: Vec<String>,
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
                    Some(old) if !saved => self.to_notify(&id, dropped(old, &proposal.desired)).await?,
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
        let mut desired = StoredPipeline::from(&pipeline.config);
        let id = desired.id.clone();
        let old = self.stored(&id).await?;
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
        let status = self.seen(&id).map(|seen| seen.status);
        let live = status.as_ref().is_some_and(Status::is_live);
        let gone: Vec<_> = self.shared().store.pipelines().await?.into_iter().filter(|other| other.detached).collect();
        let rereads = rereads(&self.shared().store, old.as_ref(), &desired, &gone).await?;
        let mut notes = self.redirected(pipeline, &changes).await?;
        let is_stopped = matches!(status, Some(Status::Stopped { reason: StopReason::User }));
        if is_stopped && desired.autostart && !is_asked_to_start(&changes) {
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

/// Returns a hash of the planned changes and of the stored and read pipelines before and after. It contains no value,
/// but changes with each value, with each change of the stored pipeline, and with the text of each script.
fn hash(
    changes: &[Difference],
    rereads: &[RereadSource],
    stored: [Option<&StoredPipeline>; 2],
    read: [Option<&Pipeline>; 2],
) -> String {
    let mut hash = Sha256::new();
    let replaced: Vec<_> = rereads.iter().map(|reread| (&reread.source, &reread.replaces)).collect();
    let texts = [
        serde_json::to_vec(changes),
        serde_json::to_vec(&replaced),
        serde_json::to_vec(&stored.map(|stored| stored.map(base))),
        serde_json::to_vec(&read.map(|read| read.map(|read| scripts(&read.config)))),
    ];
    for text in texts.into_iter().flatten() {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the stored pipeline without its status.
fn base(stored: &StoredPipeline) -> StoredPipeline {
    StoredPipeline { status: Status::Invalid, created: None, updated: None, ..stored.clone() }
}

/// Returns the files that settings of a pipeline name, each with its text or the reason why it could not be read.
fn scripts(pipeline: &PipelineConfig) -> Vec<(&Str, &Result<Str, Str>)> {
    let connectors = pipeline.connectors.iter();
    let of_connectors = connectors.flat_map(|connector| connector.processors.iter());
    let processors = pipeline.processors.iter().chain(of_connectors);
    let entries = processors.flat_map(|processor| &processor.settings.entries);
    entries.filter_map(|setting| setting.value.content()).map(|content| (&content.path, &content.text)).collect()
}

/// Adds differences and merges those of the same resource.
fn add(all: &mut Vec<Difference>, more: Vec<Difference>) {
    for new in more {
        match all.iter_mut().find(|known| (known.resource, &known.id) == (new.resource, &new.id)) {
            Some(known) => known.config_paths.extend(new.config_paths),
            None => all.push(new),
        }
    }
}

/// Returns settings whose text is the same but whose value changed, because a file that they refer to changed.
fn revalued(runs: &PipelineConfig, new: &PipelineConfig) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut add = |resource, id: String, at: String, was: Option<&Settings>, is: &Settings| {
        let is_other = |setting: &&Setting| {
            let before = was.and_then(|was| was.get(&setting.name.value));
            before.is_some_and(|before| {
                let (was, is) = (&before.value, &setting.value);
                let is_other = was.value() != is.value() || was.content() != is.content();
                was.written() == is.written() && is_other
            })
        };
        let changed = is.entries.iter().filter(is_other).map(|setting| setting.name.value.clone());
        let changed: Vec<Str> = changed.collect();
        if !changed.is_empty() {
            let config_paths = paths(&at, &["settings"], &changed);
            all.push(Difference { resource, id, action: "update", config_paths });
        }
    };
    let same = |processors: &[ProcessorConfig], id: &Str| {
        processors.iter().find(|was| was.id.value == *id).map(|was| was.settings.clone())
    };
    let pipeline = &new.id.value;
    let queue = (&runs.dead_letter_queue.settings, &new.dead_letter_queue.settings);
    add("pipeline", pipeline.to_string(), "/dead-letter-queue".to_owned(), Some(queue.0), queue.1);
    for (index, connector) in new.connectors.iter().enumerate() {
        let id = &connector.id.value;
        let was = runs.connectors.iter().find(|was| was.id.value == *id);
        let at = format!("/connectors/{index}");
        add("connector", format!("{pipeline}:{id}"), at.clone(), was.map(|was| &was.settings), &connector.settings);
        for (step, processor) in connector.processors.iter().enumerate() {
            let was = was.and_then(|was| same(&was.processors, &processor.id.value));
            let full = format!("{pipeline}:{id}:{}", processor.id.value);
            add("processor", full, format!("{at}/processors/{step}"), was.as_ref(), &processor.settings);
        }
    }
    for (index, processor) in new.processors.iter().enumerate() {
        let was = same(&runs.processors, &processor.id.value);
        let full = format!("{pipeline}:{}", processor.id.value);
        add("processor", full, format!("/processors/{index}"), was.as_ref(), &processor.settings);
    }
    all
}

fn differences(old: Option<&StoredPipeline>, new: &StoredPipeline) -> Vec<Difference> {
    let Some(old) = old else { return created(new) };
    let was = |id: &Str| old.connectors.iter().chain(&old.detached_connectors).find(|was| was.id == *id);
    let place = |id: &Str| new.connectors.iter().position(|is| is.id == *id);
    let mut all = Vec::new();
    for change in between(Some(old), new) {
        let (resource, id, at, settings) = match &change.entity {
            Entity::Pipeline => ("pipeline", new.id.to_string(), Some(String::new()), Vec::new()),
            Entity::Connector(id) => {
                let at = place(id).map(|at| format!("/connectors/{at}"));
                let is = place(id).map(|at| &new.connectors[at]);
                let settings = changed(was(id).map(|was| &*was.settings), is.map(|is| &*is.settings));
                ("connector", format!("{}:{id}", new.id), at, settings)
            }
            Entity::Processor { connector, id } => {
                let under = connector.as_ref().and_then(place).map(|at| (at, &new.connectors[at]));
                let (full, before) = match connector {
                    Some(connector) => {
                        (format!("{}:{connector}:{id}", new.id), under.map(|(at, _)| format!("/connectors/{at}")))
                    }
                    None => (format!("{}:{id}", new.id), Some(String::new())),
                };
                let now = under.map_or(&new.processors, |(_, connector)| &connector.processors);
                let then = connector.as_ref().and_then(was).map_or(&old.processors, |connector| &connector.processors);
                let is = now.iter().position(|is| is.id == *id);
                let at = before.zip(is).map(|(before, at)| format!("{before}/processors/{at}"));
                let settings = changed(
                    then.iter().find(|was| was.id == *id).map(|was| &*was.settings),
                    is.map(|at| &*now[at].settings),
                );
                ("processor", full, at, settings)
            }
        };
        let (action, config_paths) = match &change.action {
            Action::Created | Action::Attached => ("create", at.into_iter().collect()),
            Action::Detached | Action::Removed => ("delete", Vec::new()),
            Action::Updated(fields) => ("update", paths(&at.unwrap_or_default(), fields, &settings)),
        };
        all.push(Difference { resource, id, action, config_paths });
    }
    all
}

/// Returns the names of settings that differ.
fn changed(was: Option<&[StoredSetting]>, is: Option<&[StoredSetting]>) -> Vec<Str> {
    let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
    let mut names: Vec<Str> = was
        .iter()
        .filter(|setting| !is.contains(setting))
        .chain(is.iter().filter(|setting| !was.contains(setting)))
        .map(|setting| setting.name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn paths(at: &str, fields: &[&str], settings: &[Str]) -> Vec<String> {
    let path = |field: &&str| match *field {
        "settings" => settings.iter().map(|name| format!("{at}/settings/{}", escaped(name))).collect(),
        "order of connectors" => vec![format!("{at}/connectors")],
        "order of processors" => vec![format!("{at}/processors")],
        field => vec![format!("{at}/{field}")],
    };
    fields.iter().flat_map(path).collect()
}

/// Escapes a name for a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns the differences of a new pipeline, resource by resource.
fn created(new: &StoredPipeline) -> Vec<Difference> {
    let create = |resource, id, path| Difference { resource, id, action: "create", config_paths: vec![path] };
    let mut all = vec![create("pipeline", new.id.to_string(), String::new())];
    let processors = |parent: &str, at: &str, processors: &[StoredProcessor]| {
        let each = processors.iter().enumerate();
        each.map(|(i, it)| create("processor", format!("{parent}:{}", it.id), format!("{at}/processors/{i}")))
            .collect::<Vec<_>>()
    };
    for (i, connector) in new.connectors.iter().enumerate() {
        let StoredConnector { id, processors: own, .. } = connector;
        let (id, at) = (format!("{}:{id}", new.id), format!("/connectors/{i}"));
        all.push(create("connector", id.clone(), at.clone()));
        all.extend(processors(&id, &at, own));
    }
    all.extend(processors(&new.id, "", &new.processors));
    all
}

/// Returns `true` if the text changes the desired status of the pipeline.
fn is_asked_to_start(changes: &[Difference]) -> bool {
    changes.iter().any(|change| change.config_paths.iter().any(|path| path == "/status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, written: &str) -> StoredSetting {
        StoredSetting { name: name.into(), written: written.into() }
    }

    #[test]
    fn settings_are_named_and_never_shown() {
        let was = [setting("a", "1"), setting("b/c", "2"), setting("d", "3")];
        let is = [setting("a", "1"), setting("b/c", "4"), setting("e", "3")];
        let names = changed(Some(&was), Some(&is));
        assert_eq!(
            paths("/connectors/0", &["plugin", "settings"], &names),
            [
                "/connectors/0/plugin",
                "/connectors/0/settings/b~1c",
                "/connectors/0/settings/d",
                "/connectors/0/settings/e",
            ]
        );
    }
}
