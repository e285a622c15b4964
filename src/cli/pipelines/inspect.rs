//! `anabranch pipelines inspect`: shows records that pass through a running pipeline.

mod show;

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::Duration;

use anabranch_process::files::system;
use anabranch_process::terminal::{self, Stream, Style, shown};
use anabranch_record::phrase::plural;
use anabranch_settings::ServiceFlags;
use clap::Args;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::super::remote::Remote;
use super::super::{Context, Exit, Report};
use crate::cli::completions;
use crate::client::{SocketMessage, escaped};
use crate::codes;
use show::CapturedRecord;

const COMMAND: &str = "pipelines inspect";

/// How long to wait for a record before a note says that none came.
const QUIET: Duration = Duration::from_secs(5);

/// Show records that pass through a running pipeline
///
/// Without --at, shows the records that the sources read. The pipeline is not slowed down: if there are many records,
/// only a sample is shown, with the number of records left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  anabranch pipelines inspect orders
  anabranch pipelines inspect orders --at upper --before --where '{{ eq .Metadata.tenant \"7\" }}'
  anabranch pipelines inspect orders --at orders-db --limit 10 > ten.ndjson")]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline
    #[arg(add = completions::pipelines())]
    id: String,
    /// Id of a connector or processor (CONNECTOR:PROCESSOR for a processor of a connector), or dead-letter-queue. If
    /// both have the same id, use destination:ID or processor:ID
    #[arg(long, value_name = "NODE")]
    at: Option<String>,
    /// Show records before they enter the node
    #[arg(long, requires = "at", conflicts_with = "after")]
    before: bool,
    /// Show records after they leave the node. This is the default for processors
    #[arg(long, requires = "at")]
    after: bool,
    /// Show only records for which this condition holds, in the syntax of processor conditions
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Show at most this many records per second, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    sample: u32,
    /// Exit after this many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// A message from the service.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    at: Option<CapturePoint>,
    dropped: Option<u64>,
    failed: Option<u64>,
    message: Option<String>,
    status: Option<Status>,
    error: Option<Value>,
}

/// The place in the pipeline where a record was captured.
#[derive(Deserialize)]
struct CapturePoint {
    node: String,
    side: String,
}

/// Status of the pipeline.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    word: String,
    error: Option<String>,
    next_try: Option<String>,
}

pub(super) fn inspect(arguments: &Arguments, context: &Context) -> Report {
    if context.json && arguments.limit.is_none() {
        let what = "--json prints one object at the end: set the number of records with --limit";
        return Report::new(COMMAND).fail(Exit::Invalid, codes::INSPECT_LIMIT_MISSING, what);
    }
    let settings = match context.settings(COMMAND, &arguments.settings.0) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let remote = match Remote::of(COMMAND, &settings) {
        Ok(remote) => remote,
        Err(report) => return *report,
    };
    let (client, runtime) = remote.parts();
    runtime.block_on(async {
        let mut socket = match client.websocket(&arguments.path()).await {
            Ok(socket) => socket,
            Err(error) => return Report::new(COMMAND).refused(&error),
        };
        let mut watching = InspectionState::new(arguments, context);
        let end = loop {
            let message = tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => break InspectionEnd::Enough,
                message = socket.next() => message,
                () = sleep_until(watching.quiet) => {
                    watching.nothing_came();
                    continue;
                }
            };
            let text = match message {
                Some(Ok(SocketMessage::Text(text))) => text,
                Some(Ok(SocketMessage::Close(_))) | None => break InspectionEnd::Closed,
                Some(Ok(_)) => continue,
                Some(Err(error)) => break InspectionEnd::Broken(error.to_string()),
            };
            if let ControlFlow::Break(end) = watching.take(&text) {
                break end;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), socket.close(None)).await;
        watching.report(end, &client.url())
    })
}

impl Arguments {
    fn path(&self) -> String {
        let mut path = format!("/v1/pipelines/{}/inspect?sample={}", escaped(&self.id), self.sample);
        let side = match (self.before, self.after) {
            (true, _) => Some("before"),
            (_, true) => Some("after"),
            _ => None,
        };
        for (name, value) in [("at", self.at.as_deref()), ("side", side), ("where", self.condition.as_deref())] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", escaped(value)));
            }
        }
        path
    }
}

/// The reason for the end of an inspection.
enum InspectionEnd {
    /// The limit is reached, the user quits, or the output is closed.
    Enough,
    /// The service ended the inspection with an error.
    Refused { code: String, message: String, suggestion: Option<String>, number: u64 },
    /// The service stops.
    Closed,
    /// The connection broke, or the messages are not those of this version.
    Broken(String),
    /// Standard output cannot be written.
    Unwritable(std::io::Error),
}

/// State of the inspection, and what was reported about it.
struct InspectionState<'a> {
    pipeline: &'a str,
    filtered: bool,
    limit: Option<u64>,
    context: &'a Context,
    shown: u64,
    dropped: u64,
    failed: u64,
    /// The last reported message about these records.
    failure: String,
    /// Records for the single object of `--json`.
    records: Vec<Value>,
    word: String,
    /// When to report that no record came.
    quiet: Instant,
}

impl<'a> InspectionState<'a> {
    fn new(arguments: &'a Arguments, context: &'a Context) -> Self {
        InspectionState {
            pipeline: &arguments.id,
            filtered: arguments.condition.is_some(),
            limit: arguments.limit,
            context,
            shown: 0,
            dropped: 0,
            failed: 0,
            failure: String::new(),
            records: Vec::new(),
            word: String::new(),
            quiet: Instant::now() + QUIET,
        }
    }

    /// Prints a line for the user to standard error.
    fn note(&self, text: &str) {
        if self.context.json {
            return;
        }
        let line = Style::DIM.paint(&shown(text), self.context.color_errors);
        // The output may be closed, which is fine.
        let _ = terminal::print(Stream::Err, &format!("{line}\n"));
    }

    fn nothing_came(&mut self) {
        // Reported once, until the next record comes.
        self.quiet = Instant::now() + Duration::from_secs(365 * 24 * 3600);
        if self.word == "running" || self.word == "idle" {
            let of_them = if self.filtered { " that fulfils the condition" } else { "" };
            self.note(&format!("pipeline {} runs, but no record{of_them} has passed here", self.pipeline));
        }
    }

    fn take(&mut self, text: &str) -> ControlFlow<InspectionEnd> {
        let frame: Frame<'_> = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(error) => return ControlFlow::Break(InspectionEnd::Broken(format!("a frame cannot be read: {error}"))),
        };
        if let Some(error) = &frame.error {
            return ControlFlow::Break(refused(error));
        }
        if let Some(status) = &frame.status {
            self.status(status);
        }
        if let Some(dropped) = frame.dropped {
            self.dropped += dropped;
            self.note(&format!("({} not shown)", records(dropped)));
        }
        if let Some(failed) = frame.failed {
            self.failed += failed;
            self.quiet = Instant::now() + QUIET;
            // An error usually concerns all records, so it is reported once.
            let message = frame.message.unwrap_or_default();
            if self.failure != message {
                self.note(&format!("({} not shown: {message})", records(failed)));
                self.failure = message;
            }
        }
        match frame.result {
            Some(record) => self.record(record, frame.at.as_ref()),
            None => ControlFlow::Continue(()),
        }
    }

    fn status(&mut self, status: &Status) {
        let Status { word, error, next_try } = status;
        let because = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let what = match word.as_str() {
            // The usual statuses are reported only after a change.
            "running" | "idle" | "starting" if self.word.is_empty() || self.word == *word => None,
            "running" | "idle" if matches!(self.word.as_str(), "running" | "idle") => None,
            "recovering" => {
                let when = next_try.as_ref().map(|at| format!(", and restarts at {at}")).unwrap_or_default();
                Some(format!("has failed{when}{because}"))
            }
            "stopped" => Some("is stopped: records appear after it is started".to_owned()),
            "finished" => Some("is finished: its sources have no more records".to_owned()),
            "degraded" => Some(format!("has failed for good{because}")),
            word => Some(format!("is {word}{because}")),
        };
        if let Some(what) = what {
            self.note(&format!("pipeline {} {what}", self.pipeline));
        }
        self.word.clone_from(word);
        self.quiet = Instant::now() + QUIET;
    }

    fn record(&mut self, record: &RawValue, at: Option<&CapturePoint>) -> ControlFlow<InspectionEnd> {
        self.shown += 1;
        self.quiet = Instant::now() + QUIET;
        let written = if self.context.json {
            let mut value: Value = serde_json::from_str(record.get()).unwrap_or_default();
            if let (Some(at), Some(fields)) = (at, value.as_object_mut()) {
                fields.insert("at".to_owned(), json!({ "node": at.node, "side": at.side }));
            }
            self.records.push(value);
            Ok(())
        } else if self.context.terminal {
            let place = at.map(|at| format!("{} {}", at.side, at.node)).unwrap_or_default();
            let record = CapturedRecord { number: self.shown, place: &place, json: record.get() };
            terminal::print(Stream::Out, &record.text(self.context.color))
        } else {
            terminal::print_json(Stream::Out, &format!("{}\n", record.get()))
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => ControlFlow::Break(InspectionEnd::Enough),
            Err(error) => ControlFlow::Break(InspectionEnd::Unwritable(error)),
            Ok(()) if self.limit.is_some_and(|limit| self.shown >= limit) => ControlFlow::Break(InspectionEnd::Enough),
            Ok(()) => ControlFlow::Continue(()),
        }
    }

    fn report(self, end: InspectionEnd, url: &str) -> Report {
        let report = Report::new(COMMAND)
            .summary(json!({ "shown": self.shown, "dropped": self.dropped, "failed": self.failed }))
            .result(json!({ "pipeline": self.pipeline, "records": self.records }));
        match end {
            InspectionEnd::Enough => report,
            InspectionEnd::Closed => {
                report.fail(Exit::Environment, codes::SERVICE_STOPPED, format!("the service at {url} is stopping"))
            }
            InspectionEnd::Broken(what) => report.fail(
                Exit::Environment,
                codes::SERVICE_BROKEN_ANSWER,
                format!("the connection to the service at {url} broke: {what}"),
            ),
            InspectionEnd::Refused { code, message, suggestion, number } => {
                // gRPC codes for invalid requests, unknown names and failed preconditions.
                let exit = if matches!(number, 3 | 5 | 9) { Exit::Invalid } else { Exit::Environment };
                let report = report.relayed(exit, code, message);
                match suggestion {
                    Some(suggestion) => report.suggest(suggestion),
                    None => report,
                }
            }
            InspectionEnd::Unwritable(error) => {
                let what = format!("cannot write to standard output: {}", system(&error));
                report.fail(Exit::Environment, codes::INSPECT_OUTPUT, what)
            }
        }
    }
}

fn records(n: u64) -> String {
    format!("{n} {}", plural(n, "record"))
}

fn refused(error: &Value) -> InspectionEnd {
    let detail = &error["details"][0];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    InspectionEnd::Refused {
        code: text(&detail["reason"]).unwrap_or_else(|| codes::SERVICE_REFUSED.name().to_owned()),
        message: text(&error["message"])
            .unwrap_or_else(|| "the service refused the request without a message".to_owned()),
        suggestion: text(&detail["metadata"]["suggestion"]),
        number: error["code"].as_u64().unwrap_or_default(),
    }
}
