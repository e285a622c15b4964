//! `anabranch pipelines validate`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::Severity;
use anabranch_process::files::output;
use anabranch_process::files::{MAX_PIPELINE_FILE, read_text, system};
use anabranch_service::pipelines::Pipelines;
use anabranch_settings::SettingFlags;
use anabranch_trial::synthetic::try_pipelines;
use serde_json::{Value, json};

use super::findings::{FindingsFormat, github, sarif};
use super::tries::{TryFlags, untried_line};
use crate::cli::report::{self, counted};
use crate::cli::{Context, Exit, Report, compile_options, difference, registry_with};
use crate::codes;
use crate::fixing::{self, CorrectedFile};

/// Check pipeline files; nothing is started.
///
/// Reads and compiles pipeline files and reports all their errors and warnings, each with its place. Then runs each
/// pipeline without errors over about a hundred synthetic records, and warns of processors and destinations that fail
/// all of them. These trials open nothing. Exit code 0: all pipelines can be started; 2: there are errors, or warnings
/// with --strict.
///
/// With --format github, the findings become annotations of a pull request; with --format sarif, a log for code
/// scanning.
///
/// With --fix, mistakes with only one possible correction are corrected in the files: renamed fields, names that differ
/// in one letter from the only existing name, numbers in quotes, metadata keys of another service. Everything else
/// stays unchanged, including comments and layout.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Files and directories. Default: `pipelines.path`.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    /// Correct mistakes with only one possible correction, and show the changes.
    #[arg(long)]
    fix: bool,
    /// Show what --fix would change, without changing it.
    #[arg(long, requires = "fix")]
    dry_run: bool,
    #[command(flatten)]
    tries: TryFlags,
    /// Format of the findings.
    #[arg(long, value_enum, default_value_t = FindingsFormat::Text, conflicts_with = "fix")]
    format: FindingsFormat,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

pub(super) fn validate(arguments: &Arguments, context: &Context) -> Report {
    let fix = arguments.fix.then_some(if arguments.dry_run { Fixing::Show } else { Fixing::Write });
    check(
        "pipelines.validate",
        &arguments.paths,
        &arguments.settings,
        &Checking { strict: arguments.strict, fix, tries: arguments.tries, form: arguments.format },
        context,
    )
}

/// Options of a check.
pub(super) struct Checking {
    /// `true` if warnings count as errors.
    pub(super) strict: bool,
    /// Corrections of mistakes; `None` if they are only reported.
    pub(super) fix: Option<Fixing>,
    /// Options of the run with synthetic records.
    pub(super) tries: TryFlags,
    /// The format of the findings.
    pub(super) form: FindingsFormat,
}

/// Mode of corrections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fixing {
    /// Show them.
    Show,
    /// Write them to the files.
    Write,
}

/// Checks the pipelines at the paths.
pub(super) fn check(
    command: &'static str,
    paths: &[PathBuf],
    flags: &SettingFlags<false>,
    checking: &Checking,
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
    let strict = checking.strict || settings.pipelines.strict;
    // Warnings are shown as warnings; the exit code counts them.
    let options = CompileOptions { strict: false, ..compile_options(&settings, false) };
    let registry = registry_with(&settings);
    let mut pipelines = Pipelines::load(paths, &registry, &options);
    let mut text = String::new();
    let mut changed = Vec::new();
    if pipelines.files.iter().next().is_none() && pipelines.unreadable.is_empty() {
        let places: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Report::new(command)
            .summary(json!({ "files": 0, "pipelines": 0, "errors": 0, "warnings": 0 }))
            .fail(
                Exit::Invalid,
                codes::PIPELINES_NOTHING_FOUND,
                format!("nothing was checked: there is no pipeline file in {}", places.join(", ")),
            )
            .suggest(
                "pipeline files of a directory are its own children named *.yaml or *.yml, without tests (*.test.yaml)",
            );
    }
    // The exit code is about the files before the correction.
    let mut wrong_as_it_is = None;
    if let Some(fixing) = checking.fix {
        let before = pipelines.has_errors();
        let fixed = fixing::fix(pipelines, &registry, &options);
        if fixing == Fixing::Write {
            if let Err(report) = write(command, &fixed.changed) {
                return *report;
            }
        } else {
            wrong_as_it_is = Some(before);
        }
        for file in &fixed.changed {
            text.push_str(&difference(&file.name, &file.before, &file.after, context.color));
        }
        (pipelines, changed) = (fixed.pipelines, fixed.changed);
    }
    let untried = checking.tries.limits().map_or(0, |limits| try_pipelines(&mut pipelines, limits));
    pipelines.warn_of_empty_files();
    let (errors, warnings) = (pipelines.count(Severity::Error), pipelines.count(Severity::Warning));
    let files = files(&pipelines);
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
    let fixes: usize = changed.iter().map(|file| file.fixes).sum();
    if let Some(fixing) = checking.fix {
        let made = if fixing == Fixing::Write { "made" } else { "to be made; nothing was changed" };
        let _ = writeln!(text, "{} {made}", counted(fixes, "correction"));
    }
    text.push_str(&untried_line(untried));
    let mut summary = json!({ "files": files.len(), "pipelines": count, "errors": errors, "warnings": warnings });
    if untried > 0 {
        summary["untried"] = untried.into();
    }
    let mut result = json!({ "files": files.iter().map(Checked::json).collect::<Vec<_>>() });
    if let Some(fixing) = checking.fix {
        summary["fixes"] = fixes.into();
        let shown = |file: &CorrectedFile| {
            let diff = difference(&file.name, &file.before, &file.after, false);
            json!({ "path": file.name, "fixes": file.fixes, "written": fixing == Fixing::Write, "diff": diff })
        };
        result["fixed"] = changed.iter().map(shown).collect();
    }
    let refused = wrong_as_it_is.unwrap_or(pipelines.has_errors()) || (strict && warnings > 0);
    let report = Report::new(command).found(if refused { Exit::Invalid } else { Exit::Ok });
    let findings = pipelines.all_findings();
    match checking.form {
        FindingsFormat::Text => {
            report.notes(context.rendered(&findings, &pipelines.files)).text(text).summary(summary).result(result)
        }
        FindingsFormat::Github => report.text(github(&findings, &pipelines.files)).streamed(),
        FindingsFormat::Sarif => report.text(format!("{:#}\n", sarif(&findings, &pipelines.files))).streamed(),
    }
}

/// Writes the corrected files. Fails for a file that was changed in the meantime.
fn write(command: &'static str, changed: &[CorrectedFile]) -> Result<(), Box<Report>> {
    for file in changed {
        let path = Path::new(&file.name);
        let refused = |what: &str| {
            let message = format!("cannot correct {}: {what}", path.display());
            Box::new(Report::new(command).fail(Exit::Environment, codes::CLI_CANNOT_WRITE, message))
        };
        match read_text(path, MAX_PIPELINE_FILE) {
            Ok(text) if text == file.before => {}
            Ok(_) => return Err(refused("it was changed meanwhile")),
            Err(error) => return Err(refused(&error.to_string())),
        }
        output::replace(path, &file.after).map_err(|error| refused(&system(&error)))?;
    }
    Ok(())
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
