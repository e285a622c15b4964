//! `avro.encode`: encodes a field as Avro in the Confluent wire format.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::flow::{Content, Flow, Kinds, Type};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    BuiltOperator, ConfiguredOperator, Decision, Operator, OperatorKind, Rows, Signature,
};
use anabranch_plugin::schema::SchemaVersion;
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::fault::Fault;
use anabranch_record::json::parse_value;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::desk::Desk;
use crate::infer::infer;
use crate::{field, wire};

const STRATEGY: &str = "schema.strategy";
const SUBJECT: &str = "schema.preRegistered.subject";
const VERSION: &str = "schema.preRegistered.version";
const AUTO_SUBJECT: &str = "schema.autoRegister.subject";

/// Returns the `avro.encode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let text = |name, description| Parameter::new(name, ParameterKind::Text, description);
    let specification = Specification::builtin("avro.encode", "Encodes a field as Avro in the Confluent wire format.")
        .describe(
            "Replaces the field with its encoded data: a zero byte, the id of the schema in four bytes, and the \
             data. The field must be structured data or a map, or the JSON text of an object. Absent and null \
             fields stay unchanged.\n\n\
             With `preRegistered`, the schema comes from the registry. A record that does not fit it completely \
             fails; no field is left out. With `autoRegister`, the schema is inferred from each record and \
             registered under the subject. Records with the same shape have the same schema.",
        )
        .with(field::parameter("The field to encode: .Key, .Payload.After, or a field within them."))
        .with(text(STRATEGY, "Source of the schema.").required().one_of(&["preRegistered", "autoRegister"]))
        .with(text(SUBJECT, "Subject of the schema; for preRegistered."))
        .with(
            Parameter::new(VERSION, ParameterKind::Int, "Version of the schema; for preRegistered.")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with(text(AUTO_SUBJECT, "Subject under which inferred schemas are registered; for autoRegister."))
        .with_all(shared::processor());
    kind::operator(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let field = field::of(arguments)?;
    let strategy = arguments.text(STRATEGY).map_or("", Str::as_str);
    let missing = |name: &str| {
        Diagnostic::error("settings.missing", format!("{name:?} is required by {STRATEGY}: {strategy}"))
            .with_span(arguments.span(STRATEGY))
            .with_path(format!("/{name}"))
    };
    let subject = |name: &str| {
        let given = arguments.text(name).filter(|subject| !subject.is_empty()).cloned();
        given.ok_or_else(|| Diagnostics::from(missing(name)))
    };
    let strategy = if strategy == "preRegistered" {
        let version = match arguments.int(VERSION) {
            None => Err(Diagnostics::from(missing(VERSION))),
            Some(number) => u32::try_from(number).ok().and_then(SchemaVersion::new).ok_or_else(|| {
                Diagnostic::error("settings.invalid", format!("{VERSION}: {number} is larger than 2147483647"))
                    .with_span(arguments.span(VERSION))
                    .with_path(format!("/{VERSION}"))
                    .into()
            }),
        };
        match (subject(SUBJECT), version) {
            (Ok(subject), Ok(version)) => Strategy::Registered(subject, version),
            (subject, version) => {
                let mut findings = Diagnostics::default();
                subject.err().into_iter().chain(version.err()).for_each(|more| findings.extend(more));
                return Err(findings);
            }
        }
    } else {
        Strategy::Inferred(subject(AUTO_SUBJECT)?)
    };
    Ok(Arc::new(Configured { field, strategy }))
}

#[derive(Clone)]
enum Strategy {
    Registered(Str, SchemaVersion),
    Inferred(Str),
}

struct Configured {
    field: Reference,
    strategy: Strategy,
}

impl ConfiguredOperator for Configured {
    fn signature(&self) -> Signature {
        Signature { reads: self.field.access(), writes: self.field.access(), ..Signature::inline() }
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        let refused = [Content::Avro, Content::Base64];
        flow.need_other(
            "flow.not_encoded",
            "field",
            &self.field,
            &refused,
            "structured data or the JSON text of an object",
        );
        if let Target::Data(side) = self.field.target() {
            let shape = flow.record.side(*side);
            if shape.is_raw() && shape.plain && shape.content.is_none() {
                let message =
                    format!("every record fails here: {} is raw data, not the JSON text of an object", side.as_str());
                let since = (shape.since, "raw data since here".to_owned());
                let hint = "encode structured data, or name the field that contains it".to_owned();
                flow.fail("flow.not_encoded", "field", message, Some(since), Some(hint));
            }
        }
        let content = Some(Content::Avro);
        flow.replace("field", &self.field, Type { content, ..Type::of(Kinds::BYTES) });
    }

    fn build(&self, _worker: usize, host: &Host) -> Result<BuiltOperator, Fault> {
        Ok(BuiltOperator::Inline(Box::new(Encode {
            field: self.field.clone(),
            strategy: self.strategy.clone(),
            desk: Desk::new(host.schemas.clone()),
            text: String::new(),
            buffer: Vec::new(),
        })))
    }
}

struct Encode {
    field: Reference,
    strategy: Strategy,
    desk: Desk,
    /// Buffer for the schema text, reused between records.
    text: String,
    buffer: Vec<u8>,
}

impl Operator for Encode {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.for_each(|record| {
            self.encode(record)?;
            Ok(Decision::Keep)
        });
        // A single huge record must not keep its memory allocated.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
    }
}

impl Encode {
    fn encode(&mut self, record: &mut Record) -> Result<(), Fault> {
        let Some(fields) = fields(&self.field, record)? else { return Ok(()) };
        let field = &self.field;
        let failed =
            |code, error: &dyn std::fmt::Display| Fault::record(code, format!("cannot encode {field}: {error}"));
        let known = match &self.strategy {
            Strategy::Registered(subject, version) => self.desk.version(subject, *version)?,
            Strategy::Inferred(subject) => {
                self.text.clear();
                infer(&fields, &mut self.text).map_err(|error| failed("avro_no_schema", &error))?;
                self.desk.register(subject, &self.text)?
            }
        };
        self.buffer.clear();
        wire::begin(known.schema.id, &mut self.buffer);
        let encoded = known.codec.encode_fields(&fields, &mut self.buffer);
        encoded.map_err(|error| failed("avro_misfit", &error))?;
        match field.target() {
            Target::Data(_) => field.set_data(record, Data::Raw(Bytes::copy_from_slice(&self.buffer))),
            _ => field.set(record, Value::Bytes(self.buffer.as_slice().into())),
        }
    }
}

/// Returns the fields to encode, or `None` if there are none.
fn fields<'r>(field: &Reference, record: &'r Record) -> Result<Option<Cow<'r, Object>>, Fault> {
    let text = match field.get(record)? {
        None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(None),
        Some(Part::Data(Data::Structured(fields)) | Part::Value(Value::Map(fields))) => {
            return Ok(Some(Cow::Borrowed(&**fields)));
        }
        Some(Part::Data(Data::Raw(bytes))) => bytes.as_ref(),
        Some(Part::Value(Value::Text(text))) => text.as_bytes(),
        Some(Part::Value(Value::Bytes(bytes))) => bytes.as_ref(),
        Some(other) => {
            let what = format!("cannot encode {field}: unexpected data type {}", other.type_name());
            return Err(Fault::record("avro_unexpected_type", what));
        }
    };
    match parse_value(text) {
        Ok(Value::Map(map)) => Ok(Some(Cow::Owned(Arc::unwrap_or_clone(map)))),
        Ok(other) => {
            let what =
                format!("cannot encode {field}: its JSON text is {}, not an object", with_article(other.type_name()));
            Err(Fault::record("avro_unexpected_type", what))
        }
        Err(error) => {
            let what = format!("cannot encode {field}: it is neither structured data nor JSON: {error}");
            Err(Fault::record("avro_unexpected_type", what))
        }
    }
}

#[cfg(test)]
mod tests;
