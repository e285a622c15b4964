//! `anabranch dlq list`.

use std::time::SystemTime;

use anabranch_config::bare_name;
use anabranch_plugin::arguments::parse_duration;
use anabranch_process::terminal::is_unsafe;
use anabranch_record::text::Str;
use anabranch_service::dead_letters::filter::{Filter, condition};
use anabranch_service::dead_letters::view::{LetterPage, PageError, page};
use anabranch_settings::ServiceFlags;
use anabranch_store::letters::nanos;
use chrono::DateTime;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::{DeadLetters, letters};
use crate::cli::completions;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;

/// List the dead letters of a pipeline, newest first.
///
/// Lists the dead letters of queues that keep them in the store, for example `dead-letter-queue: {plugin: store,
/// window-size: 0}`. If a running service holds the store, the command uses its HTTP API.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline
    #[arg(add = completions::pipelines())]
    pipeline: String,
    /// Only records that failed at this processor or destination
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Only records that failed since this time (2026-01-31T12:00:00Z) or within this duration (1h30m)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Only records for which this condition is true, for example '{{ eq .Metadata.tenant "a" }}'
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Maximum number of dead letters
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// Parses a time, or a duration before the current time, to nanoseconds since 1970.
pub(super) fn since(text: &str) -> Result<u64, String> {
    if let Some(ago) = parse_duration(text) {
        return Ok(nanos(SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)));
    }
    let at = DateTime::parse_from_rfc3339(text).map_err(|_| {
        "it is neither a time (for example 2026-01-31T12:00:00Z) nor a duration (for example 1h30m)".to_owned()
    })?;
    Ok(u64::try_from(at.timestamp_nanos_opt().unwrap_or(0)).unwrap_or(0))
}

pub(super) fn list(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "dlq.list";
    let condition = arguments.condition.as_deref().map(condition).transpose().map_err(|error| {
        let report = Report::new(COMMAND).fail(Exit::Invalid, error.code(), format!("--where: {error}"));
        Box::new(match error.suggestion() {
            Some(suggestion) => report.suggest(suggestion),
            None => report,
        })
    })?;
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let id = Str::from(arguments.pipeline.as_str());
    let dead_letters = DeadLetters::find(COMMAND, &settings)?;
    let found: LetterPage = match &dead_letters {
        DeadLetters::Service(remote) => {
            let mut path = format!("/v1/pipelines/{}/dead-letters?limit={}", escaped(&id), arguments.limit);
            let texts = [("node", arguments.node.clone()), ("where", arguments.condition.clone())];
            let numbers = [("sinceNanos", arguments.since.map(|since| since.to_string()))];
            for (name, value) in texts.into_iter().chain(numbers) {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", escaped(&value)));
                }
            }
            remote.get(&path)?
        }
        DeadLetters::Store(opened) => {
            opened.known(&id)?;
            let filter = Filter { node: arguments.node.clone(), since: arguments.since, condition };
            let asking = page(&opened.store, &id, &filter, None, arguments.limit.into());
            opened.runtime.block_on(asking).map_err(|error| {
                let exit = match error {
                    PageError::Store(_) => Exit::Environment,
                    PageError::TooCostly { .. } => Exit::Invalid,
                };
                let report = Report::new(COMMAND).fail(exit, error.code(), error.to_string());
                Box::new(match error.suggestion() {
                    Some(suggestion) => report.suggest(suggestion),
                    None => report,
                })
            })?
        }
    };
    let queue = if found.count == 0 { QueueSummary::of(&dead_letters, &id)? } else { None };
    let summary = json!({
        "letters": found.letters.len(), "count": found.count, "bytes": found.bytes, "evicted": found.evicted,
        "unjudged": found.unjudged.as_ref().map_or(0, |unjudged| unjudged.count),
    });
    let mut result = json!(found);
    if let Some(queue) = &queue {
        result["queue"] = json!({ "plugin": queue.plugin, "path": queue.path });
    }
    Ok(Report::new(COMMAND).text(text(arguments, &found, queue.as_ref())).summary(summary).result(result))
}

/// The dead-letter queue of a pipeline.
struct QueueSummary {
    plugin: String,
    /// Path of the file, if the queue writes one.
    path: Option<String>,
}

impl QueueSummary {
    /// Returns `None` if the pipeline does not exist any more.
    fn of(dead_letters: &DeadLetters, id: &Str) -> Result<Option<QueueSummary>, Box<Report>> {
        match dead_letters {
            DeadLetters::Service(remote) => {
                let queue: Option<Value> =
                    remote.get_if_known(&format!("/v1/pipelines/{}/dead-letter-queue", escaped(id)))?;
                Ok(queue.map(|queue| QueueSummary {
                    plugin: queue["plugin"].as_str().unwrap_or_default().to_owned(),
                    path: queue["settings"]["path"].as_str().map(str::to_owned),
                }))
            }
            DeadLetters::Store(opened) => Ok(opened.pipeline(id)?.map(|pipeline| {
                let queue = pipeline.dead_letter;
                let path = queue.settings.iter().find(|setting| *setting.name == *"path");
                QueueSummary { plugin: queue.plugin.to_string(), path: path.map(|path| path.written.to_string()) }
            })),
        }
    }

    /// Location of the dead letters, if the store does not hold them.
    fn elsewhere(&self) -> Option<String> {
        match (bare_name(&self.plugin), &self.path) {
            ("store", _) => None,
            ("log", _) => Some("the log receives its failed records".to_owned()),
            ("file", Some(path)) => Some(format!("the file {path} receives its failed records")),
            (plugin, _) => Some(format!("a destination with the plugin `{plugin}` receives its failed records")),
        }
    }
}

fn text(arguments: &Arguments, found: &LetterPage, queue: Option<&QueueSummary>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NUMBER", "FAILED", "AT", "TIMES", "ERROR", "RECORD"]);
    for letter in &found.letters {
        table.add_row([
            letter.number.to_string(),
            letter.at.clone(),
            if letter.node.is_empty() { "-".to_owned() } else { letter.node.to_string() },
            letter.attempts.to_string(),
            one_line(&letter.error.message, 60),
            one_line(letter.record.as_str().unwrap_or_default(), 60),
        ]);
    }
    let mut text = match found.letters.is_empty() {
        true => String::new(),
        false => format!("{}\n", table.trim_fmt()),
    };
    let shown = found.letters.len() as u64;
    if found.count == 0 {
        text.push_str(&match queue.and_then(QueueSummary::elsewhere) {
            None => format!("Pipeline {} has no dead letters.\n", arguments.pipeline),
            Some(place) => format!(
                "Pipeline {} keeps no dead letters in the store: {place}. To keep them there, set `dead-letter-queue: \
                 {{plugin: store, window-size: 0}}`.\n",
                arguments.pipeline
            ),
        });
    } else if shown < found.count {
        text.push_str(&format!("{shown} of {}.\n", letters(found.count)));
    }
    if let (Some(node), Some(others)) = (&arguments.node, found.nodes.as_ref().filter(|_| found.count > 0)) {
        let others = match &others[..] {
            [] => String::new(),
            others => format!("; dead letters failed at {}", others.join(", ")),
        };
        text.push_str(&format!("No dead letter failed at {node}{others}.\n"));
    }
    if let Some(unjudged) = &found.unjudged {
        let (count, cause) = (letters(unjudged.count), one_line(&unjudged.error.message, 200));
        text.push_str(&format!("The condition failed for {count}: {cause}\n"));
    }
    if found.evicted > 0 {
        text.push_str(&format!(
            "The bounds of the queue removed {}, which {} lost.\n",
            letters(found.evicted),
            if found.evicted == 1 { "is" } else { "are" }
        ));
    }
    text
}

/// Returns the beginning of a text, on one line.
fn one_line(text: &str, most: usize) -> String {
    let flat: String = text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect();
    match flat.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_or_how_long_ago() {
        assert_eq!(since("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        let hour_ago = since("1h").unwrap();
        let now = nanos(SystemTime::now());
        assert!((3_600_000_000_000..3_660_000_000_000).contains(&(now - hour_ago)));
        assert!(since("yesterday").is_err());
    }

    #[test]
    fn texts_are_cut_to_a_line() {
        assert_eq!(one_line("a\nb\tc", 5), "a b c");
        assert_eq!(one_line("äöüß", 2), "äö…");
    }
}
