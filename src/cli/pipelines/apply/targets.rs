//! The pipelines that the given files declare.

use std::path::{Path, PathBuf};

use anabranch_config::{CODE_PATHS, Loaded, PipelineConfig, Variables, load};
use anabranch_plugin::diagnostic::FileId;
use anabranch_plugin::settings::Setting;
use anabranch_process::files::find_pipelines;
use anabranch_record::code::Code;
use anabranch_record::text::Str;
use anabranch_service::pipelines::script_path;
use serde_json::Value;

use crate::cli::{Context, Exit, Report};
use crate::codes;

/// A pipeline of a file.
pub(in crate::cli) struct Target {
    /// Path of the file.
    pub(in crate::cli) path: PathBuf,
    /// Text of the whole file.
    pub(in crate::cli) yaml: String,
    /// Id of the pipeline; `None` if it cannot be parsed from the text.
    id: Option<Str>,
    /// `true` if the file declares other pipelines too.
    several: bool,
}

/// The paths of scripts in the texts of pipelines.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) enum ScriptPaths {
    /// Absolute: the service runs on this machine, perhaps in another directory.
    Whole,
    /// As the files have them: each node has the scripts.
    AsWritten,
}

impl Target {
    /// Returns the id that the request must name, if the text declares several pipelines.
    pub(in crate::cli) fn asked(&self) -> Option<&str> {
        if self.several { self.id.as_deref() } else { None }
    }

    /// Returns a name for messages.
    pub(in crate::cli) fn name(&self) -> String {
        match &self.id {
            Some(id) => format!("{id} ({})", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

/// Placeholder values for variables: only the service needs the real ones.
struct PlaceholderVariables;

impl Variables for PlaceholderVariables {
    fn variable(&self, _: &str) -> Option<String> {
        Some("1".to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Ok("1".to_owned())
    }
}

/// Returns all pipelines that the files at the paths declare, in the order of the files.
///
/// # Errors
/// A file cannot be read or is not text; a file declares none; a pipeline is declared twice; there is none.
pub(in crate::cli) fn targets(
    command: &'static str,
    paths: &[PathBuf],
    scripts: ScriptPaths,
    context: &Context,
) -> Result<Vec<Target>, Box<Report>> {
    let found = find_pipelines(paths);
    let refused = |code: Code, message: String| Box::new(Report::new(command).fail(Exit::Invalid, code, message));
    if let Some((_, finding)) = found.unreadable.first() {
        return Err(refused(codes::CONFIG_UNREADABLE, finding.message.clone()));
    }
    let loaded = load(&found.files, &PlaceholderVariables);
    let mut targets: Vec<Target> = Vec::new();
    for (file, source) in found.files.iter() {
        let declared = declared(&loaded, file);
        let several = declared.len() > 1;
        if declared.is_empty() && !loaded.broken.contains(&file) {
            let report = refused(codes::CONFIG_NO_PIPELINES, format!("{} declares no pipeline", source.name));
            return Err(Box::new(
                report.suggest("write a pipeline into the file, or remove the file; nothing was applied"),
            ));
        }
        // The service has the most precise errors for a text that this program cannot parse.
        let ids = if declared.is_empty() { vec![None] } else { declared };
        targets.extend(ids.into_iter().map(|id| Target {
            path: PathBuf::from(source.name.as_str()),
            yaml: match scripts {
                ScriptPaths::Whole => with_whole_paths(&source.name, &source.text, pipelines_of(&loaded, file)),
                ScriptPaths::AsWritten => source.text.to_string(),
            },
            id,
            several,
        }));
    }
    if targets.is_empty() {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(refused(codes::PIPELINES_NONE, format!("there is no pipeline file in {}", paths.join(", "))));
    }
    let twice = targets.iter().enumerate().find_map(|(at, target)| {
        let id = target.id.as_ref()?;
        let before = targets[..at].iter().find(|before| before.id.as_ref() == Some(id))?;
        Some((id, before, target))
    });
    if let Some((id, first, second)) = twice {
        let message = format!("pipeline {id} is declared in {} and in {}", first.path.display(), second.path.display());
        let findings = context.rendered(&loaded.diagnostics, &found.files);
        return Err(Box::new(refused(codes::PROVISIONING_PIPELINE_ID_DUPLICATE, message).notes(findings)));
    }
    Ok(targets)
}

fn pipelines_of(loaded: &Loaded, file: FileId) -> impl Iterator<Item = &PipelineConfig> {
    loaded.pipelines.iter().filter(move |pipeline| pipeline.span.file == file)
}

/// Returns the text of a file in which paths of scripts are absolute, because the service does not know the directory
/// of the file.
fn with_whole_paths<'a>(name: &str, text: &str, pipelines: impl Iterator<Item = &'a PipelineConfig>) -> String {
    let processors = pipelines.flat_map(|pipeline| {
        pipeline.processors.iter().chain(pipeline.connectors.iter().flat_map(|connector| &connector.processors))
    });
    let mut paths: Vec<_> = processors
        .flat_map(|processor| CODE_PATHS.iter().filter_map(|(_, setting)| processor.settings.get(setting)))
        .collect();
    paths.sort_by_key(|setting| std::cmp::Reverse(setting.value.span().start));
    let mut whole = text.to_owned();
    for Setting { value, .. } in paths {
        let found = script_path(value.value(), name);
        let (Ok(absolute), true) = (std::path::absolute(&found), found.exists()) else { continue };
        let (Some(absolute), false) = (absolute.to_str(), Path::new(value.written().as_str()).is_absolute()) else {
            continue;
        };
        if value.written() == value.value() {
            let span = value.span();
            whole.replace_range(span.start as usize..span.end as usize, &Value::from(absolute).to_string());
        }
    }
    whole
}

fn declared(loaded: &Loaded, file: FileId) -> Vec<Option<Str>> {
    let good = loaded.pipelines.iter().map(|good| (good.span, Some(good.id.value.clone())));
    let invalid = loaded.invalid.iter().map(|invalid| (invalid.span, invalid.id.clone()));
    let mut all: Vec<_> = good.chain(invalid).filter(|(span, _)| span.file == file).collect();
    all.sort_by_key(|(span, _)| span.start);
    all.into_iter().map(|(_, id)| id).collect()
}
