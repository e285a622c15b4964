//! Record formats: how destinations of text convert a record to bytes.

pub mod debezium;
pub mod parquet;

use anabranch_record::fault::Fault;
use anabranch_record::json::{self, RecordWriter};
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_record::{Data, Record};
use anabranch_template::{MissingKey, Template};

use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::flow::Flow;
use crate::parameters::{Argument, Choice, Parameters};

use debezium::Envelope;

const FORMAT: &str = "sdk.record.format";
/// Name of the setting with the options of a record format.
pub const OPTIONS: &str = "sdk.record.format.options";

const SCHEMA_NAME: &str = "debezium.schema.name";
const RAW_DATA_KEY: &str = "debezium.rawData.key";

/// The parameters that select a record format, for destinations that support them.
#[derive(Clone, Debug, Parameters)]
pub struct FormatSettings {
    /// Format of written records: recfmt/json (the whole record as JSON; opencdc/json is an alias), debezium/json (the
    /// change in a Debezium envelope), recfmt/raw (only the payload: raw data unchanged, structured data as JSON) or
    /// template (the output of the template in sdk.record.format.options).
    #[parameter(name = FORMAT, default = "recfmt/json")]
    format: Argument<RecordFormatName>,
    /// For the format template: the template; a missing key in a map fails the record. For the format debezium/json:
    /// options as name=value, separated by commas: debezium.schema.name (name of the envelope's schema; default: none),
    /// debezium.rawData.key (field for raw data that is not a JSON object; default: recfmt.rawData).
    #[parameter(name = OPTIONS)]
    options: Argument<Option<Str>>,
}

impl FormatSettings {
    /// Returns `true` if the file names a format.
    pub fn is_given(&self) -> bool {
        self.format.is_given()
    }
}

/// Names of record formats.
#[derive(Clone, Copy, Debug)]
enum RecordFormatName {
    Json,
    Debezium,
    Raw,
    Template,
}

impl Choice for RecordFormatName {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("recfmt/json", RecordFormatName::Json),
        ("opencdc/json", RecordFormatName::Json),
        ("debezium/json", RecordFormatName::Debezium),
        ("recfmt/raw", RecordFormatName::Raw),
        ("template", RecordFormatName::Template),
    ];
}

/// The format of a record in the output.
#[derive(Clone, Debug)]
pub enum RecordFormat {
    /// The whole record as one line of JSON; see [`json`].
    Json,
    /// The change in a Debezium envelope, as one line of JSON; see [`debezium`].
    Debezium(Envelope),
    /// Only the payload after the change: raw data unchanged, structured data as one line of JSON.
    Raw,
    /// The output of a template over the record.
    Template(Template),
}

impl RecordFormat {
    /// Returns the format that the settings select.
    ///
    /// # Errors
    /// The template is missing or does not compile, an option is unknown, or the format does not use the given options.
    pub fn new(settings: &FormatSettings) -> Result<RecordFormat, Diagnostics> {
        let FormatSettings { format, options } = settings;
        match (**format, options.as_ref()) {
            (RecordFormatName::Template, None) => Err(Diagnostic::error(
                codes::SETTINGS_REQUIRED,
                format!("{OPTIONS:?} is required if {FORMAT} is template"),
            )
            .with_span(format.span())
            .with_path(format!("/{OPTIONS}"))
            .with_hint(format!(
                "set {OPTIONS} to the template, for example '{{{{ toJson .Payload.After }}}}', or \
                                '{{{{ printf \"%s\" .Payload.After }}}}' for raw data"
            ))
            .into()),
            (RecordFormatName::Template, Some(_)) => {
                Ok(RecordFormat::Template(options.compile_template(MissingKey::Error)?))
            }
            (RecordFormatName::Debezium, _) => envelope(options).map(RecordFormat::Debezium),
            (RecordFormatName::Raw, None) => Ok(RecordFormat::Raw),
            (RecordFormatName::Json, None) => Ok(RecordFormat::Json),
            (RecordFormatName::Json | RecordFormatName::Raw, Some(_)) => Err(options
                .finding(
                    codes::SETTINGS_UNUSED,
                    format!("{OPTIONS} is used only if {FORMAT} is template or debezium/json"),
                )
                .with_hint(format!("add {FORMAT}: template, or remove {OPTIONS}"))
                .into()),
        }
    }

    /// Declares the requirements on records; `always` if the format is used for every record.
    pub fn flow(&self, flow: &mut Flow, always: bool) {
        match self {
            RecordFormat::Json | RecordFormat::Debezium(_) => flow.may_fail(),
            RecordFormat::Raw => {
                flow.may_fail();
                if flow.record.after.is_absent() {
                    let since = (flow.record.after.since, "absent since here".to_owned());
                    let message = "every record fails here: recfmt/raw writes .Payload.After, which is absent";
                    let hint = "use another format, or keep .Payload.After".to_owned();
                    flow.fail(codes::FLOW_NO_DATA, FORMAT, message, Some(since), Some(hint));
                }
            }
            RecordFormat::Template(template) if always => {
                let before = flow.messages().count();
                flow.template(OPTIONS, template);
                if !template.source().contains("{{") && flow.messages().count() == before {
                    let message = "the same line is written for every record: the template contains no {{";
                    let hint = "write the parts of the record for the line, for example '{{ toJson .Payload.After }}'"
                        .to_owned();
                    flow.warn(codes::FLOW_SUSPECT, OPTIONS, message, None, Some(hint));
                }
                flow.json_template(OPTIONS, template, false);
            }
            RecordFormat::Template(template) => flow.optional_template(OPTIONS, template),
        }
    }

    /// Returns an encoder for the records of a batch.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder { format: self, json: RecordWriter::default() }
    }

    /// Appends the record in this format, without a line end. For many records, [`RecordFormat::encoder`] is cheaper.
    ///
    /// # Errors
    /// A record fault if the record cannot be represented in this format; it is never written in another format. The
    /// buffer then keeps its previous length.
    pub fn encode(&self, record: &Record, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            RecordFormat::Json => json::write_record(record, out),
            RecordFormat::Debezium(envelope) => envelope.encode(record, out),
            RecordFormat::Raw => match &record.payload.after {
                Data::Raw(bytes) => {
                    out.extend_from_slice(bytes);
                    Ok(())
                }
                data @ Data::Structured(_) => json::write_data(data, out),
                Data::Absent => {
                    let what = "recfmt/raw writes .Payload.After, which the record does not have";
                    Err(Fault::record(codes::FORMAT_FAILED, what))
                }
            },
            RecordFormat::Template(template) => {
                let mut text = String::new();
                template.render(record, &mut text).map_err(|e| Fault::record(codes::FORMAT_FAILED, e))?;
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
    }
}

/// Encodes the records of a batch. Shared metadata is formatted once and copied.
#[derive(Debug)]
pub struct Encoder<'a> {
    format: &'a RecordFormat,
    json: RecordWriter<'a>,
}

impl<'a> Encoder<'a> {
    /// Encodes like [`RecordFormat::encode`].
    ///
    /// # Errors
    /// The errors of [`RecordFormat::encode`].
    #[inline]
    pub fn encode(&mut self, record: &'a Record, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self.format {
            RecordFormat::Json => self.json.write(record, out),
            other => other.encode(record, out),
        }
    }
}

/// Parses the options `name=value,name=value`.
fn envelope(settings: &Argument<Option<Str>>) -> Result<Envelope, Diagnostics> {
    let options = settings.as_ref().map_or("", Str::as_str);
    let (mut envelope, mut findings) = (Envelope::default(), Diagnostics::new());
    let mut offset = 0;
    for item in options.split(',') {
        let start = offset + item.len() - item.trim_start().len();
        offset += item.len() + 1;
        let item = item.trim();
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (item, None),
        };
        let wrong = |what: &str| settings.invalid(what).with_span(settings.place(start, item.len()));
        match (name, value) {
            ("", None) => {}
            (SCHEMA_NAME, Some(value)) => envelope.schema_name = value.into(),
            (RAW_DATA_KEY, Some("")) => findings.push(wrong("a field needs a name")),
            (RAW_DATA_KEY, Some(value)) => envelope.raw_data_key = value.into(),
            (SCHEMA_NAME | RAW_DATA_KEY, None) => {
                findings.push(wrong("an option has no value").with_hint(format!("write {name}=value")));
            }
            (unknown, _) => {
                let finding = wrong("debezium/json has no such option");
                findings.push(match did_you_mean(unknown, [SCHEMA_NAME, RAW_DATA_KEY]) {
                    Some(near) => finding.with_hint(format!("did you mean {near}?")),
                    None => finding.with_hint(format!("its options: {SCHEMA_NAME}, {RAW_DATA_KEY}")),
                });
            }
        }
    }
    if findings.has_errors() { Err(findings) } else { Ok(envelope) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use crate::parameters::declared;
    use crate::settings::Settings;
    use crate::specification::Specification;

    fn format(pairs: &[(&str, &str)]) -> Result<RecordFormat, Vec<(String, Option<String>)>> {
        let specification = Specification::builtin("demo", "For tests.").with_all(declared::<FormatSettings>());
        Arguments::parse(&specification, &Settings::from_pairs(pairs.iter().copied()))
            .and_then(|arguments| RecordFormat::new(&arguments.read()?))
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
    fn raw_data_are_written_as_they_are() {
        let format = format(&[(FORMAT, "recfmt/raw")]).unwrap();
        let written = |after: Data| {
            let mut record = Record::default();
            record.payload.after = after;
            let mut out = b"x".to_vec();
            format.encode(&record, &mut out).map(|()| out).map_err(|fault| fault.code())
        };
        assert_eq!(written(Data::Raw(b"caf\xe9\x00\xff"[..].into())).unwrap(), b"xcaf\xe9\x00\xff");
        let object = anabranch_record::value::Object::from_entries(vec![(
            "a".into(),
            anabranch_record::value::Value::from(1i64),
        )]);
        assert_eq!(written(Data::from(object)).unwrap(), b"x{\"a\":1}");
        assert_eq!(written(Data::Absent), Err(codes::FORMAT_FAILED));
    }

    #[test]
    fn debezium_has_options() {
        let chosen = |pairs: &[(&str, &str)]| match format(&[&[(FORMAT, "debezium/json")], pairs].concat()).unwrap() {
            RecordFormat::Debezium(envelope) => envelope,
            other => panic!("{other:?}"),
        };
        assert_eq!(chosen(&[]), Envelope::default());
        assert_eq!(
            chosen(&[(OPTIONS, " debezium.schema.name = a=b,\ndebezium.rawData.key=raw,")]),
            Envelope { schema_name: "a=b".into(), raw_data_key: "raw".into() }
        );
    }

    #[test]
    fn what_cannot_work_is_found_early() {
        let messages =
            |pairs: &[(&str, &str)]| format(pairs).unwrap_err().into_iter().map(|(m, _)| m).collect::<Vec<_>>();
        assert_eq!(
            messages(&[(FORMAT, "debezium/jsn")]),
            [
                "sdk.record.format: \"debezium/jsn\" is not one of recfmt/json, opencdc/json, debezium/json, recfmt/raw, template"
            ]
        );
        assert_eq!(
            messages(&[(FORMAT, "template")]),
            ["\"sdk.record.format.options\" is required if sdk.record.format is template"]
        );
        assert_eq!(
            messages(&[(OPTIONS, "a line")]),
            ["sdk.record.format.options is used only if sdk.record.format is template or debezium/json"]
        );
        let told = |options| messages(&[(FORMAT, "debezium/json"), (OPTIONS, options)]);
        assert_eq!(told("debezium.schema.nam=x"), ["sdk.record.format.options: debezium/json has no such option"]);
        assert_eq!(told("debezium.schema.name"), ["sdk.record.format.options: an option has no value"]);
        assert_eq!(told("a=b, debezium.rawData.key=").len(), 2);
    }
}
