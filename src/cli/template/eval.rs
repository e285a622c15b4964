//! `anabranch template eval`.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write as _};

use anabranch_plugin::diagnostic::{Diagnostic, Files};
use anabranch_process::files::system;
use anabranch_process::terminal::{Stream, data};
use anabranch_record::Record;
use anabranch_template::{MissingKey, Template};
use clap::ValueEnum;
use serde_json::json;

use super::{finding, span};
use crate::cli::{Context, Exit, Report, report};
use crate::codes;

/// Print the output of a template for records.
///
/// Reads records in JSON, one per line, and prints the output of the template for each, followed by a newline. Records
/// for which it fails, and lines that are not records, are reported on standard error; the others are still processed.
/// Without --record, the record is empty.
///
/// Exit codes: 0 success, 1 the template failed for a record, 2 the template does not compile, 3 the records cannot be
/// read.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The template.
    template: String,
    /// A file of records in JSON, one per line; - is standard input.
    #[arg(long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    record: Option<String>,
    /// The output for a missing field.
    #[arg(long, value_enum, default_value_t = Missing::Default)]
    missing_key: Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Missing {
    /// The text `<no value>`.
    Default,
    /// An error for the record.
    Error,
}

const COMMAND: &str = "template.eval";
/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 32 << 20;

pub(super) fn eval(arguments: &Arguments, context: &Context) -> Report {
    let mut files = Files::new();
    let file = files.add("TEMPLATE", arguments.template.as_str());
    let missing = match arguments.missing_key {
        Missing::Default => MissingKey::NoValue,
        Missing::Error => MissingKey::Error,
    };
    let template = match Template::parse(&arguments.template, missing) {
        Ok(template) => template,
        Err(error) => {
            let findings = finding(error, file);
            return Report::new(COMMAND)
                .notes(context.rendered(&findings, &files))
                .fail(Exit::Invalid, codes::TEMPLATE_INVALID, "the template does not compile")
                .result(json!({ "findings": report::findings(&findings, &files) }));
        }
    };
    let mut results = Results { context, files, gathered: Vec::new(), records: 0, failed: 0 };
    let ended = match arguments.record.as_deref() {
        None => results.add(None, &Record::default(), &template),
        Some("-") => results.read(std::io::stdin().lock(), &template),
        Some(path) => match File::open(path) {
            Ok(opened) => results.read(BufReader::new(opened), &template),
            Err(error) => Err(EvalEnd::Unreadable(error)),
        },
    };
    let summary = json!({ "records": results.records, "failed": results.failed });
    let report = Report::new(COMMAND).summary(summary).result(json!({ "outputs": results.gathered }));
    match ended {
        Err(EvalEnd::ReaderGone) => Report::new(COMMAND),
        Err(EvalEnd::Unwritable(error)) => {
            report.fail(Exit::Environment, codes::TEMPLATE_CANNOT_WRITE, format!("cannot write: {}", system(&error)))
        }
        Err(EvalEnd::Unreadable(error)) => {
            let from = arguments.record.as_deref().unwrap_or_default();
            let message = format!("cannot read {from}: {}", system(&error));
            report.fail(Exit::Environment, codes::TEMPLATE_CANNOT_READ, message)
        }
        Ok(()) if results.failed > 0 => report.found(Exit::Failed),
        Ok(()) => report,
    }
}

/// The reason for an early end.
enum EvalEnd {
    ReaderGone,
    Unwritable(std::io::Error),
    Unreadable(std::io::Error),
}

/// The outputs for the records: printed one by one or, with `--json`, collected.
struct Results<'a> {
    context: &'a Context,
    files: Files,
    gathered: Vec<serde_json::Value>,
    records: u64,
    failed: u64,
}

impl Results<'_> {
    fn read(&mut self, mut input: impl BufRead, template: &Template) -> Result<(), EvalEnd> {
        let mut text = Vec::new();
        for number in 1u64.. {
            text.clear();
            let read = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(EvalEnd::Unreadable)?;
            if read == 0 {
                break;
            }
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match Record::from_json(&text) {
                Ok(record) => self.add(Some(number), &record, template)?,
                Err(error) => {
                    let finding = Diagnostic::error(
                        codes::TEMPLATE_INVALID_LINE,
                        format!("line {number} is not a record: {error}"),
                    );
                    self.fail(Some(number), finding);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, line: Option<u64>, record: &Record, template: &Template) -> Result<(), EvalEnd> {
        let mut output = String::new();
        if let Err(error) = template.render(record, &mut output) {
            let of = line.map_or_else(String::new, |line| format!("line {line}: "));
            let file = anabranch_plugin::diagnostic::FileId(0);
            let finding = Diagnostic::error(codes::TEMPLATE_FAILED, format!("{of}{}", error.message)).with_span(span(
                file,
                error.offset,
                1,
            ));
            self.fail(line, finding);
            return Ok(());
        }
        self.records += 1;
        if self.context.json {
            self.gathered.push(json!({ "line": line, "output": output }));
            return Ok(());
        }
        output.push('\n');
        let mut out = data(Stream::Out);
        out.write_all(output.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => EvalEnd::ReaderGone,
            _ => EvalEnd::Unwritable(error),
        })
    }

    fn fail(&mut self, line: Option<u64>, finding: Diagnostic) {
        self.records += 1;
        self.failed += 1;
        if self.context.json {
            let mut error = report::one(&finding, &self.files);
            error["configPath"].take();
            self.gathered.push(json!({ "line": line, "error": error }));
        } else {
            self.context.note(&finding.into(), &self.files);
        }
    }
}
