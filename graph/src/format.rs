//! Record formats: how destinations that write text turn a record into bytes.

use crate::arguments::Arguments;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::fault::Fault;
use crate::flow::Flow;
use crate::json;
use crate::record::Record;
use crate::specification::{Parameter, ParameterKind};
use crate::template::{MissingKey, Template};

const FORMAT: &str = "sdk.record.format";
const OPTIONS: &str = "sdk.record.format.options";

/// The parameters that choose a record format, for the specification of every destination that takes them.
pub fn parameters() -> Vec<Parameter> {
    vec![
        Parameter::new(
            FORMAT,
            ParameterKind::Text,
            "How a record is written: recfmt/json (the whole record as JSON; opencdc/json means the same) or template \
             (the output of the template in sdk.record.format.options).",
        )
        .default_value("recfmt/json")
        .one_of(&["recfmt/json", "opencdc/json", "template"]),
        Parameter::new(
            OPTIONS,
            ParameterKind::Text,
            "The template, where the format is template; a key that is missing from a map fails the record.",
        ),
    ]
}

/// How a record is written.
#[derive(Clone, Debug)]
pub enum RecordFormat {
    /// The whole record as one line of JSON; see [`json`].
    Json,
    /// The output of a template over the record.
    Template(Template),
}

impl RecordFormat {
    /// The format chosen by arguments whose specification lists [`parameters`].
    ///
    /// # Errors
    /// The template is missing or does not compile, or there is one that would not be used.
    pub fn from_arguments(arguments: &Arguments) -> Result<RecordFormat, Diagnostics> {
        let wants_template = arguments.text(FORMAT).is_some_and(|format| format.trim() == "template");
        match (wants_template, arguments.text(OPTIONS)) {
            (false, None) => Ok(RecordFormat::Json),
            (false, Some(_)) => {
                Err(Diagnostic::error("settings.unused", format!("{OPTIONS} is used only where {FORMAT} is template"))
                    .with_span(arguments.span(OPTIONS))
                    .with_path(format!("/{OPTIONS}"))
                    .with_hint(format!("add {FORMAT}: template, or remove {OPTIONS}"))
                    .into())
            }
            (true, None) => Err(Diagnostic::error(
                "settings.required",
                format!("{OPTIONS:?} is required where {FORMAT} is template"),
            )
            .with_span(arguments.span(FORMAT))
            .with_path(format!("/{OPTIONS}"))
            .with_hint(format!("{OPTIONS}: the template, as '{{{{ toJson .Payload.After }}}}'"))
            .into()),
            (true, Some(text)) => Template::parse(text, MissingKey::Error).map(RecordFormat::Template).map_err(|e| {
                let finding = Diagnostic::error("settings.invalid_template", format!("{OPTIONS}: {}", e.message))
                    .with_span(arguments.place(OPTIONS, e.offset, e.len))
                    .with_path(format!("/{OPTIONS}"));
                match e.hint {
                    Some(hint) => finding.with_hint(hint).into(),
                    None => finding.into(),
                }
            }),
        }
    }

    /// What it needs of the records; `always` if it is used on every one.
    pub fn flow(&self, flow: &mut Flow, always: bool) {
        match self {
            RecordFormat::Json => flow.may_fail(),
            RecordFormat::Template(template) if always => flow.template(OPTIONS, template),
            RecordFormat::Template(template) => flow.optional_template(OPTIONS, template),
        }
    }

    /// Appends the record in this format, without a line end.
    ///
    /// # Errors
    /// The record cannot be written: a fault of the record, never another format. The buffer is then as long
    /// as it was before.
    pub fn encode(&self, record: &Record, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            RecordFormat::Json => json::write_record(record, out),
            RecordFormat::Template(template) => {
                let mut text = String::new();
                template.render(record, &mut text).map_err(|e| Fault::record("format_failed", e))?;
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::specification::Specification;

    fn format(pairs: &[(&str, &str)]) -> Result<RecordFormat, Vec<(String, Option<String>)>> {
        let specification = Specification::builtin("demo", "For tests.").with_all(parameters());
        Arguments::parse(&specification, &Settings::from_pairs(pairs.iter().copied()))
            .and_then(|arguments| RecordFormat::from_arguments(&arguments))
            .map_err(|findings| findings.into_iter().map(|d| (d.message, d.hint)).collect())
    }

    #[test]
    fn json_is_the_default() {
        for pairs in [&[][..], &[(FORMAT, "recfmt/json")], &[(FORMAT, "opencdc/json")]] {
            let format = format(pairs).unwrap();
            let mut out = b"x".to_vec();
            format.encode(&Record::default(), &mut out).unwrap();
            assert!(out.starts_with(b"x{\"position\":\"\",\"operation\":\"create\""));
        }
    }

    #[test]
    fn a_template_writes_its_output() {
        let format = format(&[(FORMAT, "template"), (OPTIONS, "a line")]).unwrap();
        let mut out = b"x".to_vec();
        format.encode(&Record::default(), &mut out).unwrap();
        assert_eq!(out, b"xa line");
    }

    #[test]
    fn what_cannot_work_is_found_early() {
        let messages =
            |pairs: &[(&str, &str)]| format(pairs).unwrap_err().into_iter().map(|(m, _)| m).collect::<Vec<_>>();
        assert_eq!(
            messages(&[(FORMAT, "debezium/json")]),
            ["sdk.record.format: \"debezium/json\" is not one of recfmt/json, opencdc/json, template"]
        );
        assert_eq!(
            messages(&[(FORMAT, "template")]),
            ["\"sdk.record.format.options\" is required where sdk.record.format is template"]
        );
        assert_eq!(
            messages(&[(OPTIONS, "a line")]),
            ["sdk.record.format.options is used only where sdk.record.format is template"]
        );
    }
}
