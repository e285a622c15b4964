//! The processor `vrl`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    BuiltInline, ConfiguredOperator, Fan, Operator, OperatorContext, OperatorKind, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameters, shared};
use anabranch_plugin::secret::{forms, mask};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use chrono_tz::{TZ_VARIANTS, Tz};
use vrl::compiler::TimeZone;

use crate::codes;
use crate::findings::{self, Findings};
use crate::functions::MostBytes;
use crate::program::CheckedProgram;
use crate::source::{ProgramFlaw, ProgramSource, SETTING};
use crate::spot::{Spot, TargetPart};
use crate::worker::{Limits, OnAbort, Worker};

const PROGRAM: &str = SETTING;
const PATH: &str = "program.path";
const TIMEOUT: &str = "timeout";

impl Choice for OnAbort {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("drop", OnAbort::Drop), ("fail", OnAbort::Fail), ("keep", OnAbort::Keep)];
}

/// Returns the `vrl` processor for the registry.
pub(crate) fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("vrl", "Changes records with a program in the Vector Remap Language.")
        .describe(
            "Runs a program in the [Vector Remap Language](https://vrl.dev) on each record. `.` is the payload after the \
             change: an object, a string if it is raw data, or null if it is absent. `%` is the rest of the record: \
             `%metadata`, `%key`, `%operation`, `%position` (which cannot be changed) and `%before`, the payload before the \
             change. After the program, `.` is the new payload. If it is an array, the record becomes one record for each \
             element (more than one needs `--preview.pipeline-arch-v2`), and none for an empty array.\n\n\
             A program whose error is not handled fails the record, which goes to the dead-letter queue as it entered. \
             `abort` drops it, see `onAbort`. The program is compiled with the pipeline: a program that does not handle an \
             error, or that cannot succeed on the records that reach it, is refused.\n\n\
             All functions of the language's library are there, except those that use the network, the environment, the \
             machine or files: `dns_lookup`, `encode_proto`, `get_env_var`, `get_hostname`, `get_timezone_name`, \
             `http_request`, `parse_etld`, `parse_proto`, `reverse_dns` and `validate_json_schema`. There are no enrichment \
             tables and no secrets.\n\n\
             Only the fields that a program names are converted and written. A string that the program does not change \
             remains what it was, text or bytes; other strings become text if they are valid UTF-8. A record with an integer \
             above 2^63 - 1 or NaN in a field that the program reads fails.",
        )
        .with_all(shared::processor());
    kind::operator(specification, |settings: Settings| configure(&settings))
}

#[derive(Parameters)]
struct Settings {
    /// The program. Either this or `program.path`.
    #[parameter(name = PROGRAM, example = ".level = upcase(string!(.level))\ndel(.password)\n")]
    program: Argument<Option<Str>>,
    /// File with the program. A relative path is resolved against the directory of the pipeline file or, if there is no
    /// such file, against the working directory. It is read with the pipeline file.
    #[parameter(name = PATH)]
    path: Argument<Option<PathBuf>>,
    /// Reaction to `abort`: drop (the record is dropped), fail (it fails) or keep (it stays as it entered).
    #[parameter(default = "drop")]
    on_abort: OnAbort,
    /// The time zone of times without an offset from UTC, in functions such as `parse_timestamp`: a name of the IANA
    /// database, such as Europe/Berlin.
    #[parameter(default = "UTC")]
    zone: Argument<Str>,
    /// Maximum size of a record before the program, of the values that the program sets, and of the results of functions
    /// whose result can be much larger than their arguments, such as `replace` and `decode_gzip`. Larger records fail.
    #[parameter(default = "16MiB", greater_than = 0)]
    max_bytes: ByteSize,
    /// Maximum time per record. It is checked between expressions.
    #[parameter(default = "5s", greater_than = 0)]
    timeout: Duration,
}

fn configure(settings: &Settings) -> Result<Remap, Diagnostics> {
    let zone: Tz = settings.zone.trim().parse().map_err(|_| {
        let name = settings.zone.trim();
        let finding = settings.zone.invalid(format_args!("there is no time zone {name:?}"));
        match did_you_mean(name, TZ_VARIANTS.iter().map(|zone| zone.name())) {
            Some(near) => finding.with_hint(format!("did you mean {near}?")),
            None => finding.with_hint("name a zone of the IANA database, such as Europe/Berlin, or UTC"),
        }
    })?;
    let source = settings.source()?;
    let bytes = usize::try_from(settings.max_bytes.0).unwrap_or(usize::MAX);
    let program = CheckedProgram::compile(source.clone(), MostBytes(bytes)).map_err(|flaws| {
        let mut findings = Diagnostics::new();
        findings.0.extend(flaws.into_iter().map(|flaw| settings.finding(&source, flaw)));
        findings
    })?;
    Ok(Remap {
        program: Arc::new(program),
        inline: settings.program.is_some(),
        zone: TimeZone::Named(zone),
        on_abort: settings.on_abort,
        limits: Limits { time: settings.timeout, bytes },
    })
}

impl Settings {
    /// Returns the program from the setting or the file.
    fn source(&self) -> Result<ProgramSource, Diagnostics> {
        let Settings { program, path, .. } = self;
        match (program.as_ref(), path.as_ref()) {
            (Some(text), None) => Ok(ProgramSource { text: text.clone(), name: Str::from_static(PROGRAM) }),
            (None, Some(_)) => {
                let read = path.content().map(|content| content.text.clone());
                let text = read.unwrap_or_else(|| Err("files cannot be read here".into())).map_err(|why| {
                    let message = format!("cannot read the program {:?}: {why}", path.text());
                    let finding = path.finding(codes::VRL_UNREADABLE, message);
                    match path.content().and_then(|content| content.hint.as_ref()) {
                        Some(hint) => finding.with_hint(hint.as_str()),
                        None => finding,
                    }
                })?;
                Ok(ProgramSource { text, name: path.text().trim().into() })
            }
            (Some(_), Some(_)) => Err(path
                .finding(codes::VRL_TWICE, "both program and program.path are set")
                .with_related(program.span(), "the program is already here")
                .into()),
            (None, None) => Err(Diagnostic::error(codes::VRL_MISSING, "vrl needs a program")
                .with_span(program.span())
                .with_hint("set program to its text, or program.path to its file")
                .into()),
        }
    }

    /// Returns the finding for a flaw, at its place in the pipeline file or in the program's file.
    fn finding(&self, source: &ProgramSource, flaw: ProgramFlaw) -> Diagnostic {
        let message = match &flaw.place {
            Some(place) => source.placed(place.start, &flaw.message),
            None => flaw.message,
        };
        // Mask the values of variables, even if they break the program.
        let message = mask(&message, &forms(self.program.secrets().chain(self.path.secrets())));
        let finding = match (self.program.is_some(), flaw.place) {
            (true, Some(place)) => {
                let span = self.program.place(place.start, place.len().max(1));
                self.program.finding(flaw.code, message).with_span(span)
            }
            (true, None) => self.program.finding(flaw.code, message),
            (false, _) => self.path.finding(flaw.code, message),
        };
        match flaw.hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        }
    }
}

struct Remap {
    program: Arc<CheckedProgram>,
    /// True if the program is in the pipeline file.
    inline: bool,
    zone: TimeZone,
    on_abort: OnAbort,
    limits: Limits,
}

impl Remap {
    fn fan(&self) -> Fan {
        let root = Spot { part: TargetPart::Data(anabranch_record::reference::Side::After), names: Vec::new() };
        let replaces = self.program.writes.iter().any(|write| write.spot == root);
        match (replaces && self.program.makes_list(), self.program.aborts() && self.on_abort == OnAbort::Drop) {
            (true, _) => Fan::Many,
            (false, true) => Fan::AtMostOne,
            (false, false) => Fan::One,
        }
    }
}

impl ConfiguredOperator for Remap {
    type Built = BuiltInline;

    fn signature(&self) -> Signature {
        Signature::new()
            .fan(self.fan())
            .needs_arch_v2(self.program.makes_several())
            .reads(findings::reads(&self.program))
            .writes(findings::writes(&self.program))
    }

    fn flow(&self, flow: &mut Flow) {
        let limit = self.limits.time;
        let message = format!("a program has hardly time to begin in {limit:?}: records may fail");
        flow.need_unit(TIMEOUT, limit, message, "5s");
        let setting = if self.inline { PROGRAM } else { PATH };
        let keeps_aborted = self.on_abort == OnAbort::Keep;
        Findings { program: &self.program, setting, inline: self.inline, keeps_aborted }.apply(flow);
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.limits.time)
    }

    fn build(&self, _: &OperatorContext) -> Result<BuiltInline, Fault> {
        Ok(Box::new(Worker::new(self.program.clone(), self.zone, self.on_abort, self.limits)))
    }
}

impl Operator for Worker {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| self.run(record));
    }
}

#[cfg(test)]
mod tests;
