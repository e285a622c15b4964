//! The service's plan for one pipeline.

use std::fmt::Write as _;

use anabranch_process::terminal::Style;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::report::counted;
use crate::cli::{Exit, Report};
use crate::codes;

/// Changes, planned or applied.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Diff {
    pub(in crate::cli) pipeline_id: String,
    #[serde(default)]
    pub(in crate::cli) changes: Vec<DiffChange>,
    /// `true` if the service has to drain the pipeline to apply them.
    #[serde(default)]
    restart: bool,
    /// Sources that read from their beginning although they seem to replace others.
    #[serde(default)]
    pub(in crate::cli) rereads: Vec<Repeat>,
    /// Effects of the changes on stored positions.
    #[serde(default)]
    notes: Vec<String>,
    pub(in crate::cli) hash: String,
}

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Repeat {
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct DiffChange {
    resource: String,
    id: String,
    action: String,
    #[serde(default)]
    config_paths: Vec<String>,
}

impl Diff {
    pub(in crate::cli) fn differs(&self) -> bool {
        !self.changes.is_empty()
    }
}

/// Parses the answer of the service.
///
/// # Errors
/// The answer comes from another program, or from another version of this one.
pub(in crate::cli) fn read(command: &'static str, plan: &Value) -> Result<Diff, Box<Report>> {
    Diff::deserialize(plan).map_err(|error| {
        let message = format!("this program cannot read the response of the service: {error}");
        Box::new(Report::new(command).fail(Exit::Failed, codes::SERVICE_FOREIGN, message))
    })
}

/// Formats the changes as text. Values are not shown.
pub(in crate::cli) fn told(diff: &Diff, color: bool) -> String {
    let notes = || diff.notes.iter().map(|note| format!("Note: {note}\n"));
    if !diff.differs() {
        let same = format!("Pipeline {} is up to date with the file; there is nothing to change.\n", diff.pipeline_id);
        return std::iter::once(same).chain(notes()).collect();
    }
    let mut text = format!("Pipeline {}: {}\n", diff.pipeline_id, counted(diff.changes.len(), "change"));
    for change in &diff.changes {
        let (mark, style) = match change.action.as_str() {
            "create" => ("+", Style::GREEN),
            "delete" => ("-", Style::RED),
            _ => ("~", Style::YELLOW),
        };
        // A pipeline as a whole has an empty path.
        let paths: Vec<&str> = change.config_paths.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
        let paths = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
        let head = style.paint(&format!("{mark} {} {}", change.resource, change.id), color);
        let _ = writeln!(text, "  {head}{paths}");
    }
    if diff.restart {
        text.push_str("The pipeline runs: the service drains it, changes it, and resumes it.\n");
    }
    text.extend(notes());
    for reread in &diff.rereads {
        let _ = writeln!(text, "Records will be delivered again: {}.", reread.message);
    }
    text
}

/// Says how many pipelines do not change.
pub(in crate::cli) fn up_to_date(pipelines: usize) -> String {
    let verb = if pipelines == 1 { "is" } else { "are" };
    format!("{} {verb} up to date with the files.\n", counted(pipelines, "pipeline"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_told_without_values() {
        let plan = json!({
            "pipelineId": "p", "restart": true, "hash": "abc",
            "rereads": [{ "source": "p:b", "replaces": "p:a", "records": 2, "message": "source p:b is new" }],
            "changes": [
                { "resource": "connector", "id": "p:out", "action": "update", "configPaths": ["settings.path"] },
                { "resource": "processor", "id": "p:new", "action": "create", "configPaths": [""] },
            ],
        });
        let text = told(&read("test", &plan).unwrap(), false);
        assert_eq!(
            text,
            "Pipeline p: 2 changes\n  ~ connector p:out: settings.path\n  + processor p:new\nThe pipeline runs: the \
             service drains it, changes it, and resumes it.\nRecords will be delivered again: source p:b is new.\n"
        );
        assert!(read("test", &json!({ "pipelineId": 1 })).is_err());
    }
}
