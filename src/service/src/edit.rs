//! Creation, changes and deletion of pipelines while the service runs. Pipelines that a file declares are changed in
//! the file.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Severity};
use anabranch_process::runtime::TEXTS;
use anabranch_record::text::Str;
use anabranch_store::{Origin, Status, StopReason, StoredConnector, StoredPipeline};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::control::{Control, ControlError};
use crate::document::Read;
use crate::outputs;
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::tasks::{JobResult, Task};

/// Reason why a request changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The pipeline cannot be held.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A file declares the pipeline.
    #[error("pipeline {0} is declared in a file, or was when the service last read its files")]
    FromFile(Str),
    /// A resource with this id or name exists.
    #[error("the {what} {id:?} already exists")]
    Exists {
        /// `pipeline`, `pipeline named`, `connector` or `processor`.
        what: &'static str,
        /// The id or name.
        id: Str,
    },
    /// The pipeline does not have this connector or processor.
    #[error("there is no {what} {id:?}")]
    NoPart {
        /// `connector` or `processor`.
        what: &'static str,
        /// The id.
        id: Str,
    },
    /// The resource has children, which must be deleted first.
    #[error("{what} {id} has {children}")]
    HasParts {
        /// `pipeline` or `connector`.
        what: &'static str,
        /// The id.
        id: Str,
        /// `connectors` or `processors`.
        children: &'static str,
    },
    /// Positions are stored and would be lost.
    #[error("the stored positions of the sources of pipeline {0} would be lost")]
    HasPositions(Str),
    /// The configuration has errors.
    #[error("the configuration has errors")]
    Invalid(Diagnostics),
    /// The text does not declare exactly one pipeline.
    #[error("the text declares {0} pipelines; exactly one is required")]
    NotOne(usize),
    /// The pipeline or the text changed since the plan was made.
    #[error("pipeline {0} or the text changed since the plan was made: nothing was changed")]
    Stale(Str),
    /// A pipeline or a file of a set changed since the plan was made.
    #[error("a pipeline or a file changed since the plan was made: nothing was changed")]
    StaleSet,
    /// The pipeline runs, and the settings do not allow a restart.
    #[error("pipeline {0} runs, and api.allow-live-restart-apply is false: nothing was changed")]
    RunsOn(Str),
    /// The new pipeline does not open.
    #[error("the new pipeline {id} could not be opened: {error}; {after}")]
    SwitchFailed {
        /// The pipeline.
        id: Str,
        /// Reason why the new pipeline did not open.
        error: String,
        /// The action of the service instead.
        after: &'static str,
    },
}

impl From<anabranch_plugin::state::StoreError> for EditError {
    fn from(error: anabranch_plugin::state::StoreError) -> Self {
        EditError::Control(error.into())
    }
}

impl Control {
    /// Creates a pipeline. It is not started.
    ///
    /// # Errors
    /// A pipeline with this id or name exists, or its connectors or processors have errors.
    pub async fn create(&self, pipeline: StoredPipeline) -> Result<(), EditError> {
        let control = self.clone();
        self.to_the_end(Task::Errand("the creation", pipeline.id.clone()), async move {
            let _making = control.making().await;
            control.check_name(&pipeline).await?;
            let known = control.entry(&pipeline.id).is_ok() || control.stored(&pipeline.id).await?.is_some();
            if known {
                return Err(EditError::Exists { what: "pipeline", id: pipeline.id });
            }
            let plan = control.checked(None, &pipeline).await?;
            let id = pipeline.id.clone();
            let _placing = control.placing().await;
            control.check_cycle(&plan).await?;
            control.shared().store.replace(pipeline).await?;
            control.put(&id, plan, Status::Stopped { reason: StopReason::User });
            tracing::info!(pipeline = %id, "created through the API");
            Ok(())
        })
        .await
    }

    /// Changes a pipeline that was created through the API and does not run. Either the whole change is applied or none
    /// of it.
    ///
    /// # Errors
    /// The pipeline does not exist, a file declares it, it runs, `change` fails, or the change introduces an error.
    pub async fn change<T: Send + 'static>(
        &self,
        id: &str,
        change: impl FnOnce(&mut StoredPipeline) -> Result<T, EditError> + Send + 'static,
    ) -> Result<T, EditError> {
        let (control, id) = (self.clone(), Str::from(id));
        self.to_the_end(Task::Errand("a change", id.clone()), async move {
            let (_entry, _gate, old) = control.to_be_changed(&id).await?;
            if old.origin == Origin::File {
                return Err(EditError::FromFile(id));
            }
            let mut new = old.clone();
            let done = change(&mut new)?;
            if new.name != old.name {
                control.check_name(&new).await?;
            }
            let plan = control.checked(Some(&old), &new).await?;
            let to_notify = control.to_notify(&old, dropped(&old, &new)).await?;
            {
                let _placing = control.placing().await;
                control.check_cycle(&plan).await?;
                control.shared().store.replace(new).await?;
                control.put(&id, plan, old.status);
            }
            control.notify_set_aside(&id, to_notify).await;
            Ok(done)
        })
        .await
    }

    /// Deletes a pipeline that does not run and that no file declares, with everything that is stored for it. Returns
    /// warnings about plugins that could not be notified.
    ///
    /// # Errors
    /// The pipeline does not exist, a file declares it, it runs, it has connectors or processors and `parts` is false,
    /// or positions of its sources are stored and `positions` is false.
    pub async fn delete(&self, id: &str, parts: bool, positions: bool) -> Result<Vec<String>, EditError> {
        let (control, id) = (self.clone(), Str::from(id));
        self.to_the_end(Task::Errand("the deletion", id.clone()), async move {
            let store = &control.shared().store;
            let (held, _making, old) = loop {
                match control.to_be_changed(&id).await {
                    Ok((entry, gate, old)) => break (Some((entry, gate)), None, old),
                    Err(EditError::Control(ControlError::NotFound(_))) => {}
                    Err(error) => return Err(error),
                }
                // The guard prevents that the pipeline is created while its stored data is deleted.
                let making = control.making().await;
                if control.entry(&id).is_err() {
                    let old = control.stored(&id).await?.ok_or_else(|| ControlError::NotFound(id.clone()))?;
                    break (None, Some(making), old);
                }
            };
            if old.origin == Origin::File && !old.detached {
                return Err(EditError::FromFile(id));
            }
            if !parts && !old.detached {
                let has = |children| EditError::HasParts { what: "pipeline", id: id.clone(), children };
                if !old.connectors.is_empty() {
                    return Err(has("connectors"));
                }
                if !old.processors.is_empty() {
                    return Err(has("processors"));
                }
            }
            let (known, set_aside) = (store.positions(&id).await?, store.detached_marks(&id).await?);
            if known.values().chain(set_aside.values()).any(|mark| !mark.is_beginning()) && !positions {
                return Err(EditError::HasPositions(id));
            }
            let to_notify = control.to_notify(&old, old.connectors.iter().chain(&old.detached_connectors)).await?;
            let notified = control.notify_deleted(&id, to_notify).await;
            store.delete(&id).await?;
            if let Some((entry, _)) = &held {
                control.remove(entry);
            }
            tracing::info!(pipeline = %id, "deleted");
            Ok(notified.into_iter().filter_map(|notification| notification.warning).collect())
        })
        .await
    }

    /// Runs `work` to completion in the service, even if the caller has disconnected.
    pub(super) async fn to_the_end<T: Send + 'static>(
        &self,
        task: Task,
        work: impl Future<Output = Result<T, EditError>> + Send + 'static,
    ) -> Result<T, EditError> {
        let (done, result) = oneshot::channel();
        self.see_to(task, async move {
            // The caller may have disconnected.
            let _ = done.send(work.await);
            JobResult::Errand
        });
        result.await.unwrap_or(Err(EditError::Control(ControlError::ServiceStopping)))
    }

    /// Returns the gate of a pipeline that has stopped, and the stored pipeline.
    async fn to_be_changed(
        &self,
        id: &Str,
    ) -> Result<(Arc<PipelineEntry>, OwnedMutexGuard<()>, StoredPipeline), EditError> {
        let (entry, gate) = self.gate(id).await?;
        if entry.seen.borrow().status.is_live() {
            return Err(ControlError::Running(id.clone()).into());
        }
        entry.wait_until_stopped().await;
        let stored = self.stored(id).await?;
        // A pipeline that is not stored has a file with errors.
        let stored = stored.ok_or_else(|| EditError::FromFile(id.clone()))?;
        Ok((entry, gate, stored))
    }

    pub(super) async fn stored(&self, id: &Str) -> Result<Option<StoredPipeline>, EditError> {
        Ok(self.shared().store.pipeline(id).await?)
    }

    /// Checks that the name of a pipeline is unique: people identify pipelines by name.
    async fn check_name(&self, pipeline: &StoredPipeline) -> Result<(), EditError> {
        let all = self.shared().store.pipelines().await?;
        let same = all.iter().any(|other| other.id != pipeline.id && other.name == pipeline.name && !other.detached);
        if same { Err(EditError::Exists { what: "pipeline named", id: pipeline.name.clone() }) } else { Ok(()) }
    }

    /// Checks the connectors and processors of a pipeline.
    ///
    /// # Errors
    /// [`EditError::Invalid`] with the errors found.
    pub async fn check(&self, pipeline: &StoredPipeline) -> Result<(), EditError> {
        self.checked(None, pipeline).await.map(drop)
    }

    /// Refuses a pipeline that would form a cycle with pipelines of the service. Looks up files on another thread.
    pub(super) async fn check_cycle(&self, plan: &NextStart) -> Result<(), EditError> {
        let NextStart::Good(pipeline) = plan else { return Ok(()) };
        let (pipeline, others) = (pipeline.clone(), self.others(&pipeline.config.id.value));
        let found = TEXTS.run(move || outputs::cycle(&pipeline, &others)).await;
        match found.ok_or(ControlError::ServiceStopping)? {
            Some(finding) => Err(EditError::Invalid(finding.into())),
            None => Ok(()),
        }
    }

    /// Returns the plan of `new`.
    ///
    /// # Errors
    /// The errors of `new` that `old` does not have: a change of one resource does not have to fix the others.
    async fn checked(&self, old: Option<&StoredPipeline>, new: &StoredPipeline) -> Result<NextStart, EditError> {
        let key = |finding: &Diagnostic| (finding.code, finding.message.clone());
        let before: BTreeSet<_> = match old {
            Some(old) => Read::stored(self.shared(), old).await?.errors().map(key).collect(),
            None => BTreeSet::new(),
        };
        let read = Read::stored(self.shared(), new).await?;
        let wrong: Vec<Diagnostic> = read.errors().filter(|finding| !before.contains(&key(finding))).cloned().collect();
        if wrong.is_empty() { Ok(read.into_plan()) } else { Err(EditError::Invalid(Diagnostics(wrong))) }
    }
}

/// Returns the connectors of `old` that `new` does not have.
pub(super) fn dropped<'a>(
    old: &'a StoredPipeline,
    new: &'a StoredPipeline,
) -> impl Iterator<Item = &'a StoredConnector> {
    old.connectors.iter().filter(|was| !new.connectors.iter().any(|is| is.id == was.id))
}

/// Returns the findings that are errors.
pub(super) fn errors(findings: &Diagnostics) -> Diagnostics {
    Diagnostics(findings.iter().filter(|finding| finding.severity == Severity::Error).cloned().collect())
}
