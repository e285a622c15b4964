//! `anabranch dlq show`.

use anabranch_process::terminal::{is_unsafe, shown};
use anabranch_record::text::Str;
use anabranch_service::dead_letters::view::{LetterView, one};
use anabranch_settings::ServiceFlags;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{DeadLetters, missing};
use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::{Context, Report};
use crate::client::escaped;

/// Show a dead letter: the record at the time of its failure, and why and where it failed.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline
    #[arg(add = completions::pipelines())]
    pipeline: String,
    /// Number of the dead letter
    number: u64,
    #[command(flatten)]
    settings: ServiceFlags,
}

pub(super) fn show(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "dlq.show";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let dead_letters = DeadLetters::find(COMMAND, &settings)?;
    let letter = letter(COMMAND, &dead_letters, &arguments.pipeline, arguments.number)?;
    Ok(Report::new(COMMAND).text(text(&arguments.pipeline, &letter)).result(json!(letter)))
}

/// Returns a dead letter with its complete record.
pub(super) fn letter(
    command: &'static str,
    dead_letters: &DeadLetters,
    pipeline: &str,
    number: u64,
) -> Result<LetterView, Box<Report>> {
    match dead_letters {
        DeadLetters::Service(remote) => remote_letter(remote, pipeline, number),
        DeadLetters::Store(opened) => {
            let id = Str::from(pipeline);
            opened.known(&id)?;
            opened.ask(one(&opened.store, &id, number))?.ok_or_else(|| missing(command, pipeline, number))
        }
    }
}

fn remote_letter(remote: &Remote, pipeline: &str, number: u64) -> Result<LetterView, Box<Report>> {
    remote.get(&format!("/v1/pipelines/{}/dead-letters/{number}", escaped(pipeline)))
}

fn text(pipeline: &str, letter: &LetterView) -> String {
    let LetterView { number, at, first_at, node, connector, partition, error, attempts, trace, record, .. } = letter;
    let place = if node.is_empty() { String::new() } else { format!(" at {node}") };
    let mut text = format!("Dead letter {number} of pipeline {pipeline}\n\nfailed  {at}{place}\n");
    if *attempts > 1 {
        text.push_str(&format!("        {attempts} times, first {first_at}\n"));
    }
    text.push_str(&format!("error   {}: {}\n", error.code, shown(&error.message)));
    let partition = if partition.is_empty() { String::new() } else { format!(", partition {partition}") };
    text.push_str(&format!("from    {connector}{partition}\n"));
    if let Some(trace) = trace {
        text.push_str(&format!("trace   {trace}\n"));
    }
    text.push_str("\nThe record as it entered that node:\n");
    match record {
        Value::String(why) => text.push_str(why),
        record => text.push_str(&serde_json::to_string_pretty(record).unwrap_or_default()),
    }
    text.push('\n');
    for (name, pointer) in [("key", "/key"), ("before", "/payload/before"), ("after", "/payload/after")] {
        if let Some(raw) = record.pointer(pointer).and_then(Value::as_str).and_then(text_of) {
            let raw: String = raw.lines().map(|line| format!("  {line}\n")).collect();
            text.push_str(&format!("\n{name} as text:\n{raw}"));
        }
    }
    text.push_str(&format!(
        "\nNext: fix the cause, then\n  anabranch dlq replay {pipeline} {number}\nor edit the record:\n  anabranch \
         dlq replay {pipeline} {number} --edit\nor remove it:\n  anabranch dlq purge {pipeline} {number}\n"
    ));
    text
}

/// Decodes raw data that is printable text.
pub(super) fn text_of(base64: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(base64).ok()?).ok()?;
    let is_plain = |c: char| !is_unsafe(c) || c == '\n' || c == '\t' || c == '\r';
    (!text.is_empty() && text.chars().all(is_plain)).then_some(text)
}
