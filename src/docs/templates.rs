//! The page about templates and conditions. Its prose is `templates/page.md`; every result on it is made by the engine.

use std::fmt::Write as _;

use anabranch_template::condition::CompiledCondition;
use anabranch_template::reference::{self, FunctionEntry, FunctionGroup};

use super::{GENERATED, Page, cell};

const PROSE: &str = include_str!("templates/page.md");

/// The page.
///
/// A block of code named `template` or `condition` in the prose has an example in each line; it becomes a table with
/// the results. A comment is a placeholder for a part that is generated from the code.
pub fn page() -> Page {
    let mut text = GENERATED.to_owned();
    let mut lines = PROSE.lines();
    while let Some(line) = lines.next() {
        let result: fn(&str) -> String = match line {
            "```template" => of_template,
            "```condition" => of_condition,
            "<!-- record -->" => {
                let _ = writeln!(text, "```json\n{}\n```", reference::EXAMPLE_RECORD);
                continue;
            }
            "<!-- refused -->" => {
                refused(&mut text);
                continue;
            }
            "<!-- functions -->" => {
                groups(&mut text, reference::FUNCTIONS, "function");
                continue;
            }
            "<!-- methods -->" => {
                groups(&mut text, reference::METHODS, "method");
                continue;
            }
            "<!-- metadata -->" => {
                metadata(&mut text);
                continue;
            }
            _ => {
                text.push_str(line);
                text.push('\n');
                continue;
            }
        };
        let title = line.trim_start_matches('`');
        let _ = writeln!(text, "| {title} | result |\n| --- | --- |");
        for example in lines.by_ref().take_while(|line| *line != "```") {
            let _ = writeln!(text, "| {} | {} |", code(example), result(example));
        }
    }
    Page { path: "docs/templates.md".to_owned(), text }
}

/// The result of a template as a cell.
pub fn of_template(template: &str) -> String {
    match reference::render_example(template) {
        Ok(output) if output.is_empty() => "nothing".to_owned(),
        Ok(output) => code(&output),
        Err(error) => fails(&error.to_string()),
    }
}

/// The verdict of a condition as a cell.
pub fn of_condition(condition: &str) -> String {
    let condition = match CompiledCondition::compile(condition) {
        Ok(condition) => condition,
        Err(error) => return fails(&error.message),
    };
    match condition.evaluate(reference::example_record()) {
        Ok(verdict) => code(if verdict { "true" } else { "false" }),
        Err(fault) => fails(&fault.to_string()),
    }
}

fn fails(why: &str) -> String {
    format!("fails: {}", cell(why).replace('<', "&lt;"))
}

/// A text as code in a cell. The text has no line ends.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

fn groups(text: &mut String, groups: &[FunctionGroup], what: &str) {
    for (i, FunctionGroup { title, entries }) in groups.iter().enumerate() {
        let above = if i == 0 { "" } else { "\n" };
        let _ = writeln!(
            text,
            "{above}### {title}\n\n| {what} | parameters | what it does | example | result |\n| --- | --- | --- | --- | --- |"
        );
        for entry in *entries {
            row(text, entry);
        }
    }
}

fn row(text: &mut String, entry: &FunctionEntry) {
    let names: Vec<String> = entry.names.iter().map(|name| format!("`{name}`")).collect();
    let parameters = if entry.parameters.is_empty() { String::new() } else { code(entry.parameters) };
    let result = match entry.form {
        Some(form) => format!("*{}*", cell(form).replace('<', "&lt;")),
        None => of_template(entry.example),
    };
    let (names, summary, example) = (names.join(", "), cell(entry.summary), code(entry.example));
    let _ = writeln!(text, "| {names} | {parameters} | {summary} | {example} | {result} |");
}

fn refused(text: &mut String) {
    text.push_str("| functions | reason |\n| --- | --- |\n");
    for (names, reason) in reference::refused() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {} | {} |", names.join(", "), cell(reason));
    }
}

fn metadata(text: &mut String) {
    text.push_str("| method | entry | type |\n| --- | --- | --- |\n");
    for (method, entry, kind) in reference::metadata_methods() {
        let _ = writeln!(text, "| `{method}` | `{entry}` | {kind} |");
    }
}
