//! `anabranch pipelines inspect`: records on their way through a running pipeline.

mod show;

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::Duration;

use anabranch_record::phrase::plural;
use clap::Args;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::super::remote::Remote;
use super::super::{Context, Exit, Report};
use crate::client::{SocketMessage, escaped};
use crate::files::system;
use crate::settings::ServiceFlags;
use crate::terminal::{self, Stream, Style, shown};
use show::Shown;

const COMMAND: &str = "pipelines inspect";

/// After so long without a record, somebody may wonder why.
const QUIET: Duration = Duration::from_secs(5);

/// Show records on their way through a running pipeline
///
/// Without --at, those that the sources have read. The pipeline is not slowed down: of many records only some are
/// shown, and how many are left out is said.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  anabranch pipelines inspect orders
  anabranch pipelines inspect orders --at upper --before --where '{{ eq .Metadata.tenant \"7\" }}'
  anabranch pipelines inspect orders --at orders-db --limit 10 > ten.ndjson")]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline
    id: String,
    /// Id of a connector or processor (CONNECTOR:PROCESSOR for those of a connector), or dead-letter-queue; destination:ID or
    /// processor:ID where both have the id
    #[arg(long, value_name = "NODE")]
    at: Option<String>,
    /// Show records as they come to the node
    #[arg(long, requires = "at", conflicts_with = "after")]
    before: bool,
    /// Show records as they leave the node; this is what is shown of processors if nothing is said
    #[arg(long, requires = "at")]
    after: bool,
    /// Show only records that this condition holds for, written as conditions of processors are
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Show at most so many records a second, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    sample: u32,
    /// End after so many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// What the service sends.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    at: Option<At>,
    dropped: Option<u64>,
    failed: Option<u64>,
    message: Option<String>,
    status: Option<Status>,
    error: Option<Value>,
}

/// Where a record was seen.
#[derive(Deserialize)]
struct At {
    node: String,
    side: String,
}

/// How the pipeline is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    word: String,
    error: Option<String>,
    next_try: Option<String>,
}

pub(super) fn inspect(arguments: &Arguments, context: &Context) -> Report {
    if context.json && arguments.limit.is_none() {
        let what = "--json prints one object at the end: say with --limit after how many records that is";
        return Report::new(COMMAND).fail(Exit::Invalid, "inspect.limit_missing", what);
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
        let mut watching = Watching::new(arguments, context);
        let end = loop {
            let message = tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => break End::Enough,
                message = socket.next() => message,
                () = sleep_until(watching.quiet) => {
                    watching.nothing_came();
                    continue;
                }
            };
            let text = match message {
                Some(Ok(SocketMessage::Text(text))) => text,
                Some(Ok(SocketMessage::Close(_))) | None => break End::Closed,
                Some(Ok(_)) => continue,
                Some(Err(error)) => break End::Broken(error.to_string()),
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

/// Why it ended.
enum End {
    /// There were as many records as wanted, the user has seen enough, or nobody reads any more.
    Enough,
    /// The service said that there is no more, and why.
    Refused { code: String, message: String, suggestion: Option<String>, number: u64 },
    /// The service ends.
    Closed,
    /// The connection broke, or the service is another one.
    Broken(String),
    /// Standard output cannot be written.
    Unwritable(std::io::Error),
}

/// What was seen so far, and what was said about it.
struct Watching<'a> {
    pipeline: &'a str,
    filtered: bool,
    limit: Option<u64>,
    context: &'a Context,
    shown: u64,
    dropped: u64,
    failed: u64,
    /// What was last said about those.
    failure: String,
    /// Records for the one object of `--json`.
    records: Vec<Value>,
    word: String,
    /// When to say that nothing came.
    quiet: Instant,
}

impl<'a> Watching<'a> {
    fn new(arguments: &'a Arguments, context: &'a Context) -> Self {
        Watching {
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

    /// A line for people beside the records.
    fn note(&self, text: &str) {
        if self.context.json {
            return;
        }
        let line = Style::DIM.paint(&shown(text), self.context.color_errors);
        // Nobody reads it: nobody needs it.
        let _ = terminal::print(Stream::Err, &format!("{line}\n"));
    }

    fn nothing_came(&mut self) {
        // Once is enough, until something comes again.
        self.quiet = Instant::now() + Duration::from_secs(365 * 24 * 3600);
        if self.word == "running" || self.word == "idle" {
            let of_them = if self.filtered { " that the condition holds for" } else { "" };
            self.note(&format!("pipeline {} runs, and no record{of_them} comes by here", self.pipeline));
        }
    }

    fn take(&mut self, text: &str) -> ControlFlow<End> {
        let frame: Frame<'_> = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(error) => return ControlFlow::Break(End::Broken(format!("a frame cannot be read: {error}"))),
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
            // What fails on one record mostly fails on all of them: that is said once.
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
            // What is usual is not worth a line, unless it was not so before.
            "running" | "idle" | "starting" if self.word.is_empty() || self.word == *word => None,
            "running" | "idle" if matches!(self.word.as_str(), "running" | "idle") => None,
            "recovering" => {
                let when = next_try.as_ref().map(|at| format!(", and starts again at {at}")).unwrap_or_default();
                Some(format!("has failed{when}{because}"))
            }
            "stopped" => Some("is stopped: records come when it is started".to_owned()),
            "finished" => Some("is finished: its sources have nothing more".to_owned()),
            "degraded" => Some(format!("has failed for good{because}")),
            word => Some(format!("is {word}{because}")),
        };
        if let Some(what) = what {
            self.note(&format!("pipeline {} {what}", self.pipeline));
        }
        self.word.clone_from(word);
        self.quiet = Instant::now() + QUIET;
    }

    fn record(&mut self, record: &RawValue, at: Option<&At>) -> ControlFlow<End> {
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
            let record = Shown { number: self.shown, place: &place, json: record.get() };
            terminal::print(Stream::Out, &record.text(self.context.color))
        } else {
            terminal::print_json(Stream::Out, &format!("{}\n", record.get()))
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => ControlFlow::Break(End::Enough),
            Err(error) => ControlFlow::Break(End::Unwritable(error)),
            Ok(()) if self.limit.is_some_and(|limit| self.shown >= limit) => ControlFlow::Break(End::Enough),
            Ok(()) => ControlFlow::Continue(()),
        }
    }

    fn report(self, end: End, url: &str) -> Report {
        let report = Report::new(COMMAND)
            .summary(json!({ "shown": self.shown, "dropped": self.dropped, "failed": self.failed }))
            .result(json!({ "pipeline": self.pipeline, "records": self.records }));
        match end {
            End::Enough => report,
            End::Closed => {
                report.fail(Exit::Environment, "service.stopped", format!("the service at {url} is stopping"))
            }
            End::Broken(what) => report.fail(
                Exit::Environment,
                "service.broken_answer",
                format!("the connection to the service at {url} broke: {what}"),
            ),
            End::Refused { code, message, suggestion, number } => {
                // The numbers of gRPC: what is wrong with the request, and what is not there.
                let exit = if matches!(number, 3 | 5 | 9) { Exit::Invalid } else { Exit::Environment };
                let report = report.fail(exit, code, message);
                match suggestion {
                    Some(suggestion) => report.suggest(suggestion),
                    None => report,
                }
            }
            End::Unwritable(error) => {
                let what = format!("cannot write to standard output: {}", system(&error));
                report.fail(Exit::Environment, "inspect.output", what)
            }
        }
    }
}

fn records(n: u64) -> String {
    format!("{n} {}", plural(n, "record"))
}

fn refused(error: &Value) -> End {
    let detail = &error["details"][0];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    End::Refused {
        code: text(&detail["reason"]).unwrap_or_else(|| "service.refused".to_owned()),
        message: text(&error["message"]).unwrap_or_else(|| "the service refused without a word".to_owned()),
        suggestion: text(&detail["metadata"]["suggestion"]),
        number: error["code"].as_u64().unwrap_or_default(),
    }
}
