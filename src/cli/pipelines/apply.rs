//! `anabranch pipelines apply`.

pub(in crate::cli) mod consent;
pub(in crate::cli) mod diff;
mod prune;
pub(in crate::cli) mod targets;

use std::path::{Path, PathBuf};

use anabranch_record::text::hexadecimal;
use anabranch_service::pipelines::Pipelines;
use anabranch_settings::{ServiceFlags, Settings};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::consent::{ApplyConsent, Decision, ProposedChanges};
use self::diff::Diff;
use self::prune::{KeptPipeline, UndeclaredPipeline};
use self::targets::{ScriptPaths, Target, targets};
use crate::cli::remote::Remote;
use crate::cli::report::counted;
use crate::cli::{Context, Report, compile_options, registry_with};

/// Apply pipeline files to a running service.
///
/// Shows what would change and a hash of the changes, and asks for confirmation. The service drains a running pipeline,
/// changes it and resumes it; if the new pipeline cannot be opened, the service restores the old one. With --plan-hash,
/// the command applies only the plan with this hash: if a file or a pipeline has changed since, nothing is done.
///
/// Exit code 0: the service matches the files, except for pipelines that --prune leaves; 2: a file is not valid, its
/// pipeline cannot be opened, or another change of the pipelines came first, so that the plan is outdated; 4: there are
/// differences and nothing was changed, because of --check or because there is no terminal for the confirmation.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Pipeline files, or directories of them. The service resolves their `${NAME}` from its own environment.
    #[arg(required = true, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    consent: ApplyConsent,
    /// Also stop and delete pipelines that no file declares, with their positions. Leaves pipelines that the service's
    /// own pipeline files declare: they are not a difference.
    #[arg(long)]
    prune: bool,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "pipelines.apply";

#[derive(Serialize)]
struct ApplyRequest<'a> {
    yaml: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
}

/// A pipeline of a file, compared with the pipeline of the service.
struct Compared {
    target: Target,
    plan: Value,
    diff: Diff,
}

/// All changes to apply.
struct ApplyPlan {
    pipelines: Vec<Compared>,
    /// Pipelines to delete.
    surplus: Vec<UndeclaredPipeline>,
    /// Pipelines that --prune leaves. They are shown, and are not a difference.
    kept: Vec<KeptPipeline>,
    /// `true` if the arguments are one file with one pipeline. The result is then that pipeline's plan.
    single: bool,
}

pub(super) fn apply(arguments: &Arguments, context: &Context) -> Report {
    applied(arguments, context).unwrap_or_else(|report| *report)
}

fn applied(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let mut settings = context.settings(COMMAND, &arguments.settings.0)?;
    settings.pipelines.strict |= arguments.strict;
    let targets = targets(COMMAND, &arguments.paths, ScriptPaths::Whole, context)?;
    let remote = Remote::of(COMMAND, &settings)?;
    let work = compare(targets, arguments, &remote, &settings, context)?;
    let hash = work.hash();
    let changes = ProposedChanges {
        text: work.told(context.color),
        hash: &hash,
        differs: work.differs(),
        rereads: work.pipelines.iter().any(|pipeline| !pipeline.diff.rereads.is_empty()),
        to: remote.url(),
    };
    match arguments.consent.decide(changes, context, |text| work.report(text, false))? {
        Decision::End(report) => Ok(*report),
        Decision::Apply(shown) => carry_out(work, shown, &remote, &settings, context),
    }
}

/// Requests the changes of each pipeline from the service. Compares every file before it reports the first error.
fn compare(
    targets: Vec<Target>,
    arguments: &Arguments,
    remote: &Remote,
    settings: &Settings,
    context: &Context,
) -> Result<ApplyPlan, Box<Report>> {
    let single = targets.len() == 1 && !arguments.prune;
    let mut pipelines = Vec::with_capacity(targets.len());
    let mut refused = Vec::new();
    for target in targets {
        let asked = ApplyRequest {
            yaml: &target.yaml,
            pipeline: target.asked(),
            hash: None,
            strict: settings.pipelines.strict,
        };
        match remote.post::<Value>("/v1/pipelines/plan", &asked) {
            Ok(plan) => pipelines.push(Compared { diff: diff::read(COMMAND, &plan)?, plan, target }),
            Err(report) => refused.push((target, report)),
        }
    }
    if let Some((target, report)) = refused.pop() {
        let others = refused.iter().map(|(target, _)| target.name());
        let report = explained(*report, &[&target.path], settings, context);
        let others: Vec<String> = others.collect();
        return Err(match others.is_empty() {
            true => report,
            false => Box::new(report.suggest(format!("also refused: {}", others.join(", ")))),
        });
    }
    let (surplus, kept) = match arguments.prune {
        true => {
            let declared: Vec<&str> = pipelines.iter().map(|pipeline| pipeline.diff.pipeline_id.as_str()).collect();
            prune::surplus(remote, &declared)?
        }
        false => Default::default(),
    };
    Ok(ApplyPlan { pipelines, surplus, kept, single })
}

fn carry_out(
    mut work: ApplyPlan,
    mut text: String,
    remote: &Remote,
    settings: &Settings,
    context: &Context,
) -> Result<Report, Box<Report>> {
    let mut notes = String::new();
    let mut failed: Vec<(String, Box<Report>)> = Vec::new();
    let mut done = 0;
    for Compared { target, plan, diff } in work.pipelines.iter_mut().filter(|pipeline| pipeline.diff.differs()) {
        let asked = ApplyRequest {
            yaml: &target.yaml,
            pipeline: target.asked(),
            hash: Some(&diff.hash),
            strict: settings.pipelines.strict,
        };
        match remote.post::<Value>("/v1/pipelines/apply", &asked) {
            Ok(answer) => {
                done += 1;
                plan["applied"] = true.into();
                let warnings = answer["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
                notes.extend(warnings.iter().filter_map(Value::as_str).map(|text| format!("warning: {text}\n")));
                if !warnings.is_empty() {
                    plan["warnings"] = warnings.into();
                }
            }
            Err(report) => {
                failed.push((diff.pipeline_id.clone(), explained(*report, &[&target.path], settings, context)));
            }
        }
    }
    for surplus in &mut work.surplus {
        match surplus.delete(remote) {
            Ok(()) => done += 1,
            Err(report) => failed.push((surplus.id.clone(), report)),
        }
    }
    if let Some((id, report)) = failed.pop() {
        if work.single {
            return Err(report);
        }
        notes.push_str(&format!("Applied {}; not applied: {id}", counted(done, "pipeline")));
        failed.iter().for_each(|(id, _)| notes.push_str(&format!(", {id}")));
        notes.push('\n');
        return Err(Box::new((*report).result(work.result(true)).text(text).notes(notes)));
    }
    text.push_str("Applied.\n");
    Ok(work.report(text, true).notes(notes))
}

impl ApplyPlan {
    fn differs(&self) -> bool {
        !self.surplus.is_empty() || self.pipelines.iter().any(|pipeline| pipeline.diff.differs())
    }

    /// Returns a hash of all changes.
    fn hash(&self) -> String {
        if let ([pipeline], []) = (&self.pipelines[..], &self.surplus[..]) {
            return pipeline.diff.hash.clone();
        }
        let mut hash = Sha256::new();
        for pipeline in &self.pipelines {
            hash.update(pipeline.diff.hash.as_bytes());
        }
        for surplus in &self.surplus {
            hash.update([0]);
            hash.update(surplus.id.as_bytes());
        }
        hexadecimal(&hash.finalize())
    }

    fn told(&self, color: bool) -> String {
        let alone = self.pipelines.len() == 1 && self.surplus.is_empty();
        let mut text = String::new();
        let mut unchanged = 0;
        for pipeline in &self.pipelines {
            if alone || pipeline.diff.differs() {
                text.push_str(&diff::told(&pipeline.diff, color));
            } else {
                unchanged += 1;
            }
        }
        self.surplus.iter().for_each(|surplus| text.push_str(&surplus.told(color)));
        self.kept.iter().for_each(|kept| text.push_str(&kept.told()));
        if !alone && unchanged > 0 {
            text.push_str(&diff::up_to_date(unchanged));
        }
        if self.differs() {
            text.push_str(&format!("Hash: {}\n", self.hash()));
        }
        text
    }

    fn result(&self, applied: bool) -> Value {
        let shown = |pipeline: &Compared| {
            let mut plan = pipeline.plan.clone();
            if plan["applied"].is_null() {
                plan["applied"] = false.into();
            }
            plan
        };
        if let (true, [pipeline]) = (self.single, &self.pipelines[..]) {
            return shown(pipeline);
        }
        json!({
            "pipelines": self.pipelines.iter().map(shown).collect::<Vec<_>>(),
            "pruned": self.surplus.iter().map(UndeclaredPipeline::shown).chain(self.kept.iter().map(KeptPipeline::shown)).collect::<Vec<_>>(),
            "hash": self.hash(),
            "applied": applied,
        })
    }

    fn report(&self, text: String, applied: bool) -> Report {
        let changes: usize = self.pipelines.iter().map(|pipeline| pipeline.diff.changes.len()).sum();
        let summary = match self.single {
            true => json!({ "changes": changes }),
            false => json!({
                "pipelines": self.pipelines.len(), "changes": changes, "pruned": self.surplus.len(),
            }),
        };
        Report::new(COMMAND).text(text).summary(summary).result(self.result(applied))
    }
}

/// Adds the findings of this program for the files, with their places, to a refusal of the service.
pub(in crate::cli) fn explained<P: AsRef<Path>>(
    report: Report,
    paths: &[P],
    settings: &Settings,
    context: &Context,
) -> Box<Report> {
    if !report.is_invalid() {
        return Box::new(report);
    }
    let pipelines = Pipelines::load(paths, &registry_with(settings), &compile_options(settings, false));
    Box::new(match pipelines.has_errors() {
        true => report.notes(context.rendered(&pipelines.all_findings(), &pipelines.files)),
        false => report,
    })
}
