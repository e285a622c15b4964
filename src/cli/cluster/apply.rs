//! `anabranch cluster apply`.

use std::path::PathBuf;

use anabranch_process::terminal::Style;
use anabranch_settings::ServiceFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::pipelines::apply::consent::{ApplyConsent, Decision, ProposedChanges};
use crate::cli::pipelines::apply::diff::{self, Diff};
use crate::cli::pipelines::apply::explained;
use crate::cli::pipelines::apply::targets::{ScriptPaths, targets};
use crate::cli::remote::Remote;
use crate::cli::{Context, Report};

/// Import all pipeline files of the cluster.
///
/// Shows what would change and a hash of the changes, and asks for confirmation. Then the node stores what the files declare
/// in one transaction, and each node applies the changes of the pipelines that it runs: it drains them, changes them and
/// resumes them. The files are the whole set: pipelines of earlier sets that they do not declare are drained and set aside
/// with their positions. Pipelines that were created through the API stay. A node that starts with files that were imported
/// before this does not import them again. Any node takes the request.
///
/// Exit codes: 0 the cluster has what the files declare, 1 the service is not a node or its store does not answer, 2 a file is
/// not valid, or another change came first, so that the plan is outdated, 3 no service answers, 4 there are differences and
/// nothing was changed, because of --check or because there is no terminal for the confirmation.
#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// Pipeline files, or directories of them. The nodes resolve their `${NAME}` from their own environments.
    #[arg(required = true, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    consent: ApplyConsent,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "cluster.apply";

#[derive(Serialize)]
struct SetRequest<'a> {
    files: &'a [SetFile],
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'a str>,
    strict: bool,
}

#[derive(Serialize)]
struct SetFile {
    name: String,
    yaml: String,
}

/// The plan of a node.
#[derive(Deserialize)]
struct SetPlan {
    pipelines: Vec<Value>,
    #[serde(default)]
    detached: Vec<String>,
    hash: String,
}

/// The plan, understood.
struct ClusterChanges {
    plan: SetPlan,
    pipelines: Vec<Diff>,
}

pub(super) fn apply(arguments: &Apply, context: &Context) -> Report {
    applied(arguments, context).unwrap_or_else(|report| *report)
}

fn applied(arguments: &Apply, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let mut files: Vec<SetFile> = Vec::new();
    // A file that declares several pipelines is there once for each.
    for target in targets(COMMAND, &arguments.paths, ScriptPaths::AsWritten, context)? {
        let name = target.path.display().to_string();
        if files.last().is_none_or(|file| file.name != name) {
            files.push(SetFile { name, yaml: target.yaml });
        }
    }
    let remote = Remote::of(COMMAND, &settings)?;
    let strict = arguments.strict || settings.pipelines.strict;
    let plan: SetPlan = remote
        .post("/v1/cluster/plan", &SetRequest { files: &files, hash: None, strict })
        .map_err(|report| explained(*report, &arguments.paths, &settings, context))?;
    let pipelines = plan.pipelines.iter().map(|plan| diff::read(COMMAND, plan)).collect::<Result<_, _>>()?;
    let changes = ClusterChanges { plan, pipelines };
    let proposed = ProposedChanges {
        text: changes.told(context.color),
        hash: &changes.plan.hash,
        differs: changes.differs(),
        rereads: changes.pipelines.iter().any(|pipeline| !pipeline.rereads.is_empty()),
        to: format!("the cluster of {}", remote.url()),
    };
    let mut text = match arguments.consent.decide(proposed, context, |text| changes.report(text, false))? {
        Decision::End(report) => return Ok(*report),
        Decision::Apply(text) => text,
    };
    let asked = SetRequest { files: &files, hash: Some(&changes.plan.hash), strict };
    let _: Value = remote.post("/v1/cluster/apply", &asked)?;
    text.push_str("Applied: the nodes change their pipelines.\n");
    Ok(changes.report(text, true))
}

impl ClusterChanges {
    fn differs(&self) -> bool {
        !self.plan.detached.is_empty() || self.pipelines.iter().any(Diff::differs)
    }

    fn told(&self, color: bool) -> String {
        let mut text = String::new();
        let (changed, same): (Vec<&Diff>, Vec<&Diff>) = self.pipelines.iter().partition(|pipeline| pipeline.differs());
        changed.iter().for_each(|pipeline| text.push_str(&diff::told(pipeline, color)));
        for id in &self.plan.detached {
            let head = Style::RED.paint(&format!("- pipeline {id}"), color);
            text.push_str(&format!("{head} is in none of the files: drained and set aside with its positions\n"));
        }
        if !same.is_empty() {
            text.push_str(&diff::up_to_date(same.len()));
        }
        if self.differs() {
            text.push_str(&format!("Hash: {}\n", self.plan.hash));
        }
        text
    }

    fn report(&self, text: String, applied: bool) -> Report {
        let changes: usize = self.pipelines.iter().map(|pipeline| pipeline.changes.len()).sum();
        let SetPlan { pipelines, detached, hash } = &self.plan;
        Report::new(COMMAND)
            .text(text)
            .summary(json!({ "pipelines": pipelines.len(), "changes": changes, "detached": detached.len() }))
            .result(json!({ "pipelines": pipelines, "detached": detached, "hash": hash, "applied": applied }))
    }
}
