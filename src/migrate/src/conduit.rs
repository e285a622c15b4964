//! Projects of Conduit: `conduit.yaml`, the pipeline files, and the names of the processors and connectors.
//!
//! The format of pipeline files is the same. Texts keep their comments and layout: only names of metadata, versions of
//! plugins, credentials, and the status of pipelines with something left to do are replaced.

mod credentials;
mod edits;
mod pipelines;
mod plugins;
mod service;
mod stopping;

use std::collections::BTreeMap;

use anabranch_plugin::registry::Registry;

use crate::report::{Job, Line, Outcome};
use crate::variables::{NeededVariable, Variables};

/// The texts of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// The text of `conduit.yaml`, if there is one.
    pub service: Option<String>,
    /// The texts of the pipeline files by their names.
    pub pipelines: BTreeMap<String, String>,
    /// `true` if the directory `connectors` has a file.
    pub has_connectors: bool,
    /// `true` if the directory `processors` has a file.
    pub has_processors: bool,
}

/// A project of Anabranch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigratedProject {
    /// The text of `anabranch.yaml`.
    pub service: String,
    /// The texts of the pipeline files by their names. A file that cannot be read as YAML is missing.
    pub pipelines: BTreeMap<String, String>,
    /// What became of `conduit.yaml` and of each pipeline file.
    pub jobs: Vec<Job>,
    /// Variables that must be set, by name.
    pub variables: Vec<NeededVariable>,
}

/// Turns a project of Conduit into one of Anabranch. `registry` has the built-in plugins. Its standalone plugins would be
/// started for their specifications, so it must have none.
pub fn migrate(project: &Project, registry: &Registry) -> MigratedProject {
    let mut variables = Variables::default();
    let mut migrated = MigratedProject::default();
    let service = service::migrate(project.service.as_deref());
    migrated.service = service.text;
    migrated.jobs.push(Job {
        name: "conduit.yaml".to_owned(),
        kind: "settings".to_owned(),
        pipeline: None,
        lines: service.lines,
    });
    for (name, meaning) in service.secrets {
        variables.name(&name, &name, meaning);
    }
    for (name, text) in &project.pipelines {
        let file = pipelines::migrate(name, text, project, registry, &mut variables);
        if let Some(text) = file.text {
            migrated.pipelines.insert(name.clone(), text);
        }
        migrated.jobs.push(Job { name: name.clone(), kind: "pipelines".to_owned(), pipeline: None, lines: file.lines });
    }
    migrated.variables = variables.into_needed();
    migrated
}

fn line(setting: &str, outcome: Outcome, to: &str, note: impl Into<String>) -> Line {
    Line { setting: setting.to_owned(), outcome, to: to.to_owned(), note: note.into(), blocks: false }
}
