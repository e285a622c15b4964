//! `anabranch dlq purge`.

use std::time::{Duration, SystemTime};

use anabranch_plugin::arguments::parse_duration;
use anabranch_record::text::Str;
use anabranch_settings::ServiceFlags;
use anabranch_store::letters::{LetterSelection, nanos};
use serde_json::json;

use super::{DeadLetters, letters, missing};
use crate::cli::completions;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;

/// Delete dead letters and their records permanently.
///
/// On a terminal, the command asks before it deletes dead letters, unless `--yes` is given. Without a terminal, `--all`
/// and `--older-than` need `--yes`; otherwise the command prints how many dead letters match and deletes none, with
/// exit code 4.
/// If none of the numbers is that of a letter, the exit code is 2.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline
    #[arg(add = completions::pipelines())]
    pipeline: String,
    /// Numbers of the dead letters
    #[arg(required_unless_present_any = ["all", "older_than"])]
    numbers: Vec<u64>,
    /// All dead letters of the pipeline
    #[arg(long, conflicts_with_all = ["numbers", "older_than"])]
    all: bool,
    /// Dead letters whose record first failed longer ago than this, for example 72h
    #[arg(long, value_name = "DURATION", value_parser = age, conflicts_with = "numbers")]
    older_than: Option<Duration>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

fn age(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "it is not a duration (for example 72h or 30m)".to_owned())
}

pub(super) fn purge(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "dlq.purge";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let dead_letters = DeadLetters::find_to_change(COMMAND, &settings)?;
    let id = Str::from(arguments.pipeline.as_str());
    let by_number = !arguments.numbers.is_empty();
    if by_number && !arguments.yes {
        let question =
            format!("Remove {} of pipeline {id}? This cannot be undone.", letters(arguments.numbers.len() as u64));
        if context.confirm(&question) == Some(false) {
            let summary = json!({ "purged": 0, "done": false });
            return Ok(Report::new(COMMAND).notes("Nothing was removed.\n").summary(summary));
        }
    } else if !arguments.yes {
        let count = match &dead_letters {
            DeadLetters::Service(remote) => {
                let page = format!("/v1/pipelines/{}/dead-letters?limit=1", escaped(&id));
                remote.get::<anabranch_service::dead_letters::view::LetterPage>(&page)?.count
            }
            DeadLetters::Store(opened) => {
                opened.known(&id)?;
                opened.ask(opened.store.letter_totals(&id))?.count
            }
        };
        let which =
            if arguments.older_than.is_some() { "those that are older than --older-than" } else { "all of them" };
        let question = format!("Pipeline {id} has {}. Remove {which}? This cannot be undone.", letters(count));
        let answer = if count > 0 { context.confirm(&question) } else { None };
        if answer != Some(true) {
            let (text, notes) = match answer {
                Some(_) => (String::new(), "Nothing was removed.\n"),
                None => (
                    format!("Pipeline {id} has {}.\n", letters(count)),
                    "Nothing was removed. Add --yes to remove them.\n",
                ),
            };
            let summary = json!({ "purged": 0, "done": false, "count": count });
            let report = Report::new(COMMAND).text(text).notes(notes).summary(summary);
            return Ok(if answer.is_none() && count > 0 { report.found(Exit::Drift) } else { report });
        }
    }
    let purged = match &dead_letters {
        DeadLetters::Service(remote) => {
            let body = match arguments.older_than {
                Some(age) => json!({ "olderThanSeconds": age.as_secs_f64() }),
                None if by_number => json!({ "numbers": arguments.numbers }),
                None => json!({ "all": true }),
            };
            let answer: serde_json::Value =
                remote.post(&format!("/v1/pipelines/{}/dead-letters/purge", escaped(&id)), &body)?;
            answer["purged"].as_u64().unwrap_or(0)
        }
        DeadLetters::Store(opened) => {
            opened.known(&id)?;
            let which = match arguments.older_than {
                Some(age) => {
                    LetterSelection::Before(nanos(SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)))
                }
                None if by_number => LetterSelection::Numbers(arguments.numbers.clone()),
                None => LetterSelection::All,
            };
            opened.ask(opened.store.remove_letters(&id, which))?
        }
    };
    if purged == 0
        && let Some(first) = arguments.numbers.first()
    {
        return Err(missing(COMMAND, &id, *first));
    }
    Ok(Report::new(COMMAND)
        .text(format!("Removed {}.\n", letters(purged)))
        .summary(json!({ "purged": purged, "done": true })))
}
