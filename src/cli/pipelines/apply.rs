//! `anabranch pipelines apply`.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::remote::Remote;
use crate::cli::report::counted;
use crate::cli::{Context, Exit, Report, compile_options, registry_with};
use crate::files::{MAX_PIPELINE_FILE, read_text};
use crate::pipelines::Pipelines;
use crate::settings::{ServiceFlags, Settings};

/// Bring a running service in line with a pipeline file.
///
/// Shows what would change and the hash of it, and asks. A pipeline that runs is drained, changed, and goes on where it
/// was; one that cannot be started goes back to what it was. With --plan-hash only that is applied which was shown
/// before: if the file, or the pipeline, has changed since, nothing is done.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The pipeline file. Its `${NAME}` are read by the service, from its own environment.
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Do it without asking.
    #[arg(short, long)]
    yes: bool,
    /// Do it if this is still the hash of what would change.
    #[arg(long, value_name = "HASH", conflicts_with = "yes")]
    plan_hash: Option<String>,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "pipelines.apply";

#[derive(Serialize)]
struct Asked<'a> {
    yaml: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'a str>,
}

/// What would change, or did.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Diff {
    pipeline_id: String,
    #[serde(default)]
    changes: Vec<DiffChange>,
    /// Whether it has to be drained for it.
    #[serde(default)]
    restart: bool,
    hash: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiffChange {
    resource: String,
    id: String,
    action: String,
    #[serde(default)]
    config_paths: Vec<String>,
}

pub(super) fn apply(arguments: &Arguments, context: &Context) -> Report {
    applied(arguments, context).unwrap_or_else(|report| *report)
}

fn applied(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let yaml = read_text(&arguments.file, MAX_PIPELINE_FILE).map_err(|error| {
        let message = format!("cannot read {}: {error}", arguments.file.display());
        Box::new(Report::new(COMMAND).fail(Exit::Invalid, "config.unreadable", message))
    })?;
    let remote = Remote::of(COMMAND, &settings)?;
    let explained = |report: Box<Report>| explained(*report, &arguments.file, &settings, context);
    let plan: Value = remote.post("/v1/pipelines/plan", &Asked { yaml: &yaml, hash: None }).map_err(explained)?;
    let diff = read(&plan)?;
    let mut text = told(&diff, context.color);
    let shown = |applied: bool| {
        let mut shown = plan.clone();
        shown["applied"] = applied.into();
        shown
    };
    let summary = json!({ "changes": diff.changes.len() });
    let unchanged = |text: String, notes: &str| {
        Report::new(COMMAND).text(text).notes(notes).summary(summary.clone()).result(shown(false))
    };
    if let Some(hash) = &arguments.plan_hash
        && *hash != diff.hash
    {
        let message = "what would change is not what this hash stands for";
        let report = unchanged(text, "").fail(Exit::Invalid, "provisioning.plan_stale", message);
        return Err(Box::new(report.suggest(format!("look at it; what is shown now has --plan-hash {}", diff.hash))));
    }
    if diff.changes.is_empty() {
        return Ok(unchanged(text, ""));
    }
    if !arguments.yes && arguments.plan_hash.is_none() {
        // Asked about what is on the screen, and not about what follows.
        let question = format!("{text}Apply it to {}?", remote.url());
        match context.confirm(&question) {
            Some(true) => text.clear(),
            Some(false) => return Ok(unchanged("Nothing was changed.\n".to_owned(), "")),
            None => {
                let advice = format!("Nothing was changed. Apply it with --plan-hash {}, or with --yes.\n", diff.hash);
                return Ok(unchanged(text, &advice));
            }
        }
    }
    let asked = Asked { yaml: &yaml, hash: Some(&diff.hash) };
    let applied: Value = remote.post("/v1/pipelines/apply", &asked).map_err(explained)?;
    let _ = writeln!(text, "Applied.");
    let warnings = applied["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let notes: String = warnings.iter().filter_map(Value::as_str).map(|text| format!("warning: {text}\n")).collect();
    let mut result = shown(true);
    if !warnings.is_empty() {
        result["warnings"] = warnings.into();
    }
    Ok(Report::new(COMMAND).text(text).notes(notes).summary(summary).result(result))
}

fn read(plan: &Value) -> Result<Diff, Box<Report>> {
    Diff::deserialize(plan).map_err(|error| {
        let message = format!("the service answered what this program does not understand: {error}");
        Box::new(Report::new(COMMAND).fail(Exit::Failed, "service.foreign", message))
    })
}

/// What is wrong with the file as far as it shows here, with the places, for what the service refused.
fn explained(report: Report, file: &PathBuf, settings: &Settings, context: &Context) -> Box<Report> {
    let pipelines = Pipelines::load(&[file], &registry_with(settings), &compile_options(settings, false));
    Box::new(match report.is_invalid() && pipelines.has_errors() {
        true => report.notes(context.rendered(&pipelines.all_findings(), &pipelines.files)),
        false => report,
    })
}

fn told(diff: &Diff, color: bool) -> String {
    if diff.changes.is_empty() {
        return format!("Pipeline {} is as the file has it; there is nothing to change.\n", diff.pipeline_id);
    }
    let mut text = format!("Pipeline {}: {}\n", diff.pipeline_id, counted(diff.changes.len(), "change"));
    for change in &diff.changes {
        let (mark, style) = match change.action.as_str() {
            "create" => ("+", "\x1b[32m"),
            "delete" => ("-", "\x1b[31m"),
            _ => ("~", "\x1b[33m"),
        };
        let (style, reset) = if color { (style, "\x1b[0m") } else { ("", "") };
        let paths = match change.config_paths.as_slice() {
            [] => String::new(),
            paths => format!(": {}", paths.join(", ")),
        };
        let _ = writeln!(text, "  {style}{mark} {} {}{reset}{paths}", change.resource, change.id);
    }
    if diff.restart {
        text.push_str("It runs: it is drained, changed, and goes on where it was.\n");
    }
    let _ = writeln!(text, "Hash: {}", diff.hash);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_without_values() {
        let plan = json!({
            "pipelineId": "p", "restart": true, "hash": "abc",
            "changes": [
                { "resource": "connector", "id": "p:out", "action": "update", "configPaths": ["settings.path"] },
                { "resource": "processor", "id": "p:new", "action": "create", "configPaths": [] },
            ],
        });
        let text = told(&read(&plan).unwrap(), false);
        assert_eq!(
            text,
            "Pipeline p: 2 changes\n  ~ connector p:out: settings.path\n  + processor p:new\n\
             It runs: it is drained, changed, and goes on where it was.\nHash: abc\n"
        );
        assert!(read(&json!({ "pipelineId": 1 })).is_err());
    }
}
