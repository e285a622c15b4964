//! Importing a set of pipeline files into the store of a cluster, because a user asks for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::Files;
use anabranch_process::files::PipelineFiles;
use anabranch_process::runtime::TEXTS;
use anabranch_record::text::{Str, hexadecimal};
use anabranch_store::{Import, Moment, Origin, Provision, StoredPipeline};
use sha2::{Digest as _, Sha256};

use super::Planned;
use crate::control::{Control, ControlError};
use crate::edit::{EditError, errors};
use crate::outputs;
use crate::pipeline::Pipeline;
use crate::pipelines::Pipelines;
use crate::tasks::Task;

/// All pipeline files of a cluster.
#[derive(Debug)]
pub struct DesiredSet {
    /// The files: names for findings, and texts.
    pub files: Vec<(String, String)>,
    /// True if warnings are errors, even if the settings of the node do not say so.
    pub strict: bool,
}

/// The plan of importing a set.
#[derive(Clone, Debug)]
pub struct PlannedSet {
    /// The plan of each pipeline of the set, also without changes.
    pub pipelines: Vec<Planned>,
    /// Pipelines of earlier sets that this one does not declare: they are drained, and their positions are kept.
    pub detached: Vec<Str>,
    /// Those of them that run.
    ended: Vec<Str>,
    /// Hash of all of this.
    pub hash: String,
}

impl PlannedSet {
    fn of(pipelines: Vec<Planned>, detached: Vec<Str>, ended: Vec<Str>) -> PlannedSet {
        let mut hash = Sha256::new();
        pipelines.iter().for_each(|planned| hash.update(planned.hash.as_bytes()));
        for id in &detached {
            hash.update([0]);
            hash.update(id.as_bytes());
        }
        PlannedSet { pipelines, detached, ended, hash: hexadecimal(&hash.finalize()) }
    }
}

impl Control {
    /// Returns the plan of importing a set of files. Opens nothing.
    ///
    /// # Errors
    /// A file has errors, a pipeline of it was created through the API, or the store cannot be read.
    pub async fn plan_set(&self, desired: DesiredSet) -> Result<PlannedSet, EditError> {
        let pipelines = self.read_set(desired).await?;
        self.propose_set(&pipelines).await
    }

    /// Imports a set of files into the store of the cluster, in one transaction. Each node applies the changes of the
    /// pipelines that it runs: it drains and resumes them. A node that starts with files that were imported before does not
    /// import them again.
    ///
    /// # Errors
    /// The errors of [`Control::plan_set`]; `hash` differs from the hash of the current plan; or a pipeline that runs would
    /// be restarted, and the settings do not allow it.
    pub async fn apply_set(&self, desired: DesiredSet, hash: String) -> Result<PlannedSet, EditError> {
        let control = self.clone();
        let texts = desired.files.iter().map(|(_, text)| Sha256::digest(text).into()).collect();
        self.to_the_end(Task::Apply, async move {
            let pipelines = control.read_set(desired).await?;
            let _making = control.making().await;
            let store = &control.shared().store;
            // Read before the plan: a change of another node makes the plan outdated.
            let revision = store.revision().await?;
            let planned = control.propose_set(&pipelines).await?;
            if planned.hash != hash {
                return Err(EditError::StaleSet);
            }
            let restarted = planned.pipelines.iter().find(|planned| planned.restart).map(|planned| &planned.id);
            if let Some(id) = restarted.or(planned.ended.first())
                && !control.shared().live_restart
            {
                return Err(EditError::RunsOn(id.clone()));
            }
            let provision = Provision {
                good: pipelines.iter().map(|pipeline| StoredPipeline::from(&pipeline.config)).collect(),
                invalid: Vec::new(),
                complete: true,
                at: Moment::now(),
                texts,
            };
            let spreads = pipelines.iter().map(|it| (it.config.id.value.clone(), control.spread(it))).collect();
            match store.import_on_request(provision, spreads, revision).await? {
                Import::Stored(changes) => {
                    for change in changes {
                        tracing::info!(pipeline = %change.pipeline, "{change}");
                    }
                }
                Import::Current => {}
                Import::Older | Import::Outdated => return Err(EditError::StaleSet),
            }
            if let Some(membership) = store.membership() {
                membership.look();
            }
            Ok(planned)
        })
        .await
    }

    async fn read_set(&self, DesiredSet { files, strict }: DesiredSet) -> Result<Vec<Arc<Pipeline>>, EditError> {
        let compile = self.shared().compile;
        let options = CompileOptions { strict: strict || compile.strict, ..compile };
        let registry = self.shared().registry.clone();
        let read = TEXTS.run(move || {
            let mut texts = Files::new();
            for (name, text) in files {
                texts.add(name, text);
            }
            Pipelines::of(PipelineFiles { files: texts, unreadable: Vec::new() }, &registry, &options)
        });
        let pipelines = read.await.ok_or(ControlError::ServiceStopping)?;
        let wrong = errors(&pipelines.findings);
        if !wrong.is_empty() {
            return Err(EditError::Invalid(wrong));
        }
        match pipelines.good.is_empty() {
            true => Err(EditError::NotOne(0)),
            false => Ok(pipelines.good.into_iter().map(Arc::new).collect()),
        }
    }

    async fn propose_set(&self, pipelines: &[Arc<Pipeline>]) -> Result<PlannedSet, EditError> {
        let declared: BTreeSet<&Str> = pipelines.iter().map(|pipeline| &pipeline.config.id.value).collect();
        let stored = self.shared().store.pipelines().await?;
        if let Some(made) = stored.iter().find(|it| it.origin == Origin::Api && declared.contains(&it.id)) {
            let what =
                "a pipeline with this id was created through the API: delete it first, or change its id in the files";
            return Err(ControlError::Invalid { id: made.id.clone(), what: what.into() }.into());
        }
        let is_left_out =
            |it: &&StoredPipeline| it.origin == Origin::File && !it.detached && !declared.contains(&it.id);
        let left_out: Vec<&StoredPipeline> = stored.iter().filter(is_left_out).collect();
        let detached: Vec<Str> = left_out.iter().map(|it| it.id.clone()).collect();
        let ended = left_out.iter().filter(|it| it.status.is_live()).map(|it| it.id.clone()).collect();
        let is_staying = |id: &Str| !declared.contains(id) && !detached.contains(id);
        let staying: Vec<_> = self.good().into_iter().filter(|it| is_staying(&it.config.id.value)).collect();
        let joining = pipelines.to_vec();
        // Those of the set were compared with each other when they were read.
        let closing = TEXTS.run(move || outputs::closing(&staying, &joining)).await;
        if let Some(finding) = closing.ok_or(ControlError::ServiceStopping)?.into_iter().flatten().next() {
            return Err(EditError::Invalid(finding.into()));
        }
        let mut planned = Vec::with_capacity(pipelines.len());
        for pipeline in pipelines {
            planned.push(self.compare(pipeline, true, &stored, &detached).await?.planned);
        }
        Ok(PlannedSet::of(planned, detached, ended))
    }
}
