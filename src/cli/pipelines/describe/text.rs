//! Formats the description of a pipeline as text.

use std::fmt::Write as _;

use anabranch_config::bare_name;
use anabranch_process::terminal::{Style, age};
use anabranch_record::phrase::plural;
use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Component, Description};
use crate::cli::answers::{Moment, SourceAnswer, short};

/// Writes names and their values.
struct Page {
    out: String,
    color: bool,
}

impl Page {
    fn styled(&self, style: Style, text: &str) -> String {
        style.paint(text, self.color)
    }

    fn heading(&mut self, text: &str) {
        let text = self.styled(Style::BOLD, text);
        let _ = writeln!(self.out, "\n{text}");
    }

    /// Writes a line `name  value`, or nothing if the value is empty.
    fn field(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let value = value.replace('\n', "\\n");
            let _ = writeln!(self.out, "  {name:<16}{value}");
        }
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{:indent$}{text}", "", indent = depth * 2);
    }

    fn part(&mut self, part: &Component, depth: usize) {
        let role = if part.role.is_empty() { String::new() } else { format!("{} ", part.role) };
        let plugin = self.styled(Style::DIM, &format!("({role}{})", part.plugin));
        self.line(depth, &format!("{} {plugin}", part.id));
        if !part.condition.is_empty() {
            self.line(depth + 2, &format!("if {}", part.condition));
        }
        for (name, value) in &part.settings {
            let value = match value {
                Value::String(text) => one_line(text),
                other => other.to_string(),
            };
            self.line(depth + 2, &self.styled(Style::DIM, &format!("{name}: {value}")));
        }
        for processor in &part.processors {
            self.part(processor, depth + 1);
        }
    }
}

/// Returns the first line of a text, shortened.
fn one_line(text: &str) -> String {
    const MOST: usize = 80;
    let line = text.lines().next().unwrap_or_default();
    let cut = line.char_indices().nth(MOST).map_or(line, |(at, _)| &line[..at]);
    if cut.len() < text.trim_end().len() { format!("{cut} …") } else { cut.to_owned() }
}

pub(super) fn page(description: &Description, next: &str, now: DateTime<Utc>, color: bool) -> String {
    let Description { pipeline, connectors, processors, dead_letter, positions, counters, service, .. } = description;
    let mut page = Page { out: String::new(), color };
    let title = page.styled(Style::BOLD, &pipeline.id);
    let _ = writeln!(page.out, "{title}");
    if pipeline.config.name != pipeline.id {
        page.field("name", &pipeline.config.name);
    }
    page.field("description", &pipeline.config.description);

    let status = &pipeline.status;
    let style = match status.word.as_str() {
        "degraded" | "invalid" => Style::RED,
        "recovering" => Style::YELLOW,
        "running" | "idle" | "starting" if status.stalled.is_none() => Style::GREEN,
        "running" | "idle" | "starting" => Style::YELLOW,
        _ => Style::PLAIN,
    };
    let word = if pipeline.detached { "detached".to_owned() } else { status.shown() };
    let since = status.since.map(|since| format!(" for {}", short(now - since.0))).unwrap_or_default();
    let asked = if service.is_some() { "" } else { ", as it was when the service last ran" };
    page.field("state", &format!("{}{since}{asked}", page.styled(style, &word)));
    page.field("cause", &status.detail(now));
    let moment = |at: Option<Moment>| at.map(|at| at.0.format("%Y-%m-%d %H:%M:%S UTC").to_string());
    page.field("created", &moment(pipeline.created_at).unwrap_or_default());
    page.field(
        "updated",
        &moment(pipeline.updated_at).filter(|_| pipeline.updated_at != pipeline.created_at).unwrap_or_default(),
    );
    if let Some(counters) = counters {
        let mut words = format!("{} read, {} delivered", counters.read, counters.delivered);
        let more = [
            (counters.filtered, "filtered"),
            (counters.failed, "failed"),
            (counters.dead_lettered, "in the dead-letter queue"),
            (counters.in_flight, "in flight"),
        ];
        for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
            let _ = write!(words, ", {count} {what}");
        }
        page.field("records", &format!("{words} since the start"));
        let seconds = Some(counters.oldest_unacknowledged_seconds).filter(|seconds| *seconds >= 0.001);
        let oldest = seconds.map(|seconds| format!(", the oldest read {} ago", age(seconds))).unwrap_or_default();
        page.field(
            "unacknowledged",
            &format!("{} {}{oldest}", counters.unacknowledged, plural(counters.unacknowledged, "record")),
        );
        let left = counters.backlog.map(|backlog| {
            let next = backlog.age_seconds.filter(|seconds| *seconds > 0.0);
            let next = next.map(|seconds| format!(", the next at least {} old", age(seconds))).unwrap_or_default();
            format!("{}{next}", backlog.amount().unwrap_or_else(|| "unknown".to_owned()))
        });
        page.field("backlog", left.as_deref().unwrap_or("unknown"));
        for kept in description.backlogs.iter().filter_map(SourceAnswer::kept) {
            page.field("kept upstream", &kept);
        }
    }

    page.heading("Connectors");
    connectors.iter().for_each(|connector| page.part(connector, 1));
    if !processors.is_empty() {
        page.heading("Processors");
        processors.iter().for_each(|processor| page.part(processor, 1));
    }

    page.heading("Dead-letter queue");
    page.field("plugin", &dead_letter.plugin);
    page.field(
        "stops",
        &match (dead_letter.window_size, dead_letter.window_nack_threshold) {
            (0, _) if bare_name(&dead_letter.plugin) == "store" && dead_letter.drops_oldest => {
                "never: when the queue is full, it drops the oldest dead letters".to_owned()
            }
            (0, _) if bare_name(&dead_letter.plugin) == "store" => "when the queue is full".to_owned(),
            (0, _) => "never, however many records fail".to_owned(),
            (_, 0) => "when a record fails".to_owned(),
            (size, most) => format!("when more than {most} of the latest {size} {} fail", plural(size, "record")),
        },
    );
    if let Some((count, oldest)) = &dead_letter.kept {
        let oldest = oldest.as_ref().filter(|_| *count > 0).map(|oldest| format!(", the oldest from {oldest}"));
        page.field("kept", &format!("{count}{}", oldest.unwrap_or_default()));
    }
    if dead_letter.evicted > 0 {
        let evicted = format!("{} removed by the bounds of the queue", dead_letter.evicted);
        page.field("lost", &page.styled(Style::RED, &evicted));
    }

    page.heading("Positions");
    match positions {
        None => page.line(1, "unknown"),
        Some(lanes) if lanes.is_empty() => page.line(1, "none yet: the sources start from their beginning"),
        Some(_) => {}
    }
    for lane in positions.iter().flatten() {
        let partition =
            if lane.partition.is_empty() { String::new() } else { format!(", partition {}", lane.partition) };
        let left = description.backlog_of(lane).map(|left| format!(", {left} left to read")).unwrap_or_default();
        let text = format!(
            "{}{partition}: {} {}{left}, then after {}",
            lane.connector,
            lane.records,
            plural(lane.records, "record"),
            one_line(&lane.position)
        );
        page.line(1, &text);
    }
    page.heading("Next");
    page.line(1, next);
    page.out
}
