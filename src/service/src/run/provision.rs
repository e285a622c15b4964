//! The pipelines that a service has when it starts: those of files, and those that were created through the API.

use std::sync::Arc;

use anabranch_config::DesiredStatus;
use anabranch_record::text::Str;
use anabranch_store::{Import, Moment, Origin, Provision, Status, StopReason, StoredPipeline};
use sha2::{Digest as _, Sha256};

use super::{Service, ids_of};
use crate::control::Control;
use crate::document::Read;
use crate::error::ServiceError;
use crate::pipeline::Pipeline;
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::pipelines::Pipelines;
use crate::{outputs, renames};

impl Service {
    /// Returns the pipelines that were created through the API.
    pub(super) async fn made(&self, control: &Control) -> Result<Vec<StoredPipeline>, ServiceError> {
        let stored = control.shared().store.pipelines().await?;
        Ok(stored.into_iter().filter(|pipeline| pipeline.origin == Origin::Api).collect())
    }

    /// Has the pipelines again that were made through the API; those that nobody stopped are to be started.
    pub(super) fn take_back(&self, made: Vec<(StoredPipeline, Read)>, control: &Control) -> Vec<Arc<PipelineEntry>> {
        let mut starting = Vec::new();
        let mut made: Vec<(StoredPipeline, NextStart)> =
            made.into_iter().map(|(pipeline, read)| (pipeline, read.into_plan())).collect();
        set_apart(control, made.iter_mut().map(|(pipeline, plan)| (&pipeline.id, plan)));
        for (pipeline, plan) in made {
            let was_live = pipeline.status.is_live() || pipeline.status.is_stopped_by_system();
            let status = if was_live { Status::Stopped { reason: StopReason::System } } else { pipeline.status };
            let entry = control.put(&pipeline.id, plan, status);
            if was_live {
                starting.push(entry);
            }
        }
        starting
    }

    /// Stores the configuration that the files declare.
    pub(super) async fn provision(
        &self,
        pipelines: &Pipelines,
        awaited: &[StoredPipeline],
        control: &Control,
    ) -> Result<(), ServiceError> {
        let provision = Provision {
            // Pipelines that are loaded later count as valid until they are compiled.
            good: pipelines
                .good
                .iter()
                .map(|p| StoredPipeline::from(&p.config))
                .chain(awaited.iter().cloned())
                .collect(),
            invalid: ids_of(&pipelines.invalid),
            complete: pipelines.is_complete(),
            at: Moment::now(),
            texts: pipelines.files.iter().map(|(_, file)| Sha256::digest(file.text.as_bytes()).into()).collect(),
        };
        let store = &control.shared().store;
        let stored = store.pipelines().await?;
        let declared = |id: &Str| provision.invalid.contains(id) || provision.good.iter().any(|good| good.id == *id);
        let (here, gone): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|pipeline| pipeline.origin == Origin::Api || declared(&pipeline.id));
        for new in &provision.good {
            let old = here.iter().find(|old| old.id == new.id);
            let gone = if provision.complete { &gone[..] } else { &[] };
            for reread in renames::rereads(store, old, new, gone).await? {
                tracing::warn!(pipeline = %new.id, "{reread}");
            }
        }
        if store.membership().is_some() {
            let is_empty = provision.is_empty();
            // A node without files must not set aside what the others run.
            let provision = Provision { complete: provision.complete && !is_empty, ..provision };
            let spread = |pipeline: &Pipeline| (pipeline.config.id.value.clone(), control.spread(pipeline));
            match store.import(provision, pipelines.good.iter().map(spread).collect()).await? {
                Import::Stored(changes) => {
                    for change in changes {
                        tracing::info!(pipeline = %change.pipeline, "{change}");
                    }
                }
                Import::Current if is_empty => {
                    tracing::info!("this node has no pipeline files, so it imports none");
                }
                Import::Current => tracing::info!("the cluster has the pipeline files of this node"),
                Import::Older | Import::Outdated => tracing::warn!(
                    "the pipeline files of this node are not imported: the cluster had them before, and others have \
                     replaced them since"
                ),
            }
            return Ok(());
        }
        for change in store.provision(provision).await? {
            tracing::info!(pipeline = %change.pipeline, "{change}");
        }
        Ok(())
    }

    /// Has the pipelines of files, and remembers what is wrong with those that are not good; those that their files want
    /// started are to be started.
    pub(super) fn take_in(&self, pipelines: Pipelines, control: &Control) -> Vec<Arc<PipelineEntry>> {
        let mut starting = Vec::new();
        for invalid in &pipelines.invalid {
            let Some(id) = &invalid.id else { continue };
            tracing::error!(pipeline = %id, "invalid: the pipeline is not started");
            control.put(id, NextStart::Invalid(pipelines.first_error(invalid)), Status::Invalid);
        }
        let planned = |pipeline: Pipeline| {
            let wanted = pipeline.config.status == DesiredStatus::Running;
            (pipeline.config.id.value.clone(), wanted, NextStart::Good(Arc::new(pipeline)))
        };
        let mut good: Vec<(Str, bool, NextStart)> = pipelines.good.into_iter().map(planned).collect();
        set_apart(control, good.iter_mut().map(|(id, _, plan)| (&*id, plan)));
        for (id, wanted, plan) in good {
            let reason = if wanted { StopReason::System } else { StopReason::User };
            let is_good = matches!(plan, NextStart::Good(_));
            let entry = control.put(&id, plan, Status::Stopped { reason });
            if !is_good {
                continue;
            }
            if !wanted {
                tracing::info!(pipeline = %id, "not started: its file contains `status: stopped`");
            } else {
                starting.push(entry);
            }
        }
        starting
    }
}

/// Marks plans as invalid that form a cycle with each other or with the running pipelines. Pipelines of files were
/// compared with each other before; pipelines of the API and pipelines that load later were not.
fn set_apart<'p>(control: &Control, plans: impl Iterator<Item = (&'p Str, &'p mut NextStart)>) {
    let good = plans.filter_map(|(id, plan)| match &*plan {
        NextStart::Good(pipeline) => Some((id, pipeline.clone(), plan)),
        NextStart::Invalid(_) | NextStart::Incomplete(_) | NextStart::Loading => None,
    });
    let good: Vec<_> = good.collect();
    let joining: Vec<_> = good.iter().map(|(_, pipeline, _)| pipeline.clone()).collect();
    for ((id, _, plan), finding) in good.into_iter().zip(outputs::closing(&control.good(), &joining)) {
        if let Some(finding) = finding {
            tracing::error!(pipeline = %id, "invalid: the pipeline is not started: {}", finding.message);
            *plan = NextStart::Invalid(finding.message.into());
        }
    }
}
