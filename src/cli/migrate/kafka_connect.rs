//! `anabranch migrate kafka-connect`.

use std::path::{Path, PathBuf};

use anabranch_migrate::connect::{self, Worker};
use anabranch_process::files::read_text;
use anabranch_settings::SettingFlags;
use serde_json::json;

use super::check::check;
use super::outcome::{self, Migrated};
use super::writing::{NewContent, NewFile, write};
use crate::cli::pipelines::is_yaml;
use crate::cli::report::findings;
use crate::cli::{Context, Exit, Report, compile_options, registry};
use crate::codes;

/// Turn connectors of Kafka Connect into pipeline files.
///
/// Reads connectors as JSON (the settings, an object with "name" and "config", the answer of
/// `GET /connectors?expand=info`, or a list of these) or as properties files. Writes a pipeline file for each, and reports
/// what became of each setting. Known classes: JDBC source and sink for PostgreSQL, S3 sink, FileStream source and sink,
/// Debezium for PostgreSQL.
///
/// Credentials become variables; no file and no output contains them. A pipeline is stopped if something is left to do
/// before it can run; the comment in its file says what. Existing files are never changed. Exit code 0: each connector has
/// a pipeline; 2: some have none.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Files with connectors.
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Properties file of the workers, for addresses, logins and converters that connectors do not set.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    worker: Option<PathBuf>,
    /// Print the pipeline files to standard output and the report to standard error, without writing anything.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

const COMMAND: &str = "migrate.kafka-connect";
/// Maximum size of a file.
const MAX_BYTES: u64 = 8 << 20;

pub(super) fn migrate(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let worker = match arguments.worker.as_deref().map(read) {
        None => Worker::default(),
        Some(Ok(text)) => connect::read_worker(&text),
        Some(Err(report)) => return *report,
    };
    let mut connectors = Vec::new();
    for file in &arguments.files {
        let text = match read(file) {
            Ok(text) => text,
            Err(report) => return *report,
        };
        match connect::read(&file.display().to_string(), &text) {
            Ok(found) => connectors.extend(found),
            Err(error) => {
                let message = format!("{}: {error}", file.display());
                return Report::new(COMMAND).fail(Exit::Invalid, codes::MIGRATE_INVALID_INPUT, message);
            }
        }
    }
    let migration = connect::migrate(&connectors, &worker);
    let directory = match &settings.pipelines.path {
        path if is_yaml(path) && !path.is_dir() => path.parent().unwrap_or(Path::new(".")).to_owned(),
        directory => directory.clone(),
    };
    let place = |id: &str| directory.join(format!("{id}.yaml"));
    let pipelines = || migration.jobs.iter().filter_map(|job| job.pipeline.as_ref());
    let names: Vec<String> = pipelines().map(|pipeline| place(&pipeline.id).display().to_string()).collect();
    let texts = names.iter().map(String::as_str).zip(pipelines().map(|pipeline| pipeline.text.as_str()));
    let (checked, found) = check(texts, &registry(), &compile_options(&settings, false));
    if !arguments.dry_run {
        let files: Vec<NewFile> = pipelines()
            .map(|pipeline| NewFile { path: place(&pipeline.id), content: NewContent::Text(pipeline.text.clone()) })
            .collect();
        if let Err(report) = write(COMMAND, &files) {
            return *report;
        }
    }
    let file = |id: &str| place(id).display().to_string();
    let migrated: Vec<Migrated<'_>> = migration
        .jobs
        .iter()
        .map(|job| Migrated { job, file: job.pipeline.as_ref().map(|pipeline| file(&pipeline.id)) })
        .collect();
    let refused = migration.jobs.iter().filter(|job| job.pipeline.is_none()).count();
    let mut text: String = migrated.iter().map(|migrated| migrated.text() + "\n").collect();
    text.push_str(&outcome::variables(&migration.variables));
    text.push_str(&outcome::last_line(names.len(), arguments.dry_run, outcome::to_do(&migration.jobs), refused));
    let shown: Vec<_> = migrated
        .iter()
        .map(|migrated| {
            let mut shown = migrated.json();
            if let Some(pipeline) = migrated.job.pipeline.as_ref().filter(|_| arguments.dry_run) {
                shown["text"] = pipeline.text.as_str().into();
            }
            shown
        })
        .collect();
    let notes = context.rendered(&found, &checked);
    let report = Report::new(COMMAND).summary(outcome::summary(&migration.jobs)).result(json!({
        "connectors": shown,
        "variables": migration.variables,
        "findings": findings(&found, &checked),
    }));
    let report = match arguments.dry_run {
        true => {
            let files: Vec<&str> = pipelines().map(|pipeline| pipeline.text.as_str()).collect();
            report.text(files.join("---\n")).notes(text + &notes)
        }
        false => report.text(text).notes(notes),
    };
    report.found(if refused > 0 || found.has_errors() { Exit::Invalid } else { Exit::Ok })
}

fn read(path: impl AsRef<Path>) -> Result<String, Box<Report>> {
    let path = path.as_ref();
    read_text(path, MAX_BYTES).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Box::new(Report::new(COMMAND).fail(Exit::Environment, codes::MIGRATE_UNREADABLE, message))
    })
}
