//! The processor `custom.javascript`.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{BuiltIsolate, ConfiguredOperator, Fan, OperatorContext, OperatorKind, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::secret::{forms, mask};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use crate::client::{Client, Launch};
use crate::codes;
use crate::interpreter::Interpreter;
use crate::limits::Limits;
use crate::log::{LEVELS, LineReceiver as _, ServiceLog};
use crate::mistakes;
use crate::position::SETTING;
use crate::program::{Findings, Program, ScriptFlaw};
use crate::wire::orders::Opening;

const SCRIPT: &str = SETTING;
const PATH: &str = "script.path";
const TIMEOUT: &str = "timeout";

/// Returns the `custom.javascript` processor for the registry.
pub(crate) fn kind(launch: Option<Launch>) -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("custom.javascript", "Processes each record with a script.")
        .describe(
            "Calls the script's function `process` with each record. It returns the record, `null` (the record is \
             dropped), or a list of records, each with the position of the first. A call that returns nothing \
             also drops the record, so a script whose `process` never returns a value is rejected. The record has \
             `Key`, `Metadata`, `Operation`, `Position`, `Payload.Before` and `Payload.After`; raw data is a \
             `Uint8Array`, structured data an object. A string assigned to a key or payload becomes raw data. \
             Integers beyond 2^53 are `BigInt`. Only fields that the script accesses are converted.\n\n\
             A script that returns a list needs `--preview.pipeline-arch-v2`. A script can return a new object, such \
             as `{ Payload: { After: data } }`: without `Position` or `Operation` it has those of the record, without \
             `Key`, `Metadata` or `Payload` it has none. `Position` cannot be changed. A number or a boolean that is \
             assigned to an entry of `Metadata` becomes text. `async function process` works too: the result is the \
             value of its promise.\n\n\
             A time is a `Date`, which has milliseconds. A `Date` of a record that the script does not change \
             keeps its micro- and nanoseconds wherever the script stores it, for example with \
             `{...rec.Payload.After}`. A date that the script changes or creates, for example with `new \
             Date(date)`, has milliseconds.\n\n\
             In addition to the language of ES2023 there are `StructuredData()`, `RawData(data)`, `Record()`, \
             `logger`, `console`, `crypto.randomUUID()`, `btoa`, `atob`, `TextEncoder` and `TextDecoder`. There \
             are no modules, timers, network access or locales (`toLocaleDateString` and similar functions return \
             the same text for all locales). Each worker has its own globals, which keep their values from record \
             to record.\n\n\
             If the script throws, takes longer than `timeout` or returns a value that records cannot hold, the \
             unchanged record goes to the dead-letter queue. The script runs in its own process, one for each \
             worker, with the memory limit `processors.max-memory`. A record that ends this process (through \
             memory, or nesting that the interpreter cannot handle) or blocks it beyond `timeout` (as regular \
             expressions can) goes to the dead-letter queue too; the next records get a new process.",
        )
        .with_all(shared::processor());
    kind::operator(specification, move |settings: Settings| configure(&settings, launch.clone()))
}

#[derive(Parameters)]
struct Settings {
    /// The script. It declares `function process(rec)`. Either this or `script.path`.
    #[parameter(name = SCRIPT, example = "function process(rec) {\n  return rec;\n}\n")]
    script: Argument<Option<Str>>,
    /// File with the script. A relative path is resolved against the directory of the pipeline file or, if there is no
    /// such file, against the working directory. It is read with the pipeline file.
    #[parameter(name = PATH)]
    path: Argument<Option<PathBuf>>,
    /// Maximum CPU time per record. Callbacks of built-in functions (such as `forEach`), code after an `await` and
    /// regular expressions are stopped 1 s later, because only the end of the process stops them.
    #[parameter(default = "5s", greater_than = 0)]
    timeout: Duration,
}

fn configure(settings: &Settings, launch: Option<Launch>) -> Result<Script, Diagnostics> {
    let program = settings.program()?;
    let findings = program.check().map_err(|flaw| settings.finding(&program, flaw))?;
    let (inline, limits) = (settings.script.is_some(), Limits { time: settings.timeout });
    Ok(Script { program, findings, inline, limits, launch })
}

impl Settings {
    /// Returns the script from the setting or the file.
    fn program(&self) -> Result<Program, Diagnostics> {
        let Settings { script, path, .. } = self;
        match (script.as_ref(), path.as_ref()) {
            (Some(text), None) => Ok(Program { text: text.clone(), name: Str::from_static("script") }),
            (None, Some(_)) => {
                let read = path.content().map(|content| content.text.clone());
                let text = read.unwrap_or_else(|| Err("script files cannot be read here".into())).map_err(|why| {
                    let message = format!("cannot read the script {:?}: {why}", path.text());
                    let finding = path.finding(codes::SCRIPT_UNREADABLE, message);
                    match path.content().and_then(|content| content.hint.as_ref()) {
                        Some(hint) => finding.with_hint(hint.as_str()),
                        None => finding,
                    }
                })?;
                Ok(Program { text, name: path.text().trim().into() })
            }
            (Some(_), Some(_)) => Err(path
                .finding(codes::SCRIPT_TWICE, "both script and script.path are set")
                .with_related(script.span(), "the script is already here")
                .into()),
            (None, None) => Err(Diagnostic::error(codes::SCRIPT_MISSING, "custom.javascript needs a script")
                .with_span(script.span())
                .with_hint("set script to its text, or script.path to its file")
                .into()),
        }
    }

    /// Returns the finding for a flaw, at its place in the pipeline file or in the script's file.
    fn finding(&self, program: &Program, flaw: ScriptFlaw) -> Diagnostics {
        let message = match flaw.position {
            Some(position) => format!("{}:{position}: {}", program.name, flaw.message),
            None => flaw.message,
        };
        // Mask the values of variables, even if they break the script.
        let message = mask(&message, &forms(self.script.secrets().chain(self.path.secrets())));
        let finding = match (self.script.is_some(), flaw.position) {
            (true, Some(position)) => {
                let place = self.script.place(position.offset(&program.text), 1);
                self.script.finding(flaw.code, message).with_span(place)
            }
            (true, None) => self.script.finding(flaw.code, message),
            (false, _) => self.path.finding(flaw.code, message),
        };
        match flaw.hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        }
        .into()
    }
}

struct Script {
    program: Program,
    findings: Findings,
    /// True if the script is in the pipeline file.
    inline: bool,
    limits: Limits,
    launch: Option<Launch>,
}

impl ConfiguredOperator for Script {
    type Built = BuiltIsolate;

    fn signature(&self) -> Signature {
        Signature::new().fan(Fan::Many)
    }

    fn flow(&self, flow: &mut Flow) {
        let setting = if self.inline { SCRIPT } else { PATH };
        flow.observe();
        let limit = self.limits.time;
        let message = format!("a script has hardly time to begin in {limit:?}: records may fail");
        flow.need_unit(TIMEOUT, limit, message, "5s");
        mistakes::say(&self.findings, &self.program, setting, self.inline, flow);
        flow.forget();
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.limits.time)
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltIsolate, Fault> {
        let host = &context.host;
        let lines = ServiceLog(host.node.clone());
        let Some(launch) = &self.launch else {
            let interpreter = Interpreter::open(self.program.clone(), self.limits, Rc::new(lines));
            let interpreter = interpreter.map_err(|fault| Fault::fatal(codes::SCRIPT_FAILED, fault.message()))?;
            return Ok(Box::new(interpreter));
        };
        let level = LEVELS.iter().position(|level| lines.enabled(*level)).unwrap_or(LEVELS.len());
        let opening = Opening {
            program: self.program.clone(),
            limits: self.limits,
            memory: launch.memory,
            level: level as u8,
            held: None,
        };
        Ok(Box::new(Client::open(launch.clone(), opening, host)?))
    }
}

#[cfg(test)]
mod tests;
