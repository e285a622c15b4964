//! `anabranch template functions`.

use std::fmt::Write as _;

use anabranch_record::near::did_you_mean;
use anabranch_template::reference::{self, Count, FUNCTIONS, FunctionEntry};
use serde_json::{Value, json};

use crate::cli::{Exit, Report};
use crate::codes;

/// List the functions of templates, or describe one.
///
/// Each function has an example. The result is that of the example with a fixed record, which `--json` includes.
///
/// Exit codes: 0 the functions are listed, 2 there is no such function.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// A function; all functions if no name is given.
    name: Option<String>,
}

const COMMAND: &str = "template.functions";

pub(super) fn functions(arguments: &Arguments) -> Report {
    let record: Value = serde_json::from_str(reference::EXAMPLE_RECORD).unwrap_or_default();
    match arguments.name.as_deref() {
        None => list(&record),
        Some(name) => match reference::find(name) {
            Some(entry) => Report::new(COMMAND)
                .text(described(entry))
                .summary(json!({ "functions": 1 }))
                .result(json!({ "functions": [in_json(entry, subject(entry))], "record": record })),
            None => unknown(name),
        },
    }
}

fn list(record: &Value) -> Report {
    let entries = || FUNCTIONS.iter().flat_map(|group| group.entries);
    let width = entries().map(|entry| call(entry).len()).max().unwrap_or_default();
    let mut text = String::new();
    for (i, group) in FUNCTIONS.iter().enumerate() {
        let _ = writeln!(text, "{}{}", if i == 0 { "" } else { "\n" }, group.title);
        for entry in group.entries {
            let _ = writeln!(text, "  {:width$}  {}", call(entry), entry.summary);
        }
    }
    text.push_str("\nSee `anabranch template functions NAME` for an example.\n");
    let listed: Vec<Value> = entries().map(|entry| in_json(entry, subject(entry))).collect();
    Report::new(COMMAND)
        .text(text)
        .summary(json!({ "functions": listed.len() }))
        .result(json!({ "functions": listed, "record": record }))
}

/// The function and its parameters, as a template writes them.
fn call(entry: &FunctionEntry) -> String {
    format!("{} {}", entry.name(), entry.parameters).trim_end().to_owned()
}

fn described(entry: &FunctionEntry) -> String {
    let mut text = format!("{}\n{}\n", call(entry), entry.summary);
    if !entry.aliases().is_empty() {
        let _ = writeln!(text, "Aliases: {}", entry.aliases().join(", "));
    }
    let parameters = entry.declared();
    if !parameters.is_empty() {
        text.push_str("\nParameters:\n");
        let width = parameters.iter().map(|it| it.name.len()).max().unwrap_or_default();
        for it in parameters {
            let count = match it.count {
                Count::One => "",
                Count::Optional => ", optional",
                Count::Any => ", any number",
            };
            let _ = writeln!(text, "  {:width$}  {}{count}", it.name, it.kind);
        }
    }
    let _ = write!(text, "\nExample:\n  {}\n", entry.example);
    match entry.outcome() {
        Ok(_) if let Some(form) = entry.form => {
            let _ = writeln!(text, "Result, which differs each time:\n  {form}");
        }
        Ok(output) => {
            let _ = writeln!(text, "Result:\n  {output}");
        }
        Err(error) => {
            let _ = writeln!(text, "The call fails the record:\n  {error}");
        }
    }
    text
}

fn subject(entry: &FunctionEntry) -> &'static str {
    let group = FUNCTIONS.iter().find(|group| group.entries.iter().any(|other| other.name() == entry.name()));
    group.map_or("", |group| group.title)
}

/// `result` is null if the example fails. It is a form if `deterministic` is false.
fn in_json(entry: &FunctionEntry, subject: &str) -> Value {
    let parameters: Vec<Value> = entry
        .declared()
        .iter()
        .map(|it| {
            json!({
                "name": it.name, "type": it.kind,
                "required": it.count == Count::One, "repeated": it.count == Count::Any,
            })
        })
        .collect();
    let (result, error) = match entry.outcome() {
        Ok(output) => (Some(output), None),
        Err(error) => (None, Some(error.to_string())),
    };
    json!({
        "name": entry.name(),
        "aliases": entry.aliases(),
        "subject": subject,
        "parameters": parameters,
        "summary": entry.summary,
        "example": entry.example,
        "result": result,
        "error": error,
        "deterministic": entry.form.is_none(),
    })
}

fn unknown(name: &str) -> Report {
    if let Some((_, reason)) = reference::refused().find(|(names, _)| names.contains(&name)) {
        return Report::new(COMMAND)
            .fail(Exit::Invalid, codes::TEMPLATE_UNKNOWN_FUNCTION, format!("the function `{name}` is not available"))
            .suggest(reason);
    }
    let names = FUNCTIONS.iter().flat_map(|group| group.entries).flat_map(|entry| entry.names).copied();
    let report = Report::new(COMMAND).fail(
        Exit::Invalid,
        codes::TEMPLATE_UNKNOWN_FUNCTION,
        format!("there is no function `{name}`"),
    );
    match did_you_mean(name, names) {
        Some(near) => report.suggest(format!("did you mean `{near}`?")),
        None => report.suggest("`anabranch template functions` lists all functions"),
    }
}
