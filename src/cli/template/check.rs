//! `anabranch template check`.

use std::fmt::Write as _;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Files};
use anabranch_record::access::Access;
use anabranch_template::condition::CompiledCondition;
use anabranch_template::{MissingKey, Template};
use serde_json::{Value, json};

use super::{finding, span};
use crate::cli::{Context, Exit, Report, report};
use crate::codes;

/// Check a template and show which parts of a record it reads.
///
/// Exit codes: 0 it compiles, 2 it does not.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The template.
    template: String,
    /// Check it as the condition of a processor, and show how it is evaluated.
    #[arg(long)]
    condition: bool,
}

const COMMAND: &str = "template.check";

pub(super) fn check(arguments: &Arguments, context: &Context) -> Report {
    let mut files = Files::new();
    let file = files.add("TEMPLATE", arguments.template.as_str());
    let refused = |findings: &Diagnostics| {
        Report::new(COMMAND)
            .notes(context.rendered(findings, &files))
            .result(json!({ "findings": report::findings(findings, &files) }))
            .found(Exit::Invalid)
    };
    let whole = span(file, 0, arguments.template.len());
    if !arguments.condition {
        let template = match Template::parse(&arguments.template, MissingKey::NoValue) {
            Ok(template) => template,
            Err(error) => return refused(&finding(error, file)),
        };
        let mut text = "The template compiles.\n".to_owned();
        match template.literal() {
            Some(_) => text.push_str("It has no actions: it returns the same text for every record.\n"),
            None => reads_text(&template.reads(), &mut text),
        }
        return Report::new(COMMAND).text(text).result(
            json!({ "reads": reads_json(&template.reads()), "literal": template.literal().is_some(), "findings": [] }),
        );
    }
    if arguments.template.trim().is_empty() {
        return refused(
            &Diagnostic::error(codes::TEMPLATE_BLANK, "a condition must not be empty").with_span(whole).into(),
        );
    }
    let condition = match CompiledCondition::compile(&arguments.template) {
        Ok(condition) => condition,
        Err(error) => return refused(&finding(error, file)),
    };
    if let Some((why, hint)) = anabranch_plugin::flow::Flow::no_verdict(&condition) {
        let why = why.strip_prefix("every record fails here: ").unwrap_or(&why);
        let usual = || {
            "write a template that returns true or false, for example {{ eq .Operation.String \"create\" }}".to_owned()
        };
        let finding =
            Diagnostic::error(codes::PLAN_CONDITION_FAILS, format!("the condition fails for every record: {why}"))
                .with_span(whole)
                .with_hint(hint.unwrap_or_else(usual));
        return refused(&finding.into());
    }
    let mut text = "The condition compiles.\n".to_owned();
    let decided = match condition.constant() {
        Some(verdict) => {
            let _ = writeln!(text, "It is {verdict} for every record.");
            "constant"
        }
        None if condition.is_native() => {
            text.push_str("It is native: for usual records, the service evaluates it without running the template.\n");
            "native"
        }
        None => {
            text.push_str("It is not native: the template runs for every record.\n");
            "template"
        }
    };
    if condition.constant().is_none() {
        reads_text(&condition.reads(), &mut text);
    }
    Report::new(COMMAND).text(text).result(json!({
        "reads": reads_json(&condition.reads()),
        "decided": decided,
        "constant": condition.constant(),
        "findings": [],
    }))
}

fn reads_text(access: &Access, text: &mut String) {
    match access {
        Access::Everything => text.push_str("It may read every part of the record, or data outside the record.\n"),
        Access::These(paths) if paths.is_empty() => text.push_str("It reads no part of the record.\n"),
        Access::These(_) => {
            text.push_str("It reads:\n");
            for path in paths(access) {
                let _ = writeln!(text, "  {path}");
            }
        }
    }
}

fn reads_json(access: &Access) -> Value {
    match access {
        Access::Everything => json!(["."]),
        Access::These(_) => json!(paths(access)),
    }
}

/// Returns the parts as references, sorted and without duplicates.
fn paths(access: &Access) -> Vec<String> {
    let Access::These(paths) = access else { return Vec::new() };
    let mut paths: Vec<String> = paths.iter().map(|path| path.iter().fold(String::new(), part)).collect();
    paths.sort();
    paths.dedup();
    paths
}

fn part(mut path: String, part: &anabranch_record::text::Str) -> String {
    let is_name = part.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_name {
        path.push('.');
        path.push_str(part);
    } else {
        let _ = write!(path, "[{:?}]", part.as_str());
    }
    path
}
