//! The processor `custom.javascript`.

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::arguments::Arguments;
use anabranch_graph::diagnostic::{Diagnostic, Diagnostics};
use anabranch_graph::fault::Fault;
use anabranch_graph::kind;
use anabranch_graph::operator::{
    BuiltOperator, Class, ConfiguredOperator, Decision, Fan, Host, Operator, OperatorKind, Rows, Signature,
};
use anabranch_graph::record::Record;
use anabranch_graph::secret::{forms, mask};
use anabranch_graph::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_graph::text::Str;

use crate::isolate::{Failure, Isolate, Limits, Outcome};
use crate::program::{Flaw, Program};

const SCRIPT: &str = "script";
const PATH: &str = "script.path";
const TIMEOUT: &str = "timeout";

/// A script that overstays its time by this much does not come to where it can be stopped.
const GRACE: Duration = Duration::from_secs(1);

/// The kind, for the registry.
pub(crate) fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("custom.javascript", "Processes each record with a script.")
        .describe(
            "Calls the script's function `process` with each record and takes what it returns: the record, `null` \
             (the record is dropped), or a list of records, each with the position of the first. The record has \
             `Key`, `Metadata`, `Operation`, `Position`, `Payload.Before` and `Payload.After`; raw data is a \
             `Uint8Array`, structured data an object. A string assigned to a key or payload becomes raw data. \
             Integers beyond 2^53 are `BigInt`. Only fields that the script touches are converted.\
             \n\nA script that returns a list needs `--preview.pipeline-arch-v2`.\
             \n\nA time is a `Date`, which carries milliseconds. A `Date` of a record that the script does not change \
             keeps its micro- and nanoseconds wherever the script puts it, as by `{...rec.Payload.After}`. One that \
             the script changes or makes, as by `new Date(date)`, has milliseconds.\
             \n\nBeside the language of ES2023 there are `StructuredData()`, `RawData(data)`, `Record()`, `logger`, \
             `console`, `crypto.randomUUID()`, `btoa`, `atob`, `TextEncoder` and `TextDecoder`; there are no modules, \
             no timers and no network. Each worker has its own globals, which stay from record to record. \
             \n\nA record for which the script throws, takes longer than `timeout` or returns what no record can hold \
             goes to the dead-letter queue as it was. The memory of a script is not limited.",
        )
        .with(
            Parameter::new(
                SCRIPT,
                ParameterKind::Text,
                "The script. It declares `function process(rec)`. Either this or `script.path`.",
            )
            .example("function process(rec) {\n  return rec;\n}\n"),
        )
        .with(Parameter::new(PATH, ParameterKind::File, "File that holds the script."))
        .with(
            Parameter::new(TIMEOUT, ParameterKind::Duration, "Longest time that one record may take.")
                .default_value("5s")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with_all(shared::processor());
    kind::operator(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let program = program(arguments)?;
    program.check().map_err(|flaw| finding(arguments, &program, flaw))?;
    let time = arguments.duration(TIMEOUT).unwrap_or(Duration::from_secs(5));
    Ok(Arc::new(Configured { program, limits: Limits { time } }))
}

/// The script, from wherever it is.
fn program(arguments: &Arguments) -> Result<Program, Diagnostics> {
    match (arguments.text(SCRIPT), arguments.text(PATH)) {
        (Some(text), None) => Ok(Program { text: text.clone(), name: Str::from_static("script") }),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path.trim()).map_err(|error| {
                Diagnostic::error("script.unreadable", format!("cannot read the script {path:?}: {error}"))
                    .with_span(arguments.span(PATH))
                    .with_path(format!("/{PATH}"))
            })?;
            Ok(Program { text: text.into(), name: path.trim().into() })
        }
        (Some(_), Some(_)) => Err(Diagnostic::error("script.twice", "both script and script.path are set")
            .with_span(arguments.span(PATH))
            .with_related(arguments.span(SCRIPT), "the script is here already")
            .with_path(format!("/{PATH}"))
            .into()),
        (None, None) => Err(Diagnostic::error("script.missing", "custom.javascript needs a script")
            .with_span(arguments.span(SCRIPT))
            .with_hint("set script to its text, or script.path to its file")
            .into()),
    }
}

/// What is wrong with a script, at its place in the pipeline file or in its own.
fn finding(arguments: &Arguments, program: &Program, flaw: Flaw) -> Diagnostics {
    let inline = arguments.has(SCRIPT);
    let name = if inline { SCRIPT } else { PATH };
    let message = match flaw.position {
        Some(position) => format!("{}:{position}: {}", program.name, flaw.message),
        None => flaw.message,
    };
    // What a variable holds is not shown, not even where it breaks the script.
    let message = mask(&message, &forms(arguments.secrets()));
    let span = match flaw.position {
        Some(position) if inline => arguments.place(SCRIPT, position.offset(&program.text), 1),
        _ => arguments.span(name),
    };
    let finding = Diagnostic::error(flaw.code, message).with_span(span).with_path(format!("/{name}"));
    match flaw.hint {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    }
    .into()
}

struct Configured {
    program: Program,
    limits: Limits,
}

impl ConfiguredOperator for Configured {
    fn signature(&self) -> Signature {
        Signature { class: Class::Isolate, fan: Fan::Many, ..Signature::inline() }
    }

    /// Time in native functions, as that of a regular expression, is not the script's to be stopped in.
    fn patience(&self) -> Option<Duration> {
        Some(self.limits.time + GRACE)
    }

    fn build(&self, _worker: usize, host: &Host) -> Result<BuiltOperator, Fault> {
        let isolate = Isolate::open(&self.program, self.limits, &host.node).map_err(|failure| match failure {
            Failure::Record(fault) | Failure::Stopped(fault) => Fault::fatal("script_failed", fault.message()),
        })?;
        Ok(BuiltOperator::Isolate(Box::new(JavaScript {
            program: self.program.clone(),
            limits: self.limits,
            node: host.node.clone(),
            isolate: Some(isolate),
        })))
    }
}

struct JavaScript {
    program: Program,
    limits: Limits,
    node: Str,
    /// None after the script was stopped.
    isolate: Option<Isolate>,
}

impl Operator for JavaScript {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.for_each(|record| self.record(record));
    }
}

impl JavaScript {
    fn record(&mut self, record: &mut Record) -> Result<Decision, Fault> {
        let stopped = |failure| match failure {
            Failure::Record(fault) | Failure::Stopped(fault) => fault,
        };
        let mut isolate = match self.isolate.take() {
            Some(isolate) => isolate,
            None => Isolate::open(&self.program, self.limits, &self.node).map_err(stopped)?,
        };
        let outcome = isolate.process(record);
        if !matches!(outcome, Err(Failure::Stopped(_))) {
            self.isolate = Some(isolate);
        }
        match outcome.map_err(stopped)? {
            Outcome::Keep(new) => {
                *record = new;
                Ok(Decision::Keep)
            }
            Outcome::Split(records) => Ok(Decision::Split(records)),
            Outcome::Filter => Ok(Decision::Filter),
        }
    }
}

#[cfg(test)]
mod tests;
