//! `anabranch run`.

mod outcome;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anabranch_api::Api;
use anabranch_process::log::{Log, LogFormat, Output};
use anabranch_process::runtime;
use anabranch_service::listener::ListenError;
use anabranch_service::outputs;
use anabranch_service::pipelines::Pipelines;
use anabranch_service::{Companion, DeferredPipelines, Service, ServiceError, StopSource};
use anabranch_settings::{Database, SettingFlags, Settings};
use anabranch_store::{OpenError, Origin, Store, StoredPipeline};
use futures::FutureExt as _;
use serde_json::json;
use tokio::runtime::Builder;

use super::pipelines::FileWatch;
use super::{Context, Exit, Report, compile_options, registry_with, report};
use crate::codes;

/// Start the service and its pipelines.
///
/// Starts all pipelines, except those with `status: stopped` in their file. Ctrl+C stops the service: sources stop
/// reading, records that were read are delivered, and the next start resumes from there. A second Ctrl+C ends it at
/// once; records that were not delivered are then read again. With --pipelines.watch or --dev.enabled, the service also
/// applies pipeline files when they are saved, as `anabranch pipelines dev` does.
///
/// Errors in a pipeline file are reported, and its pipelines become `invalid`; the other pipelines run, and pipelines
/// can be created through the API. With --strict, a pipeline with warnings is `invalid` too.
///
/// With --once, the last line says how many records were read, delivered, filtered and dead-lettered, and how long it
/// took. A file that exists and has nothing new is a success. A path that does not exist, and a source from which
/// nothing was ever read, are not. A pipeline that reads what another one writes starts when that one has ended.
///
/// Exit codes:
/// 0 everything that was read is delivered, filtered or dead-lettered;
/// 1 a pipeline failed and ended the service (`--once`, `pipelines.exit-on-degraded`);
/// 2 a setting is not valid, or a pipeline file is not valid and the service runs with `--once`, with
/// `pipelines.exit-on-degraded`, or has nothing else to do;
/// 3 not everything was delivered in time, or the store or the port is in use;
/// 5 `--once`: nothing was read, because the sources had nothing to read;
/// 6 `--once`: a limit of the dead-letter queue removed dead letters;
/// 7 `--once`: not everything was read, because the run was interrupted or a source left something for a later run;
/// 128+n a second signal n ended it at once.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// End when there is nothing more to read and everything is delivered.
    #[arg(long)]
    once: bool,
    /// Refuse pipelines that have warnings; short for --pipelines.strict.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    settings: SettingFlags<true>,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Report {
    match context.settings("run", &arguments.settings) {
        Ok(mut settings) => {
            settings.pipelines.strict |= arguments.strict;
            let serving = ServeOptions {
                once: arguments.once,
                watches: (settings.dev || settings.pipelines.watch) && !arguments.once,
                ..ServeOptions::default()
            };
            serve("run", settings, serving, context)
        }
        Err(report) => *report,
    }
}

/// Options of how the service runs.
#[derive(Default)]
pub(super) struct ServeOptions {
    /// Read to the end of the sources, then stop.
    pub(super) once: bool,
    /// Apply files when they are saved. The service then also starts without files or with files that are not valid.
    pub(super) watches: bool,
    /// Called before the process aborts.
    pub(super) before_abort: Option<Box<dyn Fn()>>,
    /// Called with the address once HTTP is served.
    pub(super) on_listening: Option<Box<dyn FnOnce(SocketAddr)>>,
}

/// Runs the service with these settings until it ends.
pub(super) fn serve(command: &'static str, mut settings: Settings, serving: ServeOptions, context: &Context) -> Report {
    let ServeOptions { once, watches, before_abort, on_listening } = serving;
    if context.json {
        settings.log.format = LogFormat::Json;
    }
    if once && settings.cluster.is_some() {
        return Report::new(command)
            .fail(
                Exit::Invalid,
                codes::SERVICE_INVALID_SETTINGS,
                "--once contradicts cluster.url: the nodes of a cluster run pipelines until they are stopped"
                    .to_owned(),
            )
            .suggest("leave --once out, or cluster.url");
    }
    let path = settings.pipelines.path.clone();
    let (registry, options) = (registry_with(&settings), compile_options(&settings, once));
    let (mut pipelines, unloaded) = Pipelines::load_ready(&[&path], &registry, &options);
    let mut later = None;
    // If the exit code depends on all pipelines, or nothing else can start, wait until standalone plugins are loaded.
    if !unloaded.configs.is_empty() {
        if once || settings.pipelines.exit_on_degraded || pipelines.good.is_empty() {
            pipelines = Pipelines::load(&[&path], &registry, &options);
        } else {
            let (context, registry) = (context.clone(), registry.clone());
            later = Some(DeferredPipelines {
                stored: unloaded.configs.iter().map(StoredPipeline::from).collect(),
                compile: Box::new(move || {
                    let pipelines = unloaded.compile(&registry, &options);
                    context.note(&pipelines.findings, &pipelines.files);
                    pipelines
                }),
            });
        }
    }
    if !pipelines.unreadable.is_empty() && !path.exists() {
        return Report::new(command)
            .fail(
                Exit::Invalid,
                codes::SERVICE_INVALID_SETTINGS,
                format!("pipelines.path: the file or directory {} does not exist", path.display()),
            )
            .suggest("`anabranch init` creates the directory, `anabranch pipelines init` writes a pipeline into it");
    }
    let findings = pipelines.all_findings();
    let refused = pipelines.has_errors();
    // Further pipelines may be created through the API, or are in the store already.
    let waits = watches || settings.cluster.is_some() || !once && settings.api.is_some();
    let has_work = !pipelines.good.is_empty() || waits || has_made(&settings.database);
    if !has_work || (refused && settings.pipelines.exit_on_degraded && !watches) {
        let report = Report::new(command)
            .notes(context.rendered(&findings, &pipelines.files))
            .result(json!({ "findings": report::findings(&findings, &pipelines.files) }));
        return match (refused, pipelines.good.is_empty()) {
            (false, _) => report
                .fail(Exit::Invalid, codes::PIPELINES_NONE, format!("there is no pipeline in {}", path.display()))
                .suggest("`anabranch pipelines init` writes one"),
            (true, true) => report.fail(Exit::Invalid, codes::RUN_NO_VALID_PIPELINES, "no pipeline can be started"),
            (true, false) => report.fail(
                Exit::Invalid,
                codes::RUN_INVALID_PIPELINES,
                "a pipeline file has errors, and pipelines.exit-on-degraded is set: no pipeline was started",
            ),
        };
    }
    context.note(&findings, &pipelines.files);
    // Log lines would mix with the records, or overwrite them in a file that the shell opened.
    let output_is_data = pipelines.good.iter().any(outputs::writes_standard_output);
    let output = match output_is_data {
        true => Output::standard_error(),
        false => Output::standard(context.color, settings.log.format == LogFormat::Cli),
    };
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            return Report::new(command).fail(
                Exit::Environment,
                codes::RUN_NO_OUTPUT,
                format!("cannot write to standard output: {}", anabranch_process::files::system(&error)),
            );
        }
    };
    let log = Log::new(settings.log, output);
    let _installed = log.install();
    let text = settings.log.format == LogFormat::Cli;
    let companion: Option<Companion> = watches.then(|| {
        let watch = FileWatch::new(path, registry.clone(), options, context.clone(), &pipelines);
        Box::new(move |control| watch.watch(control).boxed()) as Companion
    });
    let log = Arc::clone(&log);
    let stops = StopSource::Signals;
    let service =
        Service { settings, registry, compile: options, log, once, stops, before_abort, on_listening, companion };
    let began = Instant::now();
    match service.run::<Api>(pipelines, later) {
        Ok(ended) => {
            let run =
                outcome::RunReport { once, text, output_is_data, refused: refused && once, took: began.elapsed() };
            outcome::conclude(Report::new(command), &ended, &run)
        }
        Err(ServiceError::Listen(error)) => {
            let (exit, code) = match &error {
                ListenError::InUse(_) => (Exit::Environment, codes::API_ADDRESS_IN_USE),
                ListenError::System { .. } => (Exit::Environment, codes::API_NOT_LISTENING),
                ListenError::Token(_) => (Exit::Invalid, codes::API_TOKEN_UNREADABLE),
                ListenError::Tls(_) | ListenError::NoCertificate(_) => (Exit::Invalid, codes::API_CERTIFICATE_UNUSABLE),
            };
            let report = Report::new(command).fail(exit, code, error.to_string());
            match error {
                ListenError::InUse(_) => report
                    .suggest("set another address with --api.http.address, or disable HTTP with --api.enabled=false"),
                ListenError::NoCertificate(_) => {
                    report.suggest("set the certificate with api.http.tls.cert, and its key with api.http.tls.key")
                }
                ListenError::System { .. } | ListenError::Token(_) | ListenError::Tls(_) => report,
            }
        }
        Err(error) => {
            let code = match &error {
                ServiceError::Open(OpenError::InUse { .. }) => codes::STORE_IN_USE,
                ServiceError::Open(_) | ServiceError::Store(_) => codes::STORE_UNAVAILABLE,
                ServiceError::Schemas(_) => codes::RUN_SCHEMA_REGISTRY,
                ServiceError::Traces(_) => codes::RUN_TRACES,
                ServiceError::System { .. } | ServiceError::Listen(_) => codes::CLI_SYSTEM,
            };
            Report::new(command).fail(Exit::Environment, code, error.to_string())
        }
    }
}

/// Returns `true` if the store contains pipelines that were created through the API, or cannot be read: the service
/// reports the errors of its store.
fn has_made(database: &Database) -> bool {
    let store = match Store::open_existing(database) {
        Ok(Some(store)) => store,
        Ok(None) => return false,
        Err(_) => return true,
    };
    let Ok(runtime) = runtime::start(&mut Builder::new_current_thread()) else { return true };
    let stored = runtime.block_on(store.pipelines());
    stored.map_or(true, |pipelines| pipelines.iter().any(|pipeline| pipeline.origin == Origin::Api))
}
