//! Differences between two versions of a pipeline, without the values of settings.

use anabranch_config::{PipelineConfig, ProcessorConfig};
use anabranch_plugin::settings::{Setting, Settings};
use anabranch_record::text::{Str, hexadecimal};
use anabranch_store::{
    Action, Entity, Status, StoredConnector, StoredPipeline, StoredProcessor, StoredSetting, between,
};
use sha2::{Digest as _, Sha256};

use crate::pipeline::Pipeline;
use crate::renames::RereadSource;

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

pub(super) fn differences(old: Option<&StoredPipeline>, new: &StoredPipeline) -> Vec<Difference> {
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

/// Returns settings whose text is the same but whose value changed, because a file that they refer to changed.
pub(super) fn revalued(runs: &PipelineConfig, new: &PipelineConfig) -> Vec<Difference> {
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

/// Adds differences and merges those of the same resource.
pub(super) fn add(all: &mut Vec<Difference>, more: Vec<Difference>) {
    for new in more {
        match all.iter_mut().find(|known| (known.resource, &known.id) == (new.resource, &new.id)) {
            Some(known) => known.config_paths.extend(new.config_paths),
            None => all.push(new),
        }
    }
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

/// Returns `true` if the text changes the desired status of the pipeline.
pub(super) fn is_asked_to_start(changes: &[Difference]) -> bool {
    changes.iter().any(|change| change.config_paths.iter().any(|path| path == "/status"))
}

/// Returns a hash of the planned changes and of the stored and read pipelines before and after. It contains no value,
/// but changes with each value, with each change of the stored pipeline, and with the text of each script.
pub(super) fn hash(
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
    hexadecimal(&hash.finalize())
}

/// Returns the stored pipeline without its status.
pub(super) fn base(stored: &StoredPipeline) -> StoredPipeline {
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
