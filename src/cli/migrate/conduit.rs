//! `anabranch migrate conduit`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anabranch_graph::plan::CompileOptions;
use anabranch_migrate::conduit::{self, Project};
use anabranch_process::files::{MAX_PIPELINE_FILE, read_text, system};
use serde_json::json;

use super::check::check;
use super::outcome::{self, Migrated};
use super::writing::{NewContent, NewFile, write};
use crate::cli::report::findings;
use crate::cli::{Context, Exit, Report, registry};
use crate::codes;

/// Turn a project of Conduit into one of Anabranch.
///
/// Reads `conduit.yaml` and the directories `pipelines`, `processors` and `connectors`. Writes `anabranch.yaml` and the
/// pipeline files to another directory, copies the processors and connectors without starting them, and reports what
/// became of each setting. Pipeline files keep their comments and layout.
///
/// Credentials become variables. A pipeline is stopped if something is left to do before it can run; the comment in its
/// file says what. The state of Conduit is not read: sources begin as at their first start. Existing files are never
/// changed. Exit code 0: every file was migrated; 2: some could not be read.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Directory of the project.
    #[arg(value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    project: PathBuf,
    /// Directory of the new project.
    #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    to: PathBuf,
    /// Print the files to standard output and the report to standard error, without writing anything.
    #[arg(long)]
    dry_run: bool,
}

const COMMAND: &str = "migrate.conduit";

pub(super) fn migrate(arguments: &Arguments, context: &Context) -> Report {
    match migrated(arguments, context) {
        Ok(report) | Err(report) => *report,
    }
}

fn migrated(arguments: &Arguments, context: &Context) -> Result<Box<Report>, Box<Report>> {
    let project_directory = &arguments.project;
    let mut project = Project { service: optional(&project_directory.join("conduit.yaml"))?, ..Project::default() };
    for path in children(&project_directory.join("pipelines"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".yaml") || name.ends_with(".yml") {
            project.pipelines.insert(name, read(&path)?);
        }
    }
    if project.service.is_none() && project.pipelines.is_empty() {
        let message = format!(
            "there is no project of Conduit in {}: neither conduit.yaml nor pipelines/*.yaml",
            project_directory.display()
        );
        return Err(Box::new(Report::new(COMMAND).fail(Exit::Invalid, codes::MIGRATE_INVALID_INPUT, message)));
    }
    let (processors, connectors) =
        (children(&project_directory.join("processors"))?, children(&project_directory.join("connectors"))?);
    project.has_processors = processors.iter().any(|path| path.is_file());
    project.has_connectors = connectors.iter().any(|path| path.is_file());
    // A standalone plugin would be started for its specification.
    let registry = registry();
    let migrated = conduit::migrate(&project, &registry);
    let mut files = vec![NewFile {
        path: arguments.to.join("anabranch.yaml"),
        content: NewContent::Text(migrated.service.clone()),
    }];
    let pipelines = arguments.to.join("pipelines");
    let names: Vec<String> = migrated.pipelines.keys().map(|name| pipelines.join(name).display().to_string()).collect();
    for (name, text) in &migrated.pipelines {
        files.push(NewFile { path: pipelines.join(name), content: NewContent::Text(text.clone()) });
    }
    for (directory, copied) in [("processors", &processors), ("connectors", &connectors)] {
        for path in copied.iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or_default();
            let to = arguments.to.join(directory).join(name);
            files.push(NewFile { path: to, content: NewContent::CopyOf(path.clone()) });
        }
    }
    let texts = names.iter().map(String::as_str).zip(migrated.pipelines.values().map(String::as_str));
    let (checked, found) = check(texts, &registry, &CompileOptions { split: true, ..CompileOptions::default() });
    if !arguments.dry_run {
        write(COMMAND, &files)?;
    }
    let jobs: Vec<Migrated<'_>> = migrated
        .jobs
        .iter()
        .map(|job| {
            let file = match job.name.as_str() {
                "conduit.yaml" => Some(arguments.to.join("anabranch.yaml").display().to_string()),
                name => migrated.pipelines.contains_key(name).then(|| pipelines.join(name).display().to_string()),
            };
            Migrated { job, file }
        })
        .collect();
    let refused = jobs.iter().filter(|job| job.file.is_none()).count();
    let mut text: String = jobs.iter().map(|job| job.text() + "\n").collect();
    for path in processors.iter().chain(&connectors).filter(|path| path.is_file()) {
        text.push_str(&format!("{}: copied\n", path.display()));
    }
    text.push_str(&outcome::variables(&migrated.variables));
    text.push_str(&outcome::last_line(files.len(), arguments.dry_run, outcome::to_do(&migrated.jobs), 0));
    let paths: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
    let notes = context.rendered(&found, &checked);
    let report = Report::new(COMMAND).summary(outcome::summary(&migrated.jobs)).result(json!({
        "files": paths,
        "sources": jobs.iter().map(Migrated::json).collect::<Vec<_>>(),
        "variables": migrated.variables,
        "findings": findings(&found, &checked),
    }));
    let report = match arguments.dry_run {
        true => {
            let mut printed = migrated.service.clone();
            for file in migrated.pipelines.values() {
                printed.push_str("---\n");
                printed.push_str(file);
            }
            report.text(printed).notes(text + &notes)
        }
        false => report.text(text).notes(notes),
    };
    Ok(Box::new(report.found(if refused > 0 { Exit::Invalid } else { Exit::Ok })))
}

/// Returns the text of a file; `None` if it does not exist.
fn optional(path: &Path) -> Result<Option<String>, Box<Report>> {
    if path.try_exists().unwrap_or(true) { read(path).map(Some) } else { Ok(None) }
}

fn read(path: &Path) -> Result<String, Box<Report>> {
    read_text(path, MAX_PIPELINE_FILE).map_err(|error| unreadable(path, &error.to_string()))
}

/// Returns the files of a directory in the order of their names; none if it does not exist.
fn children(directory: &Path) -> Result<Vec<PathBuf>, Box<Report>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(directory, &system(&error))),
    };
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(|error| unreadable(directory, &system(&error)))?;
    paths.sort();
    Ok(paths)
}

fn unreadable(path: &Path, error: &str) -> Box<Report> {
    let message = format!("cannot read {}: {error}", path.display());
    Box::new(Report::new(COMMAND).fail(Exit::Environment, codes::MIGRATE_UNREADABLE, message))
}
