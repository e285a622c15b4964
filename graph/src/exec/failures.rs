//! Log lines about failed records: the first failure of each kind in full, then once a minute the number of further
//! ones. The lines name the place of a record but not its content, because logs have many readers.

use std::collections::HashMap;
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
    /// Kinds of failure by step and stable code. Bounded by the plan and its plugins.
    kinds: HashMap<(Str, Code), RepeatedFailure>,
}

/// Failures of one kind since the last log line about them.
struct RepeatedFailure {
    /// Time of the next count.
    due: Instant,
    more: u64,
    /// The latest failure.
    latest: Option<Line>,
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
        if let Some(kind) = self.kinds.get_mut(&(step.clone(), fault.code())) {
            kind.more += 1;
            kind.latest = Some(line);
            return;
        }
        self.log(context, &step, fault.code(), line, &self.message);
        let kind = RepeatedFailure { due: Instant::now() + EVERY, more: 0, latest: None };
        self.kinds.insert((step, fault.code()), kind);
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
        self.kinds.values().filter(|kind| kind.more > 0).map(|kind| kind.due).min()
    }

    /// Logs the counts that are due, or all of them at the end of the run.
    pub(super) fn count(&mut self, context: &Context, at_end: bool) {
        let now = Instant::now();
        for ((step, code), kind) in self.kinds.iter_mut().filter(|(_, kind)| at_end || kind.due <= now) {
            kind.due = now + EVERY;
            let (more, latest) = (std::mem::take(&mut kind.more), kind.latest.take());
            let Some(Line { source, position, key, error }) = latest else { continue };
            let records = if more == 1 { "1 more record" } else { &*format!("{more} more records") };
            line!(
                self.level, pipeline = %context.pipeline, more, %source, %position, %key, %step, code = code.name(), %error,
                "{records} failed in the same way; this is the latest"
            );
        }
    }

    fn line(&self, context: &Context, record: &Record, origin: &CopyOrigin, fault: &Fault) -> Line {
        let position = record.position();
        let located = self.sources.get(&origin.id.connector).and_then(|source| source.locate(position));
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
