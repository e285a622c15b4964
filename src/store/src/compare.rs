//! Comparison of the configuration in the files with the stored configuration, entity by entity.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_record::text::Str;

use crate::entity::{Moment, Origin, Status, StopReason, StoredConnector, StoredPipeline, StoredProcessor};

/// The configuration that the files declare, to be compared with the stored one.
#[derive(Clone, Debug)]
pub struct Provision {
    /// Pipelines without errors.
    pub good: Vec<StoredPipeline>,
    /// Ids of pipelines with errors. Their stored configuration stays, and they are marked invalid.
    pub invalid: Vec<Str>,
    /// True if every file was read and parsed. Otherwise a missing pipeline does not count as deleted: a file that
    /// could not be parsed may declare it.
    pub complete: bool,
    /// The current time.
    pub at: Moment,
    /// SHA-256 of the text of each file, in any order.
    pub texts: Vec<[u8; 32]>,
}

impl Provision {
    /// Returns `true` if the files declare no pipelines.
    pub fn is_empty(&self) -> bool {
        self.good.is_empty() && self.invalid.is_empty()
    }
}

/// What became of a set of files that was to be imported into the store of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Import {
    /// It is stored, with these changes.
    Stored(Vec<ConfigurationChange>),
    /// It is the set that was imported last: nothing was changed.
    Current,
    /// It was imported before, and another set has replaced it since: nothing was changed.
    Older,
    /// The configuration has changed since the user saw the plan: nothing was changed.
    Outdated,
}

/// The entity that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entity {
    /// The pipeline itself.
    Pipeline,
    /// A connector.
    Connector(Str),
    /// A processor of the pipeline or of a connector.
    Processor {
        /// The connector that it belongs to, if any.
        connector: Option<Str>,
        /// Its id.
        id: Str,
    },
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The entity is new.
    Created,
    /// These fields changed in place; a connector keeps its position.
    Updated(Vec<&'static str>),
    /// The entity is missing in the files; its state is kept.
    Detached,
    /// The entity is back, with its previous state.
    Attached,
    /// A processor is missing; it had no state.
    Removed,
}

/// One difference between the files and the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationChange {
    /// The pipeline.
    pub pipeline: Str,
    /// The changed entity.
    pub entity: Entity,
    /// The kind of the change.
    pub action: Action,
}

impl fmt::Display for ConfigurationChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entity {
            Entity::Pipeline => f.write_str("the pipeline")?,
            Entity::Connector(id) => write!(f, "connector {id}")?,
            Entity::Processor { connector: None, id } => write!(f, "processor {id}")?,
            Entity::Processor { connector: Some(connector), id } => write!(f, "processor {connector}:{id}")?,
        }
        match &self.action {
            Action::Created => f.write_str(" is new"),
            Action::Updated(fields) => write!(f, " changed: {}", fields.join(", ")),
            Action::Detached => f.write_str(" is not in the files; its state is kept"),
            Action::Attached => f.write_str(" is back and resumes where it stopped"),
            Action::Removed => f.write_str(" was removed"),
        }
    }
}

/// The changes that make the stored configuration equal to the files.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// Pipelines to be stored.
    pub(super) puts: Vec<StoredPipeline>,
    /// Pairs of pipeline and connector: `detached` lists those whose marks are set aside, `attached` those whose marks
    /// are restored.
    pub(super) detached: Vec<(Str, Str)>,
    pub(super) attached: Vec<(Str, Str)>,
    /// The differences, for log lines and plans.
    pub(super) changes: Vec<ConfigurationChange>,
}

/// Compares all stored pipelines with the files, at the start of the only process that runs them.
pub(super) fn provision(stored: BTreeMap<Str, StoredPipeline>, provision: &Provision) -> Differences {
    compare_files(stored, provision, after_restart)
}

/// Compares all stored pipelines with files that are imported into a cluster. Pipelines may run on its nodes: their
/// statuses stay.
pub(super) fn import(stored: BTreeMap<Str, StoredPipeline>, provision: &Provision) -> Differences {
    compare_files(stored, provision, |status, autostart| match status {
        // The file declares a pipeline that was invalid before.
        Status::Invalid if autostart => Status::Stopped { reason: StopReason::System },
        Status::Invalid => Status::Stopped { reason: StopReason::User },
        _ => status.clone(),
    })
}

/// `status_after` returns the status of a stored pipeline from its status before and whether it is to be started.
fn compare_files(
    mut stored: BTreeMap<Str, StoredPipeline>,
    provision: &Provision,
    status_after: impl Fn(&Status, bool) -> Status,
) -> Differences {
    let mut found = Differences::default();
    for pipeline in &provision.good {
        // A file does not replace a pipeline that was created through the API.
        if stored.get(&pipeline.id).is_some_and(|old| old.origin == Origin::Api) {
            continue;
        }
        let old = stored.remove(&pipeline.id);
        let status = match &old {
            None => Status::Stopped { reason: StopReason::User },
            Some(old) => status_after(&old.status, pipeline.autostart),
        };
        found.replace(old.as_ref(), StoredPipeline { status, ..pipeline.clone() }, provision.at);
    }
    for (id, old) in stored {
        let mut next = old.clone();
        let of_the_api = old.origin == Origin::Api;
        next.status = status_after(&old.status, of_the_api);
        if of_the_api {
            // Files do not declare this pipeline.
        } else if provision.invalid.contains(&id) {
            next.status = Status::Invalid;
        } else if provision.complete && !old.detached {
            next.detached = true;
            found.changes.push(ConfigurationChange {
                pipeline: id,
                entity: Entity::Pipeline,
                action: Action::Detached,
            });
        }
        if next != old {
            found.puts.push(next);
        }
    }
    found
}

/// Compares one stored pipeline with its replacement; its status stays.
pub(super) fn replace(old: Option<&StoredPipeline>, next: &StoredPipeline, at: Moment) -> Differences {
    let mut found = Differences::default();
    let status = old.map_or_else(|| next.status.clone(), |old| old.status.clone());
    found.replace(old, StoredPipeline { status, ..next.clone() }, at);
    found
}

/// Returns the differences of `new` from `old`, in the order in which they are reported.
pub fn between(old: Option<&StoredPipeline>, new: &StoredPipeline) -> Vec<ConfigurationChange> {
    let differences = match old {
        None => vec![(Entity::Pipeline, Action::Created)],
        Some(old) => compare(old, new).1,
    };
    let change = |(entity, action)| ConfigurationChange { pipeline: new.id.clone(), entity, action };
    differences.into_iter().map(change).collect()
}

impl Differences {
    fn replace(&mut self, old: Option<&StoredPipeline>, mut next: StoredPipeline, at: Moment) {
        let differences = match old {
            None => vec![(Entity::Pipeline, Action::Created)],
            Some(old) => {
                let (detached_connectors, differences) = compare(old, &next);
                next.detached_connectors = detached_connectors;
                differences
            }
        };
        next.created = old.map_or(Some(at), |old| old.created);
        next.updated = if differences.is_empty() { old.and_then(|old| old.updated) } else { Some(at) };
        let pipeline = next.id.clone();
        for (entity, action) in differences {
            match (&entity, &action) {
                (Entity::Connector(id), Action::Detached) => self.detached.push((pipeline.clone(), id.clone())),
                (Entity::Connector(id), Action::Attached) => self.attached.push((pipeline.clone(), id.clone())),
                _ => {}
            }
            self.changes.push(ConfigurationChange { pipeline: pipeline.clone(), entity, action });
        }
        if old != Some(&next) {
            self.puts.push(next);
        }
    }
}

/// Returns the stored status for the start of a process: no pipeline runs yet, and what a crash left running counts as
/// stopped by the system. If the file does not ask for a start, this becomes stopped by the user.
fn after_restart(status: &Status, autostart: bool) -> Status {
    match status {
        Status::Stopped { reason: StopReason::System } if autostart => status.clone(),
        live if live.is_live() && autostart => Status::Stopped { reason: StopReason::System },
        Status::Degraded { .. } | Status::Finished => status.clone(),
        _ => Status::Stopped { reason: StopReason::User },
    }
}

type Parts = Vec<(Entity, Action)>;

/// Returns the connectors that are detached, and all differences.
fn compare(old: &StoredPipeline, new: &StoredPipeline) -> (Vec<StoredConnector>, Parts) {
    let mut differences = Vec::new();
    if old.detached {
        differences.push((Entity::Pipeline, Action::Attached));
    }
    let mut fields = Vec::new();
    fields.extend((old.name != new.name).then_some("name"));
    fields.extend((old.description != new.description).then_some("description"));
    fields.extend((old.autostart != new.autostart).then_some("status"));
    fields.extend((old.dead_letter != new.dead_letter).then_some("dead-letter-queue"));
    let ids = |p: &StoredPipeline| p.connectors.iter().map(|c| c.id.clone()).collect::<Vec<_>>();
    fields.extend((old.unmatched != new.unmatched).then_some("unmatched"));
    fields.extend((old.placement != new.placement).then_some("placement"));
    fields.extend(reordered(&ids(old), &ids(new)).then_some("order of connectors"));
    fields.extend(processors_reordered(&old.processors, &new.processors).then_some("order of processors"));
    if !fields.is_empty() {
        differences.push((Entity::Pipeline, Action::Updated(fields)));
    }
    compare_processors(None, &old.processors, &new.processors, &mut differences);

    let mut detached = old.detached_connectors.clone();
    for was in &old.connectors {
        // A connector is identified by its id and type: a source that becomes a destination is another connector.
        if !new.connectors.iter().any(|is| is.id == was.id && is.role == was.role) {
            differences.push((Entity::Connector(was.id.clone()), Action::Detached));
            detached.retain(|d| (&d.id, &d.role) != (&was.id, &was.role));
            detached.push(was.clone());
        }
    }
    for is in &new.connectors {
        let entity = Entity::Connector(is.id.clone());
        if let Some(was) = old.connectors.iter().find(|was| was.id == is.id && was.role == is.role) {
            compare_connector(was, is, &mut differences);
        } else if let Some(at) = detached.iter().position(|d| d.id == is.id && d.role == is.role) {
            let was = detached.remove(at);
            differences.push((entity, Action::Attached));
            compare_connector(&was, is, &mut differences);
        } else {
            differences.push((entity, Action::Created));
        }
    }
    (detached, differences)
}

fn compare_connector(was: &StoredConnector, is: &StoredConnector, differences: &mut Parts) {
    let mut fields = Vec::new();
    fields.extend((was.plugin != is.plugin).then_some("plugin"));
    fields.extend((was.name != is.name).then_some("name"));
    fields.extend((was.condition != is.condition).then_some("condition"));
    fields.extend((was.settings != is.settings).then_some("settings"));
    fields.extend(processors_reordered(&was.processors, &is.processors).then_some("order of processors"));
    if !fields.is_empty() {
        differences.push((Entity::Connector(is.id.clone()), Action::Updated(fields)));
    }
    compare_processors(Some(&is.id), &was.processors, &is.processors, differences);
}

fn compare_processors(
    connector: Option<&Str>,
    old: &[StoredProcessor],
    new: &[StoredProcessor],
    differences: &mut Parts,
) {
    let entity = |id: &Str| Entity::Processor { connector: connector.cloned(), id: id.clone() };
    let by_id: BTreeMap<&Str, &StoredProcessor> = old.iter().map(|p| (&p.id, p)).collect();
    for was in old.iter().filter(|was| !new.iter().any(|is| is.id == was.id)) {
        differences.push((entity(&was.id), Action::Removed));
    }
    for is in new {
        let Some(was) = by_id.get(&is.id) else {
            differences.push((entity(&is.id), Action::Created));
            continue;
        };
        let mut fields = Vec::new();
        fields.extend((was.plugin != is.plugin).then_some("plugin"));
        fields.extend((was.condition != is.condition).then_some("condition"));
        fields.extend((was.settings != is.settings).then_some("settings"));
        fields.extend((was.workers != is.workers).then_some("workers"));
        if !fields.is_empty() {
            differences.push((entity(&is.id), Action::Updated(fields)));
        }
    }
}

fn processors_reordered(old: &[StoredProcessor], new: &[StoredProcessor]) -> bool {
    let ids = |list: &[StoredProcessor]| list.iter().map(|p| p.id.clone()).collect::<Vec<_>>();
    reordered(&ids(old), &ids(new))
}

/// Returns `true` if the ids that are in both lists have a different order.
fn reordered(old: &[Str], new: &[Str]) -> bool {
    let kept = |list: &[Str], other: &[Str]| list.iter().filter(|id| other.contains(id)).cloned().collect::<Vec<_>>();
    kept(old, new) != kept(new, old)
}
