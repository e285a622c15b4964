//! The pipelines that a command works on: those of a file, the one with an id, or all.

use std::path::{Path, PathBuf};

use anabranch_record::near::did_you_mean;
use anabranch_service::pipelines::{Pipeline, Pipelines};
use anabranch_settings::Settings;
use anabranch_trial::synthetic::{TrialLimits, try_some};
use serde_json::json;

use super::is_yaml;
use crate::cli::{Context, Exit, Report, compile_options, registry_with, report};
use crate::codes;

/// The pipelines at a path, and the id of the requested one.
pub(in crate::cli) struct ChosenPipelines<'a> {
    path: PathBuf,
    id: Option<&'a str>,
    /// All pipelines at the path.
    pub(in crate::cli) pipelines: Pipelines,
}

/// The error of a command if no requested pipeline can run.
pub(in crate::cli) struct NoRunnablePipeline {
    /// Name of the command.
    pub(in crate::cli) command: &'static str,
    /// Message if all pipelines have errors.
    pub(in crate::cli) invalid: &'static str,
}

impl<'a> ChosenPipelines<'a> {
    /// Loads and compiles pipelines: `which` is a file, or an id in `pipelines.path`; by default, all pipelines there.
    pub(in crate::cli) fn load(which: Option<&'a str>, settings: &Settings) -> Self {
        let file = which.and_then(as_file);
        let id = if file.is_some() { None } else { which };
        let path = file.unwrap_or_else(|| settings.pipelines.path.clone());
        let pipelines = Pipelines::load(&[&path], &registry_with(settings), &compile_options(settings, false));
        ChosenPipelines { path, id, pipelines }
    }

    /// Tries the requested pipelines that can run with synthetic records, and adds what was found to the findings.
    /// Returns the number of pipelines for which there was no time.
    pub(in crate::cli) fn try_synthetic(&mut self, limits: TrialLimits) -> usize {
        let id = self.id;
        try_some(&mut self.pipelines, limits, |pipeline| id.is_none_or(|id| pipeline.config.id.value == *id))
    }

    /// Returns the requested pipelines that can run, at least one.
    ///
    /// # Errors
    /// There is none, or all pipelines were requested and some have errors.
    pub(in crate::cli) fn good(
        &self,
        refusal: &NoRunnablePipeline,
        context: &Context,
    ) -> Result<Vec<&Pipeline>, Box<Report>> {
        let ChosenPipelines { path, id, pipelines } = self;
        let wanted = |of: Option<&str>| id.is_none() || of == *id;
        let good: Vec<&Pipeline> = pipelines.good.iter().filter(|p| wanted(Some(&p.config.id.value))).collect();
        let bad = pipelines.invalid.iter().any(|p| wanted(p.id.as_deref())) || !pipelines.is_complete();
        let refused = good.is_empty() || (bad && id.is_none());
        if !refused {
            return Ok(good);
        }
        let findings = pipelines.all_findings();
        let report = Report::new(refusal.command)
            .notes(context.rendered(&findings, &pipelines.files))
            .result(json!({ "findings": report::findings(&findings, &pipelines.files) }));
        Err(Box::new(match id {
            Some(id) if !bad => {
                let message = format!("there is no pipeline {id:?} in {}", path.display());
                let report = report.fail(Exit::Invalid, codes::PIPELINE_NOT_FOUND, message);
                match did_you_mean(id, pipelines.good.iter().map(|p| p.config.id.value.as_str())) {
                    Some(near) => report.suggest(format!("did you mean {near}?")),
                    None => report,
                }
            }
            _ if bad => report.fail(Exit::Invalid, codes::PIPELINE_INVALID, refusal.invalid),
            _ => {
                report.fail(Exit::Invalid, codes::PIPELINES_NONE, format!("there is no pipeline in {}", path.display()))
            }
        }))
    }
}

/// Returns the argument as a path if it looks like a file or is one.
fn as_file(which: &str) -> Option<PathBuf> {
    let path = Path::new(which);
    (is_yaml(path) || which.contains('/') || path.exists()).then(|| path.to_path_buf())
}
