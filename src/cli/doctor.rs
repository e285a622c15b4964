//! `anabranch doctor`.

mod ahead;
mod ends;
mod letters;
mod machine;
mod nodes;
mod parts;

use std::ffi::OsString;

use anabranch_plugin::diagnostic::Severity;
use anabranch_process::terminal::Style;
use anabranch_record::near::did_you_mean;
use anabranch_settings::{Layers, ServiceFlags, Settings, SettingsFindings};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Exit, Report, report};
use crate::codes;

/// Check the settings, files, store and machine for problems.
///
/// Checks the settings, the pipeline files, the systems that their connectors use, the store, the port, the plugins, and
/// resources of the machine: open files, disk space, the clock. Changes and starts nothing. Can be run while the service
/// runs.
///
/// Exit codes: 0 there are no problems (there may be warnings), 2 a setting or a pipeline file is not valid, 3 the
/// environment of the service has a problem.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Run only these checks: a name, or the part of it before the dot. Can be repeated.
    #[arg(long = "check", value_name = "NAME")]
    checks: Vec<String>,
    /// Also load standalone plugins and the pipelines that need them, which can take long.
    #[arg(long)]
    deep: bool,
    /// Print only problems.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// The result of a check, with its name.
struct Finding {
    check: &'static str,
    result: CheckResult,
}

/// Severity of a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckSeverity {
    Well,
    Warning,
    /// A setting or a file of the user is not valid.
    Invalid,
    /// The environment of the service has a problem.
    Environment,
}

impl CheckSeverity {
    fn word(self) -> &'static str {
        match self {
            CheckSeverity::Well => "ok",
            CheckSeverity::Warning => "warn",
            CheckSeverity::Invalid | CheckSeverity::Environment => "fail",
        }
    }

    fn exit(self) -> Exit {
        match self {
            CheckSeverity::Well | CheckSeverity::Warning => Exit::Ok,
            CheckSeverity::Invalid => Exit::Invalid,
            CheckSeverity::Environment => Exit::Environment,
        }
    }

    fn style(self) -> Style {
        match self {
            CheckSeverity::Well => Style::GREEN,
            CheckSeverity::Warning => Style::YELLOW,
            CheckSeverity::Invalid | CheckSeverity::Environment => Style::RED,
        }
    }
}

/// The result of a check.
struct CheckResult {
    mark: CheckSeverity,
    /// The result in one line.
    what: String,
    /// Remedy.
    advice: Option<String>,
    /// The problems, if there are several. They are printed in place of `what`.
    problems: Vec<Problem>,
}

/// One of several problems that a check has found.
#[derive(Clone, Serialize)]
struct Problem {
    message: String,
    suggestion: Option<&'static str>,
}

impl CheckResult {
    fn new(mark: CheckSeverity, what: impl Into<String>) -> Self {
        CheckResult { mark, what: what.into(), advice: None, problems: Vec::new() }
    }

    fn well(what: impl Into<String>) -> Self {
        CheckResult::new(CheckSeverity::Well, what)
    }

    fn warning(what: impl Into<String>) -> Self {
        CheckResult::new(CheckSeverity::Warning, what)
    }

    fn environment(what: impl Into<String>) -> Self {
        CheckResult::new(CheckSeverity::Environment, what)
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

type Check = fn(&mut DoctorContext<'_>) -> CheckResult;

/// The checks, in the order in which they run.
const CHECKS: &[(&str, Check)] = &[
    ("config.validate", parts::pipelines),
    ("pipelines.connectors", ends::connectors),
    ("service.reachable", parts::service),
    ("pipelines.progress", parts::progress),
    ("pipelines.ahead", ahead::objects),
    ("store.reachable", parts::store),
    ("cluster.nodes", nodes::alike),
    ("dead_letters.evicted", letters::evicted),
    ("network.http", parts::listener),
    ("plugins.builtin", parts::builtin),
    ("plugins.connectors_dir", parts::connectors),
    ("plugins.processors_dir", parts::processors),
    ("machine.open_files", machine::open_files),
    ("machine.disk", machine::disk),
    ("machine.clock", machine::clock),
];
/// Runs before all others, which need the settings.
const SETTINGS: &str = "config.resolve";
/// Runs only with `--deep`.
const STANDALONE: &str = "plugins.standalone";

/// Input of the checks: the settings, and results of earlier checks.
struct DoctorContext<'a> {
    settings: &'a Settings,
    deep: bool,
    /// `true` if a service answers at the configured address; `None` before that check has run.
    answers: Option<bool>,
}

pub(super) fn doctor(arguments: &Arguments, context: &Context) -> Report {
    const COMMAND: &str = "doctor";
    let names = || [SETTINGS, STANDALONE].into_iter().chain(CHECKS.iter().map(|(name, _)| *name));
    let is_meant = |name: &str, asked: &str| name == asked || name.split('.').next() == Some(asked);
    if let Some(unknown) = arguments.checks.iter().find(|asked| !names().any(|name| is_meant(name, asked))) {
        let report = Report::new(COMMAND).fail(
            Exit::Invalid,
            codes::DOCTOR_UNKNOWN_CHECK,
            format!("there is no check {unknown:?}"),
        );
        return match did_you_mean(unknown, names()) {
            Some(near) => report.suggest(format!("did you mean {near}?")),
            None => report.suggest(format!("the checks are: {}", names().collect::<Vec<_>>().join(", "))),
        };
    }
    let asked = |name: &str| arguments.checks.is_empty() || arguments.checks.iter().any(|asked| is_meant(name, asked));

    let mut findings = Vec::new();
    let mut add = |check: &'static str, found: CheckResult| {
        findings.push(Finding { check, result: found });
    };
    let mut notes = String::new();
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    match (Layers { flags: &arguments.settings.0.given, environment: &environment }).resolve() {
        Err(refused) => {
            notes = context.rendered(&refused.findings, &refused.files);
            let found = CheckResult::new(CheckSeverity::Invalid, "the settings cannot be used; no other check can run");
            add(SETTINGS, found.advise(told(&refused)));
        }
        Ok((settings, warned)) => {
            if asked(SETTINGS) {
                notes = context.rendered(&warned.findings, &warned.files);
                add(SETTINGS, resolved(&settings, &warned));
            }
            let mut subject = DoctorContext { settings: &settings, deep: arguments.deep, answers: None };
            for (name, look) in CHECKS.iter().filter(|(name, _)| asked(name)) {
                add(name, look(&mut subject));
            }
            let standalone = arguments.deep || arguments.checks.iter().any(|asked| asked == STANDALONE);
            if standalone && asked(STANDALONE) {
                add(STANDALONE, parts::standalone(&mut subject));
            }
        }
    }
    told_all(Report::new(COMMAND).notes(notes), &findings, arguments.quiet, context.color)
}

/// Returns the first error in the settings as one line.
fn told(refused: &SettingsFindings) -> String {
    let first = refused.findings.iter().find(|finding| finding.severity == Severity::Error);
    first.map(|finding| finding.message.clone()).unwrap_or_default()
}

fn resolved(settings: &Settings, warned: &SettingsFindings) -> CheckResult {
    let path = settings.config_path.display();
    let what = if settings.config_path.exists() {
        format!("settings of {path}")
    } else {
        format!("{path} does not exist: the settings come from flags, variables and defaults")
    };
    match warned.findings.iter().count() {
        0 => CheckResult::well(what),
        count => {
            let advice = warned.findings.iter().next().map(|finding| finding.message.clone()).unwrap_or_default();
            CheckResult::warning(format!("{what}, with {}", report::counted(count, "warning"))).advise(advice)
        }
    }
}

fn told_all(report: Report, findings: &[Finding], quiet: bool, color: bool) -> Report {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
    let mut text = String::new();
    let indent = 4 + 2 + width + 2;
    for Finding { check, result } in findings.iter().filter(|it| !quiet || it.result.mark > CheckSeverity::Well) {
        let CheckResult { mark, what, advice, problems } = result;
        let word = mark.style().paint(&format!("{:<4}", mark.word()), color);
        text.push_str(&format!("{word}  {check:<width$}  "));
        let whole = [(what.as_str(), advice.as_deref())];
        let each = problems.iter().map(|problem| (problem.message.as_str(), problem.suggestion));
        let lines = whole.into_iter().filter(|_| problems.is_empty()).chain(each);
        for (at, (what, advice)) in lines.enumerate() {
            let before = if at == 0 { 0 } else { indent };
            text.push_str(&format!("{:before$}{what}\n", ""));
            if let Some(advice) = advice {
                text.push_str(&format!("{:indent$}  {advice}\n", ""));
            }
        }
    }
    let count = |word: &str| findings.iter().filter(|finding| finding.result.mark.word() == word).count();
    let (well, warnings, failures) = (count("ok"), count("warn"), count("fail"));
    if !quiet {
        let warned = report::counted(warnings, "warning");
        text.push_str(&format!("{well} ok, {warned}, {}\n", report::counted(failures, "failure")));
    }
    let shown = |finding: &Finding| -> Value {
        let CheckResult { mark, what, advice, problems } = &finding.result;
        let mut shown = json!({ "name": finding.check, "status": mark.word(), "message": what, "suggestion": advice });
        if !problems.is_empty() {
            shown["problems"] = json!(problems);
        }
        shown
    };
    let worst = findings.iter().map(|finding| finding.result.mark).max().unwrap_or(CheckSeverity::Well);
    report
        .text(text)
        .summary(json!({ "ok": well, "warnings": warnings, "failures": failures }))
        .result(json!({ "checks": findings.iter().map(shown).collect::<Vec<_>>() }))
        .found(worst.exit())
}
