//! `anabranch pipelines dev`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, FileId, SourceFile};
use anabranch_plugin::registry::Registry;
use anabranch_process::files::find_pipelines;
use anabranch_record::text::Str;
use anabranch_service::apply::Planned;
use anabranch_service::control::Control;
use anabranch_service::pipelines::{Pipeline, Pipelines, Script};
use anabranch_settings::SettingFlags;
use tokio::time::sleep;

use crate::cli::report::counted;
use crate::cli::{Context, Report, run};

/// Run the pipelines of a directory, and apply changes to their files.
///
/// Starts the service like `anabranch run`. When a file is saved, its pipelines are checked and, if they changed,
/// drained and restarted. If the file has errors, they are shown and the old pipeline continues. If a file is deleted,
/// its pipelines keep running. Scripts that `script.path` names are watched too, but files in `${file:…}` are not: save
/// the pipeline file to apply a change to them.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The directory, or one file. Default: `pipelines.path`
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    path: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<true>,
}

pub(super) fn dev(arguments: &Arguments, context: &Context) -> Report {
    const COMMAND: &str = "pipelines.dev";
    let mut settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    if let Some(path) = &arguments.path {
        settings.pipelines.path = path.clone();
    }
    // The user will fix a failed pipeline, so it must not end the service.
    settings.pipelines.exit_on_degraded = false;
    run::serve(COMMAND, settings, run::ServeOptions { watches: true, ..run::ServeOptions::default() }, context)
}

/// Polling interval, and how long a file must stay unchanged: editors write in several steps.
const LOOK: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_millis(300);

/// Watches pipeline files and applies changes to the service.
pub(in crate::cli) struct FileWatch {
    path: PathBuf,
    registry: Registry,
    options: CompileOptions,
    context: Context,
    /// The applied version of each file.
    loaded: BTreeMap<PathBuf, AppliedFile>,
}

/// The applied version of a file.
struct AppliedFile {
    text: Str,
    pipelines: BTreeSet<Str>,
    scripts: Vec<Script>,
}

/// File metadata that changes when a file is written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// Editors write a new file and rename it.
    inode: u64,
}

/// A file as it was last polled.
struct WatchedFile {
    stamp: FileStamp,
    /// Time of the last change.
    since: Instant,
    /// Text of the applied version, and its pipelines.
    text: Option<Str>,
    pipelines: BTreeSet<Str>,
    /// Scripts of the applied version, and their metadata.
    scripts: Vec<Script>,
    script_stamps: BTreeMap<PathBuf, FileStamp>,
    /// `true` if the file must be applied.
    changed: bool,
}

impl WatchedFile {
    fn new(stamp: FileStamp, since: Instant, changed: bool) -> Self {
        let (text, pipelines) = (None, BTreeSet::new());
        WatchedFile { stamp, since, text, pipelines, scripts: Vec::new(), script_stamps: BTreeMap::new(), changed }
    }

    fn stamps_of_scripts(&self) -> BTreeMap<PathBuf, FileStamp> {
        let paths = self.scripts.iter().map(|script| PathBuf::from(script.content.path.as_str()));
        paths.filter_map(|path| Some((stamp(&path)?, path))).map(|(stamp, path)| (path, stamp)).collect()
    }
}

impl FileWatch {
    /// Creates a watch of the files that `pipelines` were read from.
    pub(in crate::cli) fn new(
        path: PathBuf,
        registry: Registry,
        options: CompileOptions,
        context: Context,
        pipelines: &Pipelines,
    ) -> Self {
        let loaded = |(id, file): (FileId, &SourceFile)| {
            let (text, scripts) = (file.text.clone(), scripts(pipelines, id));
            (PathBuf::from(file.name.as_str()), AppliedFile { text, pipelines: ids(pipelines, id), scripts })
        };
        let loaded = pipelines.files.iter().map(loaded).collect();
        FileWatch { path, registry, options, context, loaded }
    }

    /// Watches until it is dropped. The loaded files count as applied; each is compared once with its current text,
    /// because it may have been saved since.
    pub(in crate::cli) async fn watch(mut self, control: Control) {
        let mut loaded = std::mem::take(&mut self.loaded);
        let watch = Arc::new(self);
        let mut files: BTreeMap<PathBuf, WatchedFile> = BTreeMap::new();
        let looked = watch.clone().looked().await;
        for (path, stamp) in looked {
            let mut file = WatchedFile::new(stamp, Instant::now(), true);
            if let Some(AppliedFile { text, pipelines, scripts }) = loaded.remove(&path) {
                (file.text, file.pipelines, file.scripts) = (Some(text), pipelines, scripts);
                file.script_stamps = file.stamps_of_scripts();
            }
            files.insert(path, file);
        }
        drop(loaded);
        tracing::info!(path = %watch.path.display(), "watching {}", counted(files.len(), "file"));
        loop {
            sleep(LOOK).await;
            let found = watch.clone().looked().await;
            let now = Instant::now();
            for path in files.keys().filter(|path| !found.contains_key(*path)) {
                tracing::warn!(path = %path.display(), outcome = "kept", "the file is gone; its pipelines keep running");
            }
            files.retain(|path, _| found.contains_key(path));
            for (path, stamp) in found {
                let file = files.entry(path).or_insert_with(|| WatchedFile::new(stamp, now, true));
                if file.stamp != stamp {
                    (file.stamp, file.since, file.changed) = (stamp, now, true);
                }
                let of_scripts = file.stamps_of_scripts();
                if file.script_stamps != of_scripts {
                    (file.script_stamps, file.since, file.changed) = (of_scripts, now, true);
                }
            }
            let settled = |file: &WatchedFile| file.changed && now.duration_since(file.since) >= SETTLED;
            if !files.values().any(settled) {
                continue;
            }
            let Some(mut pipelines) = watch.clone().compiled().await else { continue };
            for (path, file) in files.iter_mut().filter(|(_, file)| settled(file)) {
                file.changed = false;
                let Some(id) = file_of(&pipelines, path) else { continue };
                let text = pipelines.files.get(id).map(|file| file.text.clone());
                // Touched, or saved without a change.
                let scripts = scripts(&pipelines, id);
                if file.text.is_some() && file.text == text && file.scripts == scripts {
                    continue;
                }
                (file.text, file.scripts) = (text, scripts);
                file.script_stamps = file.stamps_of_scripts();
                let here = ids(&pipelines, id);
                if !pipelines.broken.contains(&id) {
                    for gone in file.pipelines.difference(&here) {
                        tracing::warn!(path = %path.display(), pipeline = %gone, outcome = "kept", "not in the file any more; it keeps running");
                    }
                    file.pipelines = here;
                }
                watch.take_up(path, id, &mut pipelines, &control).await;
            }
        }
    }

    /// Returns the pipeline files and their metadata.
    async fn looked(self: Arc<Self>) -> BTreeMap<PathBuf, FileStamp> {
        tokio::task::spawn_blocking(move || stamps(&self.path)).await.unwrap_or_default()
    }

    /// Compiles everything at the path, because ids and names must be unique across all files.
    async fn compiled(self: Arc<Self>) -> Option<Pipelines> {
        let compiled = tokio::task::spawn_blocking(move || {
            Pipelines::of(find_pipelines(&[&self.path]), &self.registry, &self.options)
        });
        compiled.await.ok()
    }

    /// Applies the pipelines of one file to the service.
    async fn take_up(&self, path: &Path, file: FileId, pipelines: &mut Pipelines, control: &Control) {
        let shown = path.display();
        let about = |finding: &&Diagnostic| finding.label.as_ref().is_some_and(|label| label.span.file == file);
        let findings = Diagnostics(pipelines.findings.iter().filter(about).cloned().collect());
        self.context.note(&findings, &pipelines.files);
        if pipelines.broken.contains(&file) {
            tracing::error!(path = %shown, outcome = "invalid", "{shown} is not valid: its pipelines keep running unchanged");
        }
        for invalid in pipelines.invalid.iter().filter(|invalid| invalid.span.file == file) {
            let id = invalid.id.as_ref().map_or("(without id)", |id| id.as_str());
            let keeps_running = control.all().iter().any(|(known, seen)| **known == *id && seen.status.is_live());
            let keeps_running = if keeps_running { "it keeps running unchanged" } else { "it is not started" };
            let error = pipelines.first_error(invalid);
            tracing::error!(path = %shown, pipeline = id, outcome = "invalid", error = %error, "not valid: {keeps_running}");
        }
        let (here, others): (Vec<Pipeline>, Vec<Pipeline>) =
            pipelines.good.drain(..).partition(|pipeline| pipeline.config.span.file == file);
        pipelines.good = others;
        for pipeline in here {
            let id = pipeline.config.id.value.clone();
            let started = Instant::now();
            let planned = control.take_up(pipeline).await;
            let milliseconds = started.elapsed().as_millis() as u64;
            let live = control.seen(&id).is_some_and(|seen| seen.status.is_live());
            match planned {
                Ok(planned) => {
                    let (mode, count) = (mode(&planned, live), planned.changes.len());
                    for note in &planned.notes {
                        tracing::info!(pipeline = %id, "{note}");
                    }
                    for reread in &planned.rereads {
                        tracing::warn!(pipeline = %id, "{reread}");
                    }
                    for change in &planned.changes {
                        let paths = change.config_paths.join(", ");
                        tracing::info!(pipeline = %id, "{} {} {} {paths}", change.action, change.resource, change.id);
                    }
                    tracing::info!(
                        path = %shown, pipeline = %id, mode, outcome = "applied", changes = count, milliseconds,
                        "{mode} in {milliseconds} ms"
                    );
                }
                Err(error) => {
                    tracing::error!(
                        path = %shown, pipeline = %id, outcome = "failed", milliseconds, %error, "not taken up"
                    );
                }
            }
        }
    }
}

/// Returns what happened to a pipeline, in a word.
fn mode(planned: &Planned, live: bool) -> &'static str {
    match (planned.changes.is_empty(), planned.restart, live) {
        (true, ..) => "unchanged",
        (false, true, true) => "restarted",
        (false, false, true) => "started",
        (false, _, false) => "stored",
    }
}

/// Returns the id of the file with this path.
fn file_of(pipelines: &Pipelines, path: &Path) -> Option<FileId> {
    pipelines.files.iter().find(|(_, file)| Path::new(file.name.as_str()) == path).map(|(id, _)| id)
}

/// Returns the ids of the pipelines of a file, valid or not.
fn ids(pipelines: &Pipelines, file: FileId) -> BTreeSet<Str> {
    let good = pipelines.good.iter().filter(|pipeline| pipeline.config.span.file == file);
    let good = good.map(|pipeline| pipeline.config.id.value.clone());
    let invalid = pipelines.invalid.iter().filter(|invalid| invalid.span.file == file);
    good.chain(invalid.filter_map(|invalid| invalid.id.clone())).collect()
}

/// Returns the scripts that a file names.
fn scripts(pipelines: &Pipelines, file: FileId) -> Vec<Script> {
    let name = pipelines.files.get(file).map(|file| file.name.clone()).unwrap_or_default();
    pipelines.scripts.iter().filter(|script| name == *script.pipeline_file.as_str()).cloned().collect()
}

fn stamps(path: &Path) -> BTreeMap<PathBuf, FileStamp> {
    let paths = anabranch_process::files::pipeline_files(path).unwrap_or_default();
    paths.into_iter().filter_map(|path| Some((stamp(&path)?, path))).map(|(stamp, path)| (path, stamp)).collect()
}

fn stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileStamp { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() })
}
