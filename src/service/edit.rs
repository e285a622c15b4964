//! Pipelines that are made, changed and deleted while the service runs. What a file declares is changed there.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Severity};
use anabranch_record::text::Str;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::control::{Control, ControlError};
use super::document::Read;
use super::roster::{Entry, Plan};
use super::tasks::{Done, Task};
use crate::outputs;
use crate::runtime::TEXTS;
use crate::store::{Origin, Status, StopReason, StoredConnector, StoredPipeline};

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The pipeline cannot be held still.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A file declares it.
    #[error("pipeline {0} is declared in a file, or was when the service last looked at its files")]
    FromFile(Str),
    /// There is one already.
    #[error("there is a {what} {id:?} already")]
    Exists {
        /// `pipeline`, `pipeline named`, `connector` or `processor`.
        what: &'static str,
        /// Its id or name.
        id: Str,
    },
    /// There is no such part of it.
    #[error("there is no {what} {id:?}")]
    NoPart {
        /// `connector` or `processor`.
        what: &'static str,
        /// Its id.
        id: Str,
    },
    /// Something belongs to it that has to go first.
    #[error("{what} {id} has {children}")]
    HasParts {
        /// `pipeline` or `connector`.
        what: &'static str,
        /// Its id.
        id: Str,
        /// `connectors` or `processors`.
        children: &'static str,
    },
    /// Positions are stored, which would be lost.
    #[error("the positions of the sources of pipeline {0} are stored: they would be lost")]
    HasPositions(Str),
    /// The configuration has errors.
    #[error("the configuration has errors")]
    Invalid(Diagnostics),
    /// Not one pipeline.
    #[error("the text declares {0} pipelines; one is expected")]
    NotOne(usize),
    /// What was planned is not what would be done now.
    #[error("pipeline {0} or the text changed since the plan was made: nothing was done")]
    Stale(Str),
    /// The pipeline runs, and the settings do not allow a restart.
    #[error("pipeline {0} runs, and api.allow-live-restart-apply is false: nothing was changed")]
    RunsOn(Str),
    /// The new pipeline does not open.
    #[error("the new pipeline {id} could not be opened: {error}; {after}")]
    SwitchFailed {
        /// The pipeline.
        id: Str,
        /// What it failed of.
        error: String,
        /// What runs now.
        after: &'static str,
    },
}

impl From<anabranch_plugin::state::StoreError> for EditError {
    fn from(error: anabranch_plugin::state::StoreError) -> Self {
        EditError::Control(error.into())
    }
}

impl Control {
    /// Makes a pipeline. It is not started.
    ///
    /// # Errors
    /// There is one of its id or name, or its parts have errors.
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
            control.check_circle(&plan).await?;
            control.shared().store.replace(pipeline).await?;
            control.put(&id, plan, Status::Stopped { reason: StopReason::User });
            tracing::info!(pipeline = %id, "made through the API");
            Ok(())
        })
        .await
    }

    /// Changes a pipeline that was made through the API and does not run, all or nothing.
    ///
    /// # Errors
    /// There is none, a file declares it, it runs, `change` refuses, or there is an error after it that was not there
    /// before.
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
            let leaving = control.leaving(&id, dropped(&old, &new)).await?;
            {
                let _placing = control.placing().await;
                control.check_circle(&plan).await?;
                control.shared().store.replace(new).await?;
                control.put(&id, plan, old.status);
            }
            control.tell_set_aside(&id, leaving).await;
            Ok(done)
        })
        .await
    }

    /// Deletes a pipeline that does not run and that no file declares, and all that is stored of it. Says which plugins
    /// could not be told.
    ///
    /// # Errors
    /// There is none, a file declares it, it runs, it has connectors or processors and not `parts`, or positions of its
    /// sources are stored and not `positions`.
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
                // Nobody makes it while what is stored of it is deleted.
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
            let leaving = control.leaving(&id, old.connectors.iter().chain(&old.detached_connectors)).await?;
            let told = control.tell_deleted(&id, leaving).await;
            store.delete(&id).await?;
            if let Some((entry, _)) = &held {
                control.remove(entry);
            }
            tracing::info!(pipeline = %id, "deleted");
            Ok(told.into_iter().filter_map(|told| told.warning).collect())
        })
        .await
    }

    /// Has the service see `work` to its end, even if nobody waits for it any more.
    pub(super) async fn to_the_end<T: Send + 'static>(
        &self,
        task: Task,
        work: impl Future<Output = Result<T, EditError>> + Send + 'static,
    ) -> Result<T, EditError> {
        let (done, result) = oneshot::channel();
        self.see_to(task, async move {
            // Whoever asked may be gone.
            let _ = done.send(work.await);
            Done::Errand
        });
        result.await.unwrap_or(Err(EditError::Control(ControlError::ServiceStopping)))
    }

    /// The right to change a pipeline that stands, and what is stored of it.
    async fn to_be_changed(&self, id: &Str) -> Result<(Arc<Entry>, OwnedMutexGuard<()>, StoredPipeline), EditError> {
        let (entry, gate) = self.gate(id).await?;
        if entry.seen.borrow().status.is_live() {
            return Err(ControlError::Running(id.clone()).into());
        }
        entry.stands().await;
        let stored = self.stored(id).await?;
        // One that is not stored could never be: its file has errors.
        let stored = stored.ok_or_else(|| EditError::FromFile(id.clone()))?;
        Ok((entry, gate, stored))
    }

    pub(super) async fn stored(&self, id: &Str) -> Result<Option<StoredPipeline>, EditError> {
        Ok(self.shared().store.pipeline(id).await?)
    }

    /// Names tell pipelines apart where people look at them.
    async fn check_name(&self, pipeline: &StoredPipeline) -> Result<(), EditError> {
        let all = self.shared().store.pipelines().await?;
        let same = all.iter().any(|other| other.id != pipeline.id && other.name == pipeline.name && !other.detached);
        if same { Err(EditError::Exists { what: "pipeline named", id: pipeline.name.clone() }) } else { Ok(()) }
    }

    /// Looks for what is wrong with the parts of a pipeline.
    ///
    /// # Errors
    /// That.
    pub async fn check(&self, pipeline: &StoredPipeline) -> Result<(), EditError> {
        self.checked(None, pipeline).await.map(drop)
    }

    /// Refuses a pipeline that would close a circle with pipelines that the service has. Looks its files up elsewhere.
    pub(super) async fn check_circle(&self, plan: &Plan) -> Result<(), EditError> {
        let Plan::Good(pipeline) = plan else { return Ok(()) };
        let (pipeline, others) = (pipeline.clone(), self.others(&pipeline.config.id.value));
        let found = TEXTS.run(move || outputs::circle(&pipeline, &others)).await;
        match found.ok_or(ControlError::ServiceStopping)? {
            Some(finding) => Err(EditError::Invalid(finding.into())),
            None => Ok(()),
        }
    }

    /// What is run of `new`.
    ///
    /// # Errors
    /// What is wrong with it, where that is not wrong with `old` too: who changes one part need not mend the others.
    async fn checked(&self, old: Option<&StoredPipeline>, new: &StoredPipeline) -> Result<Plan, EditError> {
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

/// The connectors of `old` that `new` has not.
pub(super) fn dropped<'a>(
    old: &'a StoredPipeline,
    new: &'a StoredPipeline,
) -> impl Iterator<Item = &'a StoredConnector> {
    old.connectors.iter().filter(|was| !new.connectors.iter().any(|is| is.id == was.id))
}

/// The errors of findings.
pub(super) fn errors(findings: &Diagnostics) -> Diagnostics {
    Diagnostics(findings.iter().filter(|finding| finding.severity == Severity::Error).cloned().collect())
}
