//! The processor `custom.javascript`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::Flow;
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{BuiltOperator, Class, ConfiguredOperator, Fan, OperatorKind, Signature};
use anabranch_plugin::secret::{forms, mask};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use crate::client::{Client, Launch};
use crate::globals::log::{LEVELS, Lines as _, ServiceLog};
use crate::interpreter::Interpreter;
use crate::isolate::Limits;
use crate::mistakes;
use crate::position::SETTING;
use crate::program::{Findings, Flaw, Program};
use crate::wire::orders::Opening;

const SCRIPT: &str = SETTING;
const PATH: &str = "script.path";
const TIMEOUT: &str = "timeout";

/// The kind, for the registry.
pub(crate) fn kind(launch: Option<Launch>) -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("custom.javascript", "Processes each record with a script.")
        .describe(
            "Calls the script's function `process` with each record and takes what it returns: the record, `null` \
             (the record is dropped), or a list of records, each with the position of the first. A call that returns \
             nothing drops the record too, so a script whose `process` never returns a value is refused. The record has \
             `Key`, `Metadata`, `Operation`, `Position`, `Payload.Before` and `Payload.After`; raw data is a \
             `Uint8Array`, structured data an object. A string assigned to a key or payload becomes raw data. \
             Integers beyond 2^53 are `BigInt`. Only fields that the script touches are converted.\
             \n\nA script that returns a list needs `--preview.pipeline-arch-v2`.\
             \n\nA time is a `Date`, which carries milliseconds. A `Date` of a record that the script does not change \
             keeps its micro- and nanoseconds wherever the script puts it, as by `{...rec.Payload.After}`. One that \
             the script changes or makes, as by `new Date(date)`, has milliseconds.\
             \n\nBeside the language of ES2023 there are `StructuredData()`, `RawData(data)`, `Record()`, `logger`, \
             `console`, `crypto.randomUUID()`, `btoa`, `atob`, `TextEncoder` and `TextDecoder`; there are no modules, \
             no timers, no network and no locales (`toLocaleDateString` and the like give the same text for all of them). \
             Each worker has its own globals, which stay from record to record. \
             \n\nA record for which the script throws, takes longer than `timeout` or returns what no record can hold \
             goes to the dead-letter queue as it was. The script runs in a process of its own, one for each worker, which \
             may hold as much memory as the setting `processors.max-memory` says. A record that ends this process \
             (memory, or nesting that the interpreter cannot follow) or keeps it busy beyond `timeout` (as regular \
             expressions can) goes to the dead-letter queue too; the next records get a fresh process.",
        )
        .with(
            Parameter::new(
                SCRIPT,
                ParameterKind::Text,
                "The script. It declares `function process(rec)`. Either this or `script.path`.",
            )
            .example("function process(rec) {\n  return rec;\n}\n"),
        )
        .with(Parameter::new(
            PATH,
            ParameterKind::File,
            "File that holds the script. A relative path goes by the directory of the pipeline file or, where no such \
             file is there, by the working directory. It is read with the pipeline file.",
        ))
        .with(
            Parameter::new(TIMEOUT, ParameterKind::Duration, "Longest processor time that one record may take.")
                .default_value("5s")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with_all(shared::processor());
    Arc::new(Kind { specification, launch })
}

struct Kind {
    specification: Specification,
    launch: Option<Launch>,
}

impl OperatorKind for Kind {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
        configure(arguments, self.launch.clone())
    }
}

fn configure(arguments: &Arguments, launch: Option<Launch>) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let program = program(arguments)?;
    let findings = program.check().map_err(|flaw| finding(arguments, &program, flaw))?;
    let time = arguments.duration(TIMEOUT).unwrap_or(Duration::from_secs(5));
    let inline = arguments.has(SCRIPT);
    Ok(Arc::new(Configured { program, findings, inline, limits: Limits { time }, launch }))
}

/// The script, from wherever it is.
fn program(arguments: &Arguments) -> Result<Program, Diagnostics> {
    match (arguments.text(SCRIPT), arguments.text(PATH)) {
        (Some(text), None) => Ok(Program { text: text.clone(), name: Str::from_static("script") }),
        (None, Some(path)) => {
            let read = arguments.content(PATH).map(|content| content.text.clone());
            let text = read.unwrap_or_else(|| Err("files are not read here".into())).map_err(|why| {
                let finding = Diagnostic::error("script.unreadable", format!("cannot read the script {path:?}: {why}"))
                    .with_span(arguments.span(PATH))
                    .with_path(format!("/{PATH}"));
                match arguments.content(PATH).and_then(|content| content.hint.as_ref()) {
                    Some(hint) => finding.with_hint(hint.as_str()),
                    None => finding,
                }
            })?;
            Ok(Program { text, name: path.trim().into() })
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
    findings: Findings,
    /// Whether the script stands in the pipeline file.
    inline: bool,
    limits: Limits,
    launch: Option<Launch>,
}

impl ConfiguredOperator for Configured {
    fn signature(&self) -> Signature {
        Signature { class: Class::Isolate, fan: Fan::Many, ..Signature::inline() }
    }

    fn flow(&self, flow: &mut Flow) {
        let setting = if self.inline { SCRIPT } else { PATH };
        flow.observe();
        mistakes::say(&self.findings, &self.program, setting, self.inline, flow);
        flow.forget();
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.limits.time)
    }

    fn build(&self, _worker: usize, host: &Host) -> Result<BuiltOperator, Fault> {
        let lines = ServiceLog(host.node.clone());
        let Some(launch) = &self.launch else {
            let interpreter = Interpreter::open(self.program.clone(), self.limits, Rc::new(lines));
            let interpreter = interpreter.map_err(|fault| Fault::fatal("script_failed", fault.message()))?;
            return Ok(BuiltOperator::Isolate(Box::new(interpreter)));
        };
        let level = LEVELS.iter().position(|level| lines.enabled(*level)).unwrap_or(LEVELS.len());
        let opening = Opening {
            program: self.program.clone(),
            limits: self.limits,
            memory: launch.memory,
            level: level as u8,
            held: None,
        };
        Ok(BuiltOperator::Isolate(Box::new(Client::open(launch.clone(), opening, host)?)))
    }
}

#[cfg(test)]
mod tests;
