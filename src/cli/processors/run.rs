//! `anabranch processors run`.

use std::sync::Arc;

use anabranch_config::{ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig, ProcessorConfig};
use anabranch_graph::exec::{Ending, RunOptions, Services, start};
use anabranch_graph::plan::{CompileOptions, Compiled, compile};
use anabranch_plugin::destination::Destination;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Files, Span, Spanned};
use anabranch_plugin::registry::Role;
use anabranch_plugin::settings::{Setting, Settings};
use anabranch_plugin::source::Source;
use anabranch_plugin::written::Written;
use anabranch_process::files::system;
use anabranch_process::log::{Log, Output};
use anabranch_process::terminal::{Stream, data, is_terminal};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_settings::SettingFlags;
use anabranch_trial::lines::StreamLines;
use anabranch_trial::output::{DeadLetterOutput, LettersDestination, Records, RecordsDestination};
use anabranch_trial::stamp::Stamp;
use anabranch_trial::{PreconfiguredPlugin, schemas, services};
use serde_json::json;

use crate::cli::completions;
use crate::cli::{Context, Exit, Report, registry_with, report};
use crate::codes;

/// Run one processor over records from standard input.
///
/// Reads records in JSON, one per line, from standard input, applies one processor to them exactly as a pipeline would,
/// and writes the resulting records to standard output in the same form. The input can be endless.
///
/// Records that fail are written to standard error as dead letters, one per line, and so are lines that are not
/// records; the others are still processed. The default position of a record is the number of its line. Log lines of
/// the processor are shown on a terminal; without a terminal, only with `--log.level`, between the dead letters.
///
/// Exit codes: 0 no record failed, 1 a record failed, 2 the processor or a setting is not valid, 3 standard input or
/// output cannot be used.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  anabranch processors run field.set --set field=.Metadata.seen --set value=yes < in.ndjson > out.ndjson")]
pub(in crate::cli) struct Arguments {
    /// Name of the processor, as pipelines write it.
    #[arg(add = completions::processors())]
    name: String,
    /// A setting of the processor; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// A template: the processor is applied to records for which it is true; the others pass unchanged.
    #[arg(long, value_name = "TEMPLATE")]
    condition: Option<String>,
    /// Number of workers that run in parallel; the order of records is kept.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    #[command(flatten)]
    service: SettingFlags<false>,
}

const COMMAND: &str = "processors.run";
const PIPELINE: &str = "processors-run";
const INPUT: &str = "stdin";
const OUTPUT: &str = "stdout";
const ERRORS: &str = "stderr";

pub(super) fn run(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings(COMMAND, &arguments.service) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let mut files = Files::new();
    let config = match configuration(arguments, &mut files) {
        Ok(config) => config,
        Err(findings) => return refused(&findings, &files, context),
    };
    let stamp = Stamp::new(PIPELINE, INPUT);
    let records = Arc::new(Records::new(data(Stream::Out), stamp.clone()));
    let letters = Arc::new(DeadLetterOutput::new(data(Stream::Err)));
    let source: Arc<dyn Source> = Arc::new(StreamLines::new(Box::new(std::io::stdin()), stamp, letters.clone()));
    let output: Arc<dyn Destination> = Arc::new(RecordsDestination(records.clone()));
    let errors: Arc<dyn Destination> = Arc::new(LettersDestination(letters.clone()));
    let mut registry = registry_with(&settings);
    registry.add_source(PreconfiguredPlugin::new(INPUT, "Records from standard input.", source));
    registry.add_destination(PreconfiguredPlugin::new(OUTPUT, "Records to standard output.", output));
    registry.add_destination(PreconfiguredPlugin::new(ERRORS, "Dead letters to standard error.", errors));
    let options =
        CompileOptions { split: settings.arch_v2, once: true, strict: false, limits: settings.limits, cluster: false };
    let compiled = match compile(&config, &registry, &options) {
        Ok(compiled) => compiled,
        Err(findings) => return refused(&findings, &files, context),
    };
    // Without a terminal, standard error carries only dead letters, so that programs can parse it.
    let watched = is_terminal(Stream::Err);
    if watched {
        context.note(&compiled.warnings, &files);
    }
    // Dropped when the command ends: only then have all lines been written.
    let _installed = if watched || arguments.service.get("log.level").is_some() {
        let output = match Output::standard_error() {
            Ok(output) => output,
            Err(error) => return not_started(&error),
        };
        let log = Log::new(settings.log, output);
        log.mask(compiled.secrets.iter().cloned());
        Some(log.install())
    } else {
        None
    };
    let schemas = match schemas::registry(&settings) {
        Ok(schemas) => schemas,
        Err(error) => {
            return Report::new(COMMAND).fail(Exit::Environment, codes::RUN_SCHEMA_REGISTRY, error.to_string());
        }
    };
    let report = match execute(&compiled, arguments.workers, services(schemas)) {
        _ if records.is_closed() => Report::new(COMMAND),
        Ok(Ending::Faulted(fault)) => failed(&fault),
        Ok(_) if letters.count() > 0 => Report::new(COMMAND).found(Exit::Failed),
        Ok(_) => Report::new(COMMAND),
        Err(error) => not_started(&error),
    };
    report.streamed()
}

fn not_started(error: &std::io::Error) -> Report {
    Report::new(COMMAND).fail(
        Exit::Environment,
        codes::CLI_SYSTEM,
        format!("cannot start the runtime: {}", system(error)),
    )
}

fn failed(fault: &Fault) -> Report {
    let exit = match fault.code() {
        codes::INPUT_FAILED | codes::OUTPUT_FAILED | codes::NO_THREAD => Exit::Environment,
        codes::SCRIPT_FAILED | codes::SCRIPT_NO_PROCESS => Exit::Invalid,
        _ => Exit::Failed,
    };
    Report::new(COMMAND).fail(exit, fault.code(), fault.message())
}

fn refused(findings: &Diagnostics, files: &Files, context: &Context) -> Report {
    Report::new(COMMAND)
        .notes(context.rendered(findings, files))
        .fail(Exit::Invalid, codes::PROCESSORS_INVALID, "the processor cannot be run")
        .result(json!({ "findings": report::findings(findings, files) }))
}

fn execute(compiled: &Compiled, workers: u32, services: Services) -> std::io::Result<Ending> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.min(workers as usize);
    // One thread starts fastest and is enough for one worker, because the input is parsed on a thread of its own.
    let mut runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = anabranch_process::runtime::start(runtime.worker_threads(threads))?;
    let options = RunOptions { once: true, mask: compiled.secrets.clone().into(), ..RunOptions::default() };
    let ending = runtime.block_on(async { start(compiled.stages.clone(), services, options).join().await });
    runtime.shutdown_background();
    Ok(ending)
}

/// Builds a pipeline from standard input to standard output from the arguments, with spans that point into them.
fn configuration(arguments: &Arguments, files: &mut Files) -> Result<PipelineConfig, Diagnostics> {
    let plugin = verbatim("NAME", &arguments.name, files);
    let plugin = Spanned::new(plugin.value().clone(), plugin.span());
    let condition = arguments.condition.as_ref().map(|text| verbatim("--condition", text, files));
    let workers = verbatim("--workers", &arguments.workers.to_string(), files).span();
    let processor = ProcessorConfig {
        id: plugin.clone(),
        settings: settings(&arguments.settings, plugin.span, files)?,
        plugin: plugin.clone(),
        condition: condition.filter(|text| !text.value().trim().is_empty()),
        workers: Spanned::new(arguments.workers, workers),
        span: plugin.span,
    };
    let here = plugin.span;
    let named = |name: &'static str| Spanned::new(Str::from_static(name), here);
    let connector = |name: &'static str, role: Role| ConnectorConfig {
        id: named(name),
        role: Spanned::new(role, here),
        plugin: named(name),
        name: named(name),
        condition: None,
        settings: Settings::default(),
        processors: Vec::new(),
        span: here,
    };
    Ok(PipelineConfig {
        id: named(PIPELINE),
        name: named(PIPELINE),
        description: Str::default(),
        status: DesiredStatus::Running,
        connectors: vec![connector(INPUT, Role::Source), connector(OUTPUT, Role::Destination)],
        processors: vec![processor],
        unmatched: None,
        placement: None,
        dead_letter_queue: DeadLetterConfig {
            plugin: named(ERRORS),
            settings: Settings::default(),
            // Any number of failures is allowed.
            window_size: Spanned::new(0, here),
            window_nack_threshold: Spanned::new(0, here),
            span: here,
        },
        span: here,
    })
}

fn verbatim(name: &'static str, text: &str, files: &mut Files) -> Written {
    Written::verbatim(text, files.add(name, text), 0)
}

fn settings(given: &[String], plugin: Span, files: &mut Files) -> Result<Settings, Diagnostics> {
    let mut settings = Settings { entries: Vec::with_capacity(given.len()), span: plugin };
    let mut findings = Diagnostics::new();
    for text in given {
        let file = files.add("--set", text.as_str());
        let end = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.trim().is_empty()) else {
            findings.push(
                Diagnostic::error(codes::PROCESSORS_INVALID_SETTING, format!("--set {text:?} is not a setting"))
                    .with_span(Span { file, start: 0, end: end(text.len()) })
                    .with_hint("write --set name=value"),
            );
            continue;
        };
        let span = Span { file, start: 0, end: end(name.len()) };
        settings.entries.push(Setting {
            name: Spanned::new(name.into(), span),
            value: Written::verbatim(value, file, end(name.len() + 1)),
        });
    }
    if findings.is_empty() { Ok(settings) } else { Err(findings) }
}
