//! Log lines about failed records: the first failure of each kind in full, then once a minute the number of further
//! ones. Failures of a step with one code are of different kinds if their messages differ by more than values. The lines
//! name the place of a record but not its content, because logs have many readers.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::host::LogLevel;
use anabranch_plugin::source::Source;
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_data;
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};
use tokio::time::Instant;

use super::context::Context;
use super::lanes::CopyOrigin;
use crate::plan::LocatedTemplates;
use crate::plan::stage::{StageKind, StagePlan};

/// Interval of the log lines that count failures of one kind.
const EVERY: Duration = Duration::from_secs(60);
/// Maximum number of characters of a key or position.
const MOST: usize = 120;

/// Maximum number of kinds of one step and code. Further ones are counted together.
const MOST_KINDS: usize = 8;

/// Writes a log line at a level that is known only at run time.
macro_rules! line {
    ($level:expr, $($fields:tt)*) => {
        match $level {
            LogLevel::Trace => tracing::trace!($($fields)*),
            LogLevel::Debug => tracing::debug!($($fields)*),
            LogLevel::Info => tracing::info!($($fields)*),
            LogLevel::Warn => tracing::warn!($($fields)*),
            LogLevel::Error => tracing::error!($($fields)*),
        }
    };
}

/// The failures of a run.
pub(super) struct Failures {
    level: LogLevel,
    message: Str,
    located: Option<Arc<LocatedTemplates>>,
    /// Sources by connector, to explain their positions.
    sources: HashMap<Str, Arc<dyn Source>>,
    /// Kinds of failure by step and stable code, at most [`MOST_KINDS`] and one for the others. Bounded by the plan and its
    /// plugins.
    kinds: HashMap<(Str, Code), Vec<RepeatedFailure>>,
}

/// Failures of one kind since the last log line about them.
struct RepeatedFailure {
    cause: Cause,
    /// Time of the next count.
    due: Instant,
    more: u64,
    /// The latest failure.
    latest: Option<Line>,
}

/// The common cause of all failures of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The message without values, as a hash.
    Message(u64),
    /// They have other messages than the kinds before.
    Others,
}

impl Cause {
    /// Returns the cause that a message describes. Texts in quotes and words with digits are values.
    fn of(message: &str) -> Cause {
        let mut hasher = DefaultHasher::new();
        let words = message.split('"').step_by(2).flat_map(str::split_whitespace);
        words.filter(|word| !word.contains(|c: char| c.is_ascii_digit())).for_each(|word| word.hash(&mut hasher));
        Cause::Message(hasher.finish())
    }
}

/// Content of a log line about a failure.
struct Line {
    source: Str,
    position: String,
    key: String,
    error: String,
}

impl Failures {
    /// Creates the log of failures for a run of this plan. `level` and `message` are those of the first line of each
    /// kind.
    pub(super) fn new(plan: &StagePlan, level: LogLevel, message: Str) -> Self {
        let sources = plan.stages.iter().filter_map(|stage| match &stage.kind {
            StageKind::Read(read) => Some((read.connector.clone(), read.source.clone())),
            _ => None,
        });
        Failures { level, message, located: plan.located.clone(), sources: sources.collect(), kinds: HashMap::new() }
    }

    /// Describes a failure, with the place of the template or condition that failed.
    pub(super) fn said(&self, fault: &Fault) -> String {
        let message = fault.message();
        match self.located.as_ref().and_then(|located| located.of(fault)) {
            Some(place) => format!("{message} (at {place})"),
            None => message,
        }
    }

    /// Notes a failure, and logs it if it is the first of its kind.
    pub(super) fn note(&mut self, context: &Context, record: &Record, origin: &CopyOrigin, fault: &Fault) {
        let step = fault.node().cloned().unwrap_or_default();
        let line = self.line(context, record, origin, fault);
        let kinds = self.kinds.entry((step.clone(), fault.code())).or_default();
        let cause = match Cause::of(&line.error) {
            cause if kinds.len() < MOST_KINDS || kinds.iter().any(|kind| kind.cause == cause) => cause,
            _ => Cause::Others,
        };
        if let Some(kind) = kinds.iter_mut().find(|kind| kind.cause == cause) {
            kind.more += 1;
            kind.latest = Some(line);
            return;
        }
        kinds.push(RepeatedFailure { cause, due: Instant::now() + EVERY, more: 0, latest: None });
        self.log(context, &step, fault.code(), line, &self.message);
    }

    /// Logs the failure that stops the run. Its record becomes no dead letter.
    pub(super) fn note_last(&self, context: &Context, record: &Record, origin: &CopyOrigin, fault: &Fault) {
        let step = fault.node().cloned().unwrap_or_default();
        let line = self.line(context, record, origin, fault);
        self.log(context, &step, fault.code(), line, "a record failed, and the pipeline stops");
    }

    fn log(&self, context: &Context, step: &Str, code: Code, line: Line, message: &str) {
        let Line { source, position, key, error } = line;
        line!(
            self.level, pipeline = %context.pipeline, %source, %position, %key, %step, code = code.name(), %error,
            "{message}"
        );
    }

    /// Returns the time of the next count; `None` if there is nothing to count.
    pub(super) fn due(&self) -> Option<Instant> {
        self.kinds.values().flatten().filter(|kind| kind.more > 0).map(|kind| kind.due).min()
    }

    /// Logs the counts that are due, or all of them at the end of the run.
    pub(super) fn count(&mut self, context: &Context, at_end: bool) {
        let now = Instant::now();
        let kinds = self.kinds.iter_mut().flat_map(|(at, kinds)| kinds.iter_mut().map(move |kind| (at, kind)));
        for ((step, code), kind) in kinds.filter(|(_, kind)| at_end || kind.due <= now) {
            kind.due = now + EVERY;
            let (more, latest) = (std::mem::take(&mut kind.more), kind.latest.take());
            let Some(Line { source, position, key, error }) = latest else { continue };
            let records = if more == 1 { "1 more record" } else { &*format!("{more} more records") };
            let how = match kind.cause {
                Cause::Message(_) => "in the same way",
                Cause::Others => "in other ways",
            };
            line!(
                self.level, pipeline = %context.pipeline, more, %source, %position, %key, %step, code = code.name(), %error,
                "{records} failed {how}; this is the latest"
            );
        }
    }

    fn line(&self, context: &Context, record: &Record, origin: &CopyOrigin, fault: &Fault) -> Line {
        let position = record.position();
        let located =
            self.sources.get(&origin.id.connector).and_then(|source| source.locate(&origin.id.partition, position));
        let position = located.unwrap_or_else(|| readable(position, origin));
        Line {
            source: origin.id.connector.clone(),
            position: context.mask(&cut(position)),
            key: context.mask(&cut(key(&record.key))),
            error: context.mask(&self.said(fault)),
        }
    }
}

/// Describes a position that its source does not explain: its text, if it is text, and the number of the record in its
/// partition.
fn readable(position: &Position, origin: &CopyOrigin) -> String {
    let partition = match &*origin.id.partition.0 {
        "" => String::new(),
        partition => format!(" of partition {partition}"),
    };
    let number = format!("record {}{partition}", origin.seq + 1);
    match std::str::from_utf8(&position.0) {
        Ok(text) if !text.contains(char::is_control) => format!("{text} ({number})"),
        _ => number,
    }
}

fn key(key: &Data) -> String {
    match key {
        Data::Absent => String::new(),
        Data::Raw(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Data::Structured(_) => {
            let mut json = Vec::new();
            match write_data(key, &mut json) {
                Ok(()) => String::from_utf8_lossy(&json).into_owned(),
                Err(_) => String::new(),
            }
        }
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(MOST) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_make_another_cause() {
        let causes = |texts: [&str; 2]| texts.map(Cause::of);
        for [one, other] in [
            [r#"cannot write "a b": no table"#, r#"cannot write "c": no table"#],
            ["offset 17 is gone", "offset 4711 is gone"],
            ["row 1a2b has 3 fields", "row ff00 has 12 fields"],
        ] {
            let [one, other] = causes([one, other]);
            assert!(one == other);
        }
        let [one, other] = causes(["the column a is missing", "the value does not fit"]);
        assert!(one != other);
    }
}
