//! The pipelines that the given files declare.

use std::path::PathBuf;

use anabranch_graph::config::{Variables, load};
use anabranch_graph::diagnostic::FileId;
use anabranch_graph::text::Str;

use crate::cli::{Context, Exit, Report};
use crate::files::find_pipelines;

/// A pipeline of a file.
pub(super) struct Target {
    /// The file.
    pub(super) path: PathBuf,
    /// Its whole text.
    pub(super) yaml: String,
    /// The id of the pipeline; `None` where the text does not tell it.
    id: Option<Str>,
    /// Whether the file declares other pipelines too.
    several: bool,
}

impl Target {
    /// The pipeline to name to the service, where its text alone does not tell which one is meant.
    pub(super) fn asked(&self) -> Option<&str> {
        if self.several { self.id.as_deref() } else { None }
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        match &self.id {
            Some(id) => format!("{id} ({})", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

/// The service knows the values, this machine need not.
struct Elsewhere;

impl Variables for Elsewhere {
    fn variable(&self, _: &str) -> Option<String> {
        Some("1".to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Ok("1".to_owned())
    }
}

/// All pipelines that the files at the paths declare, in the order of files and places.
///
/// # Errors
/// A file cannot be read or is not text; a pipeline is declared twice; there is none.
pub(super) fn targets(command: &'static str, paths: &[PathBuf], context: &Context) -> Result<Vec<Target>, Box<Report>> {
    let found = find_pipelines(paths);
    let refused =
        |code: &'static str, message: String| Box::new(Report::new(command).fail(Exit::Invalid, code, message));
    if let Some((_, finding)) = found.unreadable.first() {
        return Err(refused("config.unreadable", finding.message.clone()));
    }
    let loaded = load(&found.files, &Elsewhere);
    let mut targets: Vec<Target> = Vec::new();
    for (file, source) in found.files.iter() {
        let declared = declared(&loaded, file);
        let several = declared.len() > 1;
        // The service says best what is wrong with a text that declares nothing.
        let ids = if declared.is_empty() { vec![None] } else { declared };
        targets.extend(ids.into_iter().map(|id| Target {
            path: PathBuf::from(source.name.as_str()),
            yaml: source.text.to_string(),
            id,
            several,
        }));
    }
    if targets.is_empty() {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(refused("run.no_pipelines", format!("there is no pipeline file in {}", paths.join(", "))));
    }
    let twice = targets.iter().enumerate().find_map(|(at, target)| {
        let id = target.id.as_ref()?;
        let before = targets[..at].iter().find(|before| before.id.as_ref() == Some(id))?;
        Some((id, before, target))
    });
    if let Some((id, first, second)) = twice {
        let message = format!("pipeline {id} is declared in {} and in {}", first.path.display(), second.path.display());
        let findings = context.rendered(&loaded.diagnostics, &found.files);
        return Err(Box::new(refused("provisioning.pipeline_id_duplicate", message).notes(findings)));
    }
    Ok(targets)
}

fn declared(loaded: &anabranch_graph::config::Loaded, file: FileId) -> Vec<Option<Str>> {
    let good = loaded.pipelines.iter().map(|good| (good.span, Some(good.id.value.clone())));
    let invalid = loaded.invalid.iter().map(|invalid| (invalid.span, invalid.id.clone()));
    let mut all: Vec<_> = good.chain(invalid).filter(|(span, _)| span.file == file).collect();
    all.sort_by_key(|(span, _)| span.start);
    all.into_iter().map(|(_, id)| id).collect()
}
