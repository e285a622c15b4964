//! Formats a dry run as text and as JSON.

use std::fmt::Write as _;

use anabranch_graph::plan::ProbableMistake;
use anabranch_plugin::diagnostic::Files;
use anabranch_process::terminal::Style;
use anabranch_record::Record;
use anabranch_record::json::write_record;
use anabranch_record::phrase::counted;
use anabranch_record::text::Str;
use anabranch_trial::trace::{Event, History, StepInfo, StepOutcome};
use serde_json::{Value, json};
use similar::TextDiff;

use super::Trial;
use crate::cli::record::{pretty, readable};

/// Maximum number of records of a split that are shown.
const MOST_PIECES: usize = 10;

/// Writes lines, with or without colours.
struct Page<'a> {
    out: &'a mut String,
    color: bool,
}

impl Page<'_> {
    fn line(&mut self, style: Style, text: &str) {
        self.out.extend([&*style.paint(text, self.color), "\n"]);
    }

    fn block(&mut self, text: &str) {
        for line in text.lines() {
            self.line(Style::PLAIN, &format!("    {line}"));
        }
    }

    fn difference(&mut self, before: &str, after: &str) {
        let difference = TextDiff::from_lines(before, after);
        for line in difference.unified_diff().context_radius(3).to_string().lines() {
            let style = match line.as_bytes().first() {
                Some(b'+') => Style::GREEN,
                Some(b'-') => Style::RED,
                Some(b'@') => Style::DIM,
                _ => Style::PLAIN,
            };
            // Leaves out the remark about a missing newline at the end.
            if !line.starts_with('\\') {
                self.line(style, &format!("    {line}"));
            }
        }
    }
}

/// Appends the dry run as text.
pub(super) fn text(trial: &Trial, color: bool, out: &mut String) {
    let mut page = Page { out, color };
    page.line(Style::BOLD, &format!("pipeline {}", trial.pipeline));
    for (number, history) in trial.histories.iter().enumerate() {
        page.line(Style::PLAIN, "");
        let position = quoted(&history.record.position().0);
        page.line(
            Style::BOLD,
            &format!("record {} of {}, from {} at {position}", number + 1, trial.histories.len(), history.source),
        );
        page.block(&pretty(first(history)));
        for event in &history.events {
            if let Some(step) = trial.steps.iter().find(|step| step.id == event.step) {
                shown(step, event, &mut page);
            }
        }
    }
    page.line(Style::PLAIN, "");
    let counts = &trial.counts;
    page.line(
        Style::BOLD,
        &format!(
            "{} read, {} delivered, {} dropped, {} failed{}{}",
            counts.read,
            counts.delivered,
            counts.dropped,
            counts.failed,
            match counts.doubtful {
                0 => String::new(),
                1 => "; 1 warning".to_owned(),
                many => format!("; {many} warnings"),
            },
            if trial.timed_out { "; the time limit expired" } else { "" }
        ),
    );
}

fn shown(step: &StepInfo, event: &Event, page: &mut Page<'_>) {
    let StepInfo { node, plugin, .. } = step;
    let before = event.before.as_ref().map(pretty).unwrap_or_default();
    match &event.outcome {
        StepOutcome::Kept(after) => {
            let after = pretty(after);
            if before == after {
                page.line(Style::DIM, &format!("  {node} ({plugin}): unchanged"));
            } else {
                page.line(Style::PLAIN, &format!("  {node} ({plugin})"));
                page.difference(&before, &after);
            }
        }
        StepOutcome::Split(pieces) => {
            page.line(Style::PLAIN, &format!("  {node} ({plugin}): {}", counted(pieces.len(), "record")));
            for (number, piece) in pieces.iter().enumerate().take(MOST_PIECES) {
                page.line(Style::PLAIN, &format!("   {} of {}", number + 1, pieces.len()));
                page.difference(&before, &pretty(piece));
            }
            if pieces.len() > MOST_PIECES {
                page.line(Style::PLAIN, &format!("   and {} more", pieces.len() - MOST_PIECES));
            }
        }
        StepOutcome::Dropped => page.line(Style::RED, &format!("  {node} ({plugin}): dropped")),
        StepOutcome::Failed { code, message } => {
            page.line(Style::RED, &format!("  {node} ({plugin}): failed, {message} ({code})"));
        }
        StepOutcome::NotApplied => {
            page.line(Style::DIM, &format!("  {node} ({plugin}): not applied, the condition is false"));
        }
        StepOutcome::Delivered(None) => page.line(Style::GREEN, &format!("  {node} ({plugin}): would be written")),
        StepOutcome::Delivered(Some(written)) => {
            page.line(Style::GREEN, &format!("  {node} ({plugin}): would be written as"));
            page.block(&readable(written));
        }
    }
}

/// Returns the record as the first processor received it, with the metadata that the engine adds to every record.
fn first(history: &History) -> &Record {
    history.events.iter().find_map(|event| event.before.as_ref()).unwrap_or(&history.record)
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::new();
    let _ = write!(text, "{:?}", readable(bytes));
    text
}

/// Returns the dry run as JSON, with records in their usual form.
pub(super) fn json(trial: &Trial, files: &Files) -> Value {
    let records: Vec<Value> = trial.histories.iter().map(|history| record(history, &trial.steps)).collect();
    json!({
        "pipeline": trial.pipeline,
        "records": records,
        "counts": trial.counts.json(),
        "doubts": trial.doubts.iter().map(|doubt| doubtful(doubt, files)).collect::<Vec<_>>(),
        "timedOut": trial.timed_out,
        "error": trial.fault,
    })
}

/// Converts a probable mistake to JSON, with its place in the file.
pub(in crate::cli::pipelines) fn doubtful(doubt: &ProbableMistake, files: &Files) -> Value {
    let place = files.locate(doubt.span);
    json!({
        "node": doubt.node.as_str(),
        "plugin": doubt.plugin.as_str(),
        "code": doubt.code.name(),
        "message": doubt.message,
        "hint": doubt.hint,
        "path": doubt.path,
        "file": place.as_ref().map(|place| place.file.as_str()),
        "line": place.as_ref().map(|place| place.line),
        "column": place.as_ref().map(|place| place.column),
        "records": doubt.records,
        "of": doubt.of,
    })
}

fn record(history: &History, steps: &[StepInfo]) -> Value {
    let node = |event: &Event| steps.iter().find(|step| step.id == event.step);
    let name = |text: Option<&Str>| text.map(|text| text.as_str().to_owned());
    let events: Vec<Value> = history
        .events
        .iter()
        .map(|event| {
            let (outcome, after, error) = match &event.outcome {
                StepOutcome::Kept(after) => ("kept", vec![exact(after)], Value::Null),
                StepOutcome::Split(pieces) => ("split", pieces.iter().map(exact).collect(), Value::Null),
                StepOutcome::Dropped => ("dropped", Vec::new(), Value::Null),
                StepOutcome::Failed { code, message } => {
                    ("failed", Vec::new(), json!({ "code": code.as_str(), "message": message.as_str() }))
                }
                StepOutcome::NotApplied => ("not-applied", Vec::new(), Value::Null),
                StepOutcome::Delivered(_) => ("delivered", Vec::new(), Value::Null),
            };
            let written = match &event.outcome {
                StepOutcome::Delivered(Some(written)) => Value::from(readable(written)),
                _ => Value::Null,
            };
            let step = node(event);
            json!({
                "node": name(step.map(|step| &step.node)),
                "plugin": name(step.map(|step| &step.plugin)),
                "outcome": outcome,
                "before": event.before.as_ref().map(exact),
                "after": after,
                "written": written,
                "error": error,
            })
        })
        .collect();
    json!({ "source": history.source.as_str(), "record": exact(first(history)), "events": events })
}

fn exact(record: &Record) -> Value {
    let mut text = Vec::new();
    match write_record(record, &mut text) {
        Ok(()) => serde_json::from_slice(&text).unwrap_or(Value::Null),
        Err(_) => Value::Null,
    }
}
