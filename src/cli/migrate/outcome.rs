//! The report of a migration, as text and as JSON.

use std::fmt::Write as _;

use anabranch_migrate::{Job, Line, NeededVariable, Outcome};
use serde_json::{Value, json};

use crate::cli::report::counted;

/// One migrated connector or file, with the file that was written for it.
pub(super) struct Migrated<'j> {
    pub(super) job: &'j Job,
    /// The written file, if there is one.
    pub(super) file: Option<String>,
}

impl Migrated<'_> {
    /// Returns the report on the settings as text.
    pub(super) fn text(&self) -> String {
        let Job { name, kind, lines, .. } = self.job;
        let to = match &self.file {
            Some(file) => format!(" -> {file}"),
            None => ": not migrated".to_owned(),
        };
        let mut text = format!("{name} ({kind}){to}\n");
        for line in lines {
            let _ = writeln!(text, "  {:<14}{}", word(line), described(line));
        }
        text
    }

    /// Returns the report on the settings as JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.job.name,
            "kind": self.job.kind,
            "file": self.file,
            "pipeline": self.job.pipeline.as_ref().map(|pipeline| &pipeline.id),
            "complete": !self.job.lines.iter().any(|line| line.blocks),
            "settings": self.job.lines,
        })
    }
}

/// Returns the outcome in a word or two.
fn word(line: &Line) -> &'static str {
    match line.outcome {
        _ if line.blocks => "to do",
        Outcome::Carried => "carried over",
        Outcome::Changed => "changed",
        Outcome::NotCarried => "left out",
    }
}

fn described(line: &Line) -> String {
    let mut text = line.setting.clone();
    if !line.to.is_empty() {
        let _ = write!(text, " -> {}", line.to);
    }
    if !line.note.is_empty() {
        let _ = write!(text, ": {}", line.note);
    }
    text
}

/// Returns the variables to set, as text.
pub(super) fn variables(needed: &[NeededVariable]) -> String {
    if needed.is_empty() {
        return String::new();
    }
    let width = needed.iter().map(|variable| variable.name.len()).max().unwrap_or_default();
    let mut text = "Variables to set:\n".to_owned();
    for NeededVariable { name, meaning } in needed {
        let _ = writeln!(text, "  {name:<width$}  {meaning}");
    }
    text
}

/// Returns the counts of outcomes for the summary in JSON.
pub(super) fn summary(jobs: &[Job]) -> Value {
    let count =
        |outcome: Outcome| jobs.iter().flat_map(|job| &job.lines).filter(|line| line.outcome == outcome).count();
    json!({
        "connectors": jobs.len(),
        "pipelines": jobs.iter().filter(|job| job.pipeline.is_some()).count(),
        "carried": count(Outcome::Carried),
        "changed": count(Outcome::Changed),
        "notCarried": count(Outcome::NotCarried),
        "toDo": to_do(jobs),
    })
}

/// Returns the number of settings about which the user has to do something.
pub(super) fn to_do(jobs: &[Job]) -> usize {
    jobs.iter().flat_map(|job| &job.lines).filter(|line| line.blocks).count()
}

/// Returns the last line of the report.
pub(super) fn last_line(files: usize, is_dry: bool, to_do: usize, refused: usize) -> String {
    let mut text = match is_dry {
        true => format!("{} to write; nothing was written", counted(files, "file")),
        false => format!("Wrote {}", counted(files, "file")),
    };
    if to_do > 0 {
        let _ = write!(text, "; {} to do", counted(to_do, "setting"));
    }
    if refused > 0 {
        let _ = write!(text, "; {} not migrated", counted(refused, "connector"));
    }
    text.push_str(".\n");
    text
}
