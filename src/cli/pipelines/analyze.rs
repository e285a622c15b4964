//! Runs pipelines to measure them, for `pipelines plan --analyze`.

use std::sync::Arc;

use anabranch_graph::exec::{Trial, try_out};
use anabranch_graph::plan::Measured;
use anabranch_process::files::system;
use anabranch_process::log::{Log, Output};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_service::ServiceError;
use anabranch_service::pipelines::Pipeline;
use anabranch_settings::Settings;
use anabranch_trial::schemas::registry;
use tokio::runtime::Builder;

use crate::cli::{Exit, Report};
use crate::codes;

/// Reasons why a pipeline could not be measured.
#[derive(Debug)]
pub(super) enum AnalyzeError {
    /// The operating system refuses.
    System(std::io::Error),
    /// The settings of the schema registry cannot be used.
    Schemas(ServiceError),
    /// A connector or processor cannot be opened.
    NotOpened { pipeline: Str, error: String },
}

impl AnalyzeError {
    pub(super) fn report(self, report: Report) -> Report {
        match self {
            AnalyzeError::System(error) => {
                report.fail(Exit::Environment, codes::CLI_SYSTEM, format!("cannot run a pipeline: {}", system(&error)))
            }
            AnalyzeError::Schemas(error) => {
                report.fail(Exit::Environment, codes::RUN_SCHEMA_REGISTRY, error.to_string())
            }
            AnalyzeError::NotOpened { pipeline, error } => {
                report.fail(Exit::Failed, codes::PLAN_NOT_OPENED, format!("{pipeline} cannot be analyzed: {error}"))
            }
        }
    }
}

/// Runs the pipelines one after the other, so that they do not compete for time. Their log goes to standard error.
pub(super) fn analyze(
    pipelines: &[&Pipeline],
    trial: Trial,
    settings: &Settings,
) -> Result<Vec<Measured>, AnalyzeError> {
    let runtime = anabranch_process::runtime::start(&mut Builder::new_multi_thread()).map_err(AnalyzeError::System)?;
    let schemas = registry(settings).map_err(AnalyzeError::Schemas)?;
    let log = Log::new(settings.log, Output::standard_error().map_err(AnalyzeError::System)?);
    let _installed = log.install();
    let measure = |pipeline: &&Pipeline| {
        let compiled = &pipeline.compiled;
        log.mask(compiled.secrets.iter().cloned());
        let mask = compiled.secrets.clone().into();
        let measured =
            runtime.block_on(try_out(&compiled.stages, trial, Arc::<Log>::clone(&log), mask, schemas.clone()));
        let masked = |text: String| log.masked(&text);
        let refused = |fault: Fault| AnalyzeError::NotOpened {
            pipeline: pipeline.config.id.value.clone(),
            error: masked(fault.to_string()),
        };
        let mut measured = measured.map_err(refused)?;
        measured.cut_short = measured.cut_short.map(masked);
        Ok(measured)
    };
    let measured = pipelines.iter().map(measure).collect();
    // A call that hangs in the operating system must not keep the command from ending.
    runtime.shutdown_background();
    measured
}
