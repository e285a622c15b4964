//! `anabranch pipelines validate`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anabranch_graph::diagnostic::Severity;
use serde_json::{Value, json};

use crate::cli::{Context, Exit, Report, compile_options, registry_with, report};
use crate::pipelines::Pipelines;
use crate::settings::SettingFlags;

/// Check pipeline files; nothing is started.
///
/// Reads and compiles pipeline files and reports everything that is wrong with them, each with its place.
/// Exit code 0: all pipelines can be started; 2: there are errors. Warnings do not count.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Files and directories; without any, those of `pipelines.path`.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

pub(super) fn validate(arguments: &Arguments, context: &Context) -> Report {
    check("pipelines.validate", &arguments.paths, &arguments.settings, false, context)
}

/// Checks what is at the paths; with `strict`, warnings are as bad as errors.
pub(super) fn check(
    command: &'static str,
    paths: &[PathBuf],
    flags: &SettingFlags<false>,
    strict: bool,
    context: &Context,
) -> Report {
    let settings = match context.settings(command, flags) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let paths = match paths {
        [] => std::slice::from_ref(&settings.pipelines.path),
        paths => paths,
    };
    let pipelines = Pipelines::load(paths, &registry_with(&settings), &compile_options(&settings, false));
    let (errors, warnings) = (pipelines.count(Severity::Error), pipelines.count(Severity::Warning));
    let files = files(&pipelines);
    let mut text = String::new();
    for file in &files {
        let ids: Vec<&str> = file.pipelines.iter().map(String::as_str).collect();
        let ids = if ids.is_empty() { "no pipeline".to_owned() } else { ids.join(", ") };
        let _ = writeln!(text, "{} {}: {ids}", if file.ok { "ok   " } else { "error" }, file.path);
    }
    let count = pipelines.good.len() + pipelines.invalid.len();
    let _ = writeln!(
        text,
        "{}, {}, {}, {}",
        counted(files.len(), "file"),
        counted(count, "pipeline"),
        counted(errors, "error"),
        counted(warnings, "warning")
    );
    let refused = pipelines.has_errors() || (strict && warnings > 0);
    Report::new(command)
        .notes(context.rendered(&pipelines.all_findings(), &pipelines.files))
        .text(text)
        .summary(json!({ "files": files.len(), "pipelines": count, "errors": errors, "warnings": warnings }))
        .result(json!({ "files": files.iter().map(Checked::json).collect::<Vec<_>>() }))
        .found(if refused { Exit::Invalid } else { Exit::Ok })
}

struct Checked {
    path: String,
    ok: bool,
    pipelines: Vec<String>,
    findings: Vec<Value>,
}

impl Checked {
    fn json(&self) -> Value {
        json!({ "path": self.path, "ok": self.ok, "pipelines": self.pipelines, "findings": self.findings })
    }
}

fn files(pipelines: &Pipelines) -> Vec<Checked> {
    let mut files: Vec<Checked> = pipelines
        .unreadable
        .iter()
        .map(|(path, finding)| Checked {
            path: path.display().to_string(),
            ok: false,
            pipelines: Vec::new(),
            findings: vec![report::one(finding, &pipelines.files)],
        })
        .collect();
    let count = pipelines.files.iter().count();
    let mut about = vec![Vec::new(); count];
    for finding in pipelines.findings.iter() {
        if let Some(label) = &finding.label
            && let Some(about) = about.get_mut(label.span.file.0 as usize)
        {
            about.push(finding);
        }
    }
    let mut declared = vec![Vec::new(); count];
    let good = pipelines.good.iter().map(|p| (p.config.span, Some(&p.config.id.value), true));
    let invalid = pipelines.invalid.iter().map(|p| (p.span, p.id.as_ref(), false));
    for (span, id, ok) in good.chain(invalid) {
        if let Some(declared) = declared.get_mut(span.file.0 as usize) {
            declared.push((span.start, id.map_or("(without id)", |id| id.as_str()), ok));
        }
    }
    for (((id, file), about), mut declared) in pipelines.files.iter().zip(about).zip(declared) {
        declared.sort_by_key(|(start, ..)| *start);
        files.push(Checked {
            path: file.name.to_string(),
            ok: !pipelines.broken.contains(&id)
                && declared.iter().all(|(_, _, ok)| *ok)
                && about.iter().all(|d| d.severity != Severity::Error),
            pipelines: declared.into_iter().map(|(_, id, _)| id.to_owned()).collect(),
            findings: about.into_iter().map(|d| report::one(d, &pipelines.files)).collect(),
        });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
